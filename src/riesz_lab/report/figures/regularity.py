"""Figure 6: correlation between filters as a function of |i - j|, output and input direction, per method."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from riesz_lab.config import Config
from riesz_lab.inspection.regularity import FEWEST, correlation_curve
from riesz_lab.report.evidence import Array, Evidence, Methods, main_methods, styles
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import color, scale

FARTHEST = 32
MOST_TRIALS = 10
MOST_METHODS = 6


def regularity(evidence: Evidence) -> Figure | None:
    chosen = _setting(evidence)
    if chosen is None:
        return None
    base, methods = chosen
    panels = [_panel(evidence, methods, direction) for direction in ("output", "input")]
    return Figure(
        name="regularity",
        title="Correlation between filters by distance",
        caption="Pearson's correlation between the weights of filters i and j, mean over pairs at each |i - j|, conv"
        f" layers with {FEWEST} filters or more, and trials; bands are 95% intervals over trials. Dotted: the same"
        f" filters in random order. {scale(base)}.",
        alt=_told(panels),
        panels=panels,
    )


def _setting(evidence: Evidence) -> tuple[Config, Methods] | None:
    """The setting with most methods among those with weights: those of the sweep `regularity`, if it was run."""
    found = []
    for base, methods in evidence.settings.items():
        there = {
            name: [trial for trial in trials if trial.files.weights_file.exists()][:MOST_TRIALS]
            for name, trials in main_methods(methods, MOST_METHODS).items()
        }
        there = {name: trials for name, trials in there.items() if trials}
        if there and _curve(evidence, next(iter(there.values()))[0], "output", shuffled=False) is not None:
            found.append((base, there))
    return max(found, key=lambda pair: len(pair[1]), default=None)


def _panel(evidence: Evidence, methods: Methods, direction: str) -> Panel:
    series = []
    dashes = styles(methods)
    for name, trials in methods.items():
        curves = [curve for trial in trials if (curve := _curve(evidence, trial, direction, False)) is not None]
        shuffled = [curve for trial in trials if (curve := _curve(evidence, trial, direction, True)) is not None]
        if not curves:
            continue
        distance = [float(d) for d in range(1, len(curves[0]) + 1)]
        series.append(_interval(name, distance, np.array(curves), color(trials[0].config), dashes[name]["dash"]))
        series.append(
            Series(
                name="random order",
                x=distance,
                y=np.mean(shuffled, axis=0).tolist(),
                color=color(trials[0].config),
                dash=2,
            )
        )
    return Panel(
        title=f"along the {direction}", x="|i - j|", y="mean correlation", series=_random_last(series), zero=True
    )


def _random_last(series: list[Series]) -> list[Series]:
    return sorted(series, key=lambda one: one.name == "random order")


def _interval(name: str, x: list[float], values_TX: Array, color: int, dash: int) -> Series:
    from scipy import stats

    mean = values_TX.mean(0)
    low = high = None
    if len(values_TX) > 2:
        half = stats.t.ppf(0.975, len(values_TX) - 1) * values_TX.std(0, ddof=1) / np.sqrt(len(values_TX))
        low, high = (mean - half).tolist(), (mean + half).tolist()
    note = f"95% interval, {len(values_TX)} trials"
    return Series(name=name, x=x, y=mean.tolist(), low=low, high=high, color=color, dash=dash, note=note)


def _curve(evidence: Evidence, trial: object, direction: str, shuffled: bool) -> Array | None:
    """The mean over layers at each distance; a layer counts as far as it reaches."""
    rows = list(_layer_curves(evidence.conv_weights(trial), direction, shuffled))  # type: ignore[arg-type]
    if not rows:
        return None
    reach = min(FARTHEST, max(map(len, rows)))
    table = np.full((len(rows), reach), np.nan)
    for index, row in enumerate(rows):
        table[index, : min(reach, len(row))] = row[:reach]
    return np.asarray(np.nanmean(table, axis=0))


def _layer_curves(weights: dict[str, Array], direction: str, shuffled: bool) -> Iterable[Array]:
    for weight_OIK in weights.values():
        weight = weight_OIK if direction == "output" else weight_OIK.swapaxes(0, 1)
        curve = correlation_curve(weight, order=np.random.default_rng(len(weight)).permutation if shuffled else None)
        if curve is not None:
            yield curve


def _told(panels: list[Panel]) -> str:
    told = []
    for panel in panels:
        firsts = ", ".join(f"{one.name} {one.y[0]:+.3f}" for one in panel.series if one.name != "random order")
        told.append(f"Neighbours {panel.title} correlate by {firsts}")
    return ". ".join(told) + "."
