"""Figures of one comparison: differences seed by seed, scores by learning rate, the best score after k trials."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from riesz_lab.config import OWN, Config
from riesz_lab.report.figure import Array, Figure, Panel, Series
from riesz_lab.report.figures.series import band, dashes
from riesz_lab.report.labels import color, score_label
from riesz_lab.store import StoredTrial
from riesz_lab.sweeps import Table
from riesz_lab.sweeps.methods import method

Intervals = Mapping[str, tuple[float, float] | None]
ByRate = dict[str, dict[float, list[StoredTrial]]]


def pairs(table: Table, intervals: Intervals | None = None) -> Figure | None:
    """The difference of every pair as a dot, and their mean with its interval.

    Args:
        table: the comparison.
        intervals: by label, those of a sequence of looks; the paired-t intervals of the table if None.
    """
    times = 100.0 if table.percent else 1.0
    series: list[Series] = []
    for label, comparison in table.comparisons.items():
        row = table.rows[label]
        before = table.rows[row.arm.baseline or ""].scores
        differences = [
            times * (after - base)
            for key, after in row.scores.items()
            if after is not None and (base := before.get(key)) is not None
        ]
        if not differences:
            continue
        low, high = (comparison.interval if intervals is None else intervals.get(label)) or (None, None)
        shade = color(row.arm.config)
        series += [
            Series(name="one pair", x=[label] * len(differences), y=differences, kind="points", color=0, dash=0),
            Series(
                name="mean, 95% interval",
                x=[label],
                y=[statistics.fmean(differences)],
                low=[None if low is None else times * low],
                high=[None if high is None else times * high],
                kind="points",
                color=shade,
                dash=2,
                note="(95% interval)",
            ),
        ]
    if not series:
        return None
    unit = ", points" if table.percent else ""
    return Figure(
        name="pairs",
        title="Seed by seed",
        caption="A dot is a pair of trials with the same seed, with the method and without. Right of zero, the method"
        f" has the higher score. Differences up to {times * table.sweep.margin:.3g} are taken not to matter.",
        alt=" ".join(
            f"{label}: pairs won {one.wins}, tied {one.ties}, lost {one.losses}."
            for label, one in table.comparisons.items()
        ),
        panels=[
            Panel(
                y=f"difference in {score_label(table.score)}{unit}",
                # Dots first: the mean is drawn over them.
                series=sorted(series, key=lambda one: one.name != "one pair"),
                zero=True,
                sideways=True,
            )
        ],
    )


def rate_of(config: Config) -> float | None:
    """The learning rate of a trial: that of the lab's loop, or the setting `lr` of the user's."""
    if config.optimizer != OWN:
        return config.lr
    texts = [option.removeprefix("lr=") for option in config.model_options if option.startswith("lr=")]
    try:
        return float(texts[0]) if texts else None
    except ValueError:
        return None


def trials_by_rate(trials: Sequence[StoredTrial]) -> ByRate:
    """Complete trials by method and rate; empty unless some method has several rates."""
    by_rate: ByRate = {}
    for trial in trials:
        rate = rate_of(trial.config)
        if trial.result is not None and rate is not None:
            by_rate.setdefault(method(trial.config), {}).setdefault(rate, []).append(trial)
    return by_rate if any(len(rates) > 1 for rates in by_rate.values()) else {}


def rate_curves(by_rate: ByRate, score: str, percent: bool) -> Figure | None:
    """Score against rate, one line per method: does it help, or does it only shift the best rate?"""
    times, unit = (100.0, " in %") if percent else (1.0, "")
    styles, series, best = dashes(by_rate), [], []
    for name, rates in by_rate.items():
        scores = {rate: values for rate, trials in sorted(rates.items()) if (values := _scores(trials))}
        if not scores:
            continue
        config = next(iter(rates.values()))[0].config
        seeds = min(map(len, scores.values()))
        values_TX = np.array([values[:seeds] for values in scores.values()]).T
        series.append(band(name, list(scores), values_TX, config, times, dash=styles[name]))
        top = max(scores, key=lambda rate: statistics.fmean(scores[rate]))
        best.append(f"{name} is highest at {top:g} ({times * statistics.fmean(scores[top]):.4g})")
    if not series:
        return None
    return Figure(
        name="rates",
        title="Score by learning rate",
        caption="Mean over seeds; bands are one standard deviation over seeds. Curves that are shifted sideways say"
        " that a method only needs another rate; a higher top says that it helps.",
        alt="; ".join(best) + ".",
        panels=[Panel(x="learning rate", y=score_label(score) + unit, series=series, log_x=True)],
    )


def tuning_curves(by_rate: ByRate, score: str, percent: bool, higher_is_better: bool) -> Figure | None:
    """The expected best score after k tuning trials, drawn at random from those that were run."""
    times, unit = (100.0, " in %") if percent else (1.0, "")
    styles, series = dashes(by_rate), []
    for name, rates in by_rate.items():
        scores = [value for trials in rates.values() for value in _scores(trials)]
        if len(scores) > 1:
            expected = expected_best(np.array(scores), higher_is_better)
            config = next(iter(rates.values()))[0].config
            x = [float(k) for k in range(1, len(expected) + 1)]
            y = (times * expected).tolist()
            series.append(Series(name=name, x=x, y=y, color=color(config), dash=styles[name]))
    if not series:
        return None
    return Figure(
        name="budget",
        title="Expected best score after k tuning trials",
        caption="Of k trials drawn with replacement from the trials at all rates: what a budget of k trials buys.",
        alt="; ".join(
            f"{one.name}: {one.y[0]:.4g} after one trial, {one.y[-1]:.4g} after {len(one.y)}" for one in series
        ),
        panels=[Panel(x="tuning trials", y=f"expected best {score_label(score)}{unit}", series=series)],
    )


def expected_best(scores_N: Array, higher_is_better: bool = True) -> Array:
    """The expected best of k draws with replacement, for k = 1 to N: sum_i v_i ((i/N)^k - ((i-1)/N)^k), v ascending.

    Example:
        >>> import numpy as np
        >>> expected_best(np.array([0.0, 1.0])).tolist()
        [0.5, 0.75]
    """
    sign = 1.0 if higher_is_better else -1.0
    ordered_N = np.sort(sign * scores_N)
    share_N = np.arange(len(ordered_N) + 1) / len(ordered_N)
    k_K1 = np.arange(1, len(ordered_N) + 1)[:, None]
    best: Array = sign * (ordered_N * (share_N[1:] ** k_K1 - share_N[:-1] ** k_K1)).sum(1)
    return best


def _scores(trials: Sequence[StoredTrial]) -> list[float]:
    return [value for trial in trials if (value := trial.score("last")) is not None]
