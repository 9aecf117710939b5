"""Figures 1 and 6: trained weights as images, and the correlation between filters as a function of |i - j|."""

import numpy as np
from scipy import stats

from riesz_lab.config import Config
from riesz_lab.inspection.regularity import MIN_FILTERS, correlation_curve
from riesz_lab.report.data import Array, Methods, ReportData, main_methods
from riesz_lab.report.figure import Figure, Image, Panel, Series, series_around
from riesz_lab.report.figures.epochs import dashes
from riesz_lab.report.labels import color, scale
from riesz_lab.store import StoredTrial

MAX_SIDE = 64
MAX_PANELS = 6

MAX_DISTANCE = 32
MAX_TRIALS = 10
MAX_METHODS = 6
RANDOM = "random order"


def stripes(data: ReportData) -> Figure | None:
    methods = _setting_with_images(data)
    if methods is None:
        return None
    shown = {method: trials[0] for method, trials in main_methods(methods, MAX_PANELS).items()}
    config = next(iter(shown.values())).config
    layer = _layer(data, next(iter(shown.values())))
    panels, largest = [], (0, 0)
    for method, trial in shown.items():
        weight_OIK = data.files.conv_weights(trial).get(layer)
        if weight_OIK is not None:
            largest = weight_OIK.shape[:2]
            image = weight_OIK[:MAX_SIDE, :MAX_SIDE, weight_OIK.shape[2] // 2]
            panels.append(Panel(title=method, image=Image(image, "output channel", "input channel")))
    cut = " (the first 64 of each)" if max(largest) > MAX_SIDE else ""
    return Figure(
        name="stripes",
        title="Weights of a trained conv layer",
        caption=f"The central tap of {layer}, {largest[0]} output by {largest[1]} input channels{cut}, after training;"
        f" one trial each, seed {config.effective_init_seed}. {scale(config)}. Vertical stripes would mean that all"
        " output channels weight an input channel alike.",
        alt="Whether stripes are more than noise is measured in the figure of regularity.",
        panels=panels,
    )


def _setting_with_images(data: ReportData) -> Methods | None:
    """The setting with most methods whose first trial has weights with two channels or more on both sides."""
    settings = [methods for _, methods in data.settings_with("weights_file")]
    return max((one for one in settings if _layer(data, next(iter(one.values()))[0])), key=len, default=None)


def _layer(data: ReportData, trial: StoredTrial) -> str:
    """The layer with the largest image; empty if there is none."""
    weights = {name: w for name, w in data.files.conv_weights(trial).items() if min(w.shape[:2]) > 1}
    return max(weights, key=lambda name: weights[name][:MAX_SIDE, :MAX_SIDE, 0].size, default="")


def regularity(data: ReportData) -> Figure | None:
    chosen = _setting_with_filters(data)
    if chosen is None:
        return None
    base, methods = chosen
    panels = [_panel(data, methods, direction) for direction in ("output", "input")]
    return Figure(
        name="regularity",
        title="Correlation between filters by distance",
        caption="Pearson's correlation between the weights of filters i and j, mean over pairs at each |i - j|, conv"
        f" layers with {MIN_FILTERS} filters or more, and trials; bands are 95% intervals over trials. Dotted: the same"
        f" filters in random order. {scale(base)}.",
        alt=". ".join(map(_describe, panels)) + ".",
        panels=panels,
    )


def _setting_with_filters(data: ReportData) -> tuple[Config, Methods] | None:
    """The setting with most methods among those with weights: that of the sweep `regularity`, if it was run."""
    settings = []
    for base, methods in data.settings_with("weights_file"):
        shown = {name: trials[:MAX_TRIALS] for name, trials in main_methods(methods, MAX_METHODS).items()}
        if _curve(data, next(iter(shown.values()))[0], "output", shuffled=False) is not None:
            settings.append((base, shown))
    return max(settings, key=lambda pair: len(pair[1]), default=None)


def _panel(data: ReportData, methods: Methods, direction: str) -> Panel:
    ordered, random = [], []
    styles = dashes(methods)
    for name, trials in methods.items():
        curves, shuffled = (
            [curve for trial in trials if (curve := _curve(data, trial, direction, shuffle)) is not None]
            for shuffle in (False, True)
        )
        if curves:
            distance = [float(d) for d in range(1, len(curves[0]) + 1)]
            index = color(trials[0].config)
            ordered.append(_interval(name, distance, np.array(curves), color=index, dash=styles[name]))
            random.append(Series(name=RANDOM, x=distance, y=np.mean(shuffled, axis=0).tolist(), color=index, dash=2))
    return Panel(title=f"along the {direction}", x="|i - j|", y="mean correlation", series=ordered + random, zero=True)


def _interval(name: str, x: list[float], values_TX: Array, **style: int) -> Series:
    count = len(values_TX)
    half_X = stats.t.ppf(0.975, count - 1) * values_TX.std(0, ddof=1) / np.sqrt(count) if count > 2 else None
    return series_around(name, x, values_TX.mean(0), half_X, note=f"95% interval, {count} trials", **style)


def _curve(data: ReportData, trial: StoredTrial, direction: str, shuffled: bool) -> Array | None:
    """The mean over layers at each distance; a layer counts as far as it reaches."""
    rows = []
    for weight_OIK in data.files.conv_weights(trial).values():
        weight = weight_OIK if direction == "output" else weight_OIK.swapaxes(0, 1)
        order = np.random.default_rng(len(weight)).permutation if shuffled else None
        if (curve := correlation_curve(weight, order)) is not None:
            rows.append(curve)
    if not rows:
        return None
    reach = min(MAX_DISTANCE, max(map(len, rows)))
    table = np.full((len(rows), reach), np.nan)
    for index, row in enumerate(rows):
        table[index, : min(reach, len(row))] = row[:reach]
    return np.asarray(np.nanmean(table, axis=0))


def _describe(panel: Panel) -> str:
    firsts = ", ".join(f"{series.name} {series.y[0]:+.3f}" for series in panel.series if series.name != RANDOM)
    return f"Neighbours {panel.title} correlate by {firsts}"
