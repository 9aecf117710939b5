"""Figures of one comparison: differences seed by seed, scores by learning rate, the best score after k trials."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from riesz_lab.report.figure import Array, Figure, Panel, Series, series_around
from riesz_lab.report.figures.series import dashes
from riesz_lab.report.labels import color, score_label
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.store.comparison import ComparisonRecord, RateRecord
from riesz_lab.store.result import is_percent
from riesz_lab.sweeps import SweepResult


def pairs(table: SweepResult, judged: Mapping[str, Sequential] | None = None) -> Figure | None:
    """The difference of every pair as a dot, and their mean with its interval.

    Args:
        table: the comparison.
        judged: by label, the judgements of a sequence of looks, which may be of fewer pairs than the table has; the
            paired-t intervals of the table if None.
    """
    times = 100.0 if table.percent else 1.0
    series: list[Series] = []
    for label, comparison in table.comparisons.items():
        differences = [times * each for each in _differences(table, label, judged)]
        if not differences:
            continue
        low, high = (comparison if judged is None else judged[label]).interval or (None, None)
        shade = color(table.rows[label].arm.config)
        series += [
            Series(name="one pair", x=[label] * len(differences), y=differences, kind="dots", color=shade),
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
        f" has the higher score{'' if table.higher_is_better else ', which is worse'}. Differences up to"
        f" {times * table.sweep.margin:.3g} are treated as negligible.",
        alt=" ".join(_won(table, label, judged) for label in table.comparisons),
        panels=[
            Panel(
                y=f"difference in {score_label(table.score)}{unit}",
                series=series,
                zero=True,
                margin=times * table.sweep.margin,
                sideways=True,
            )
        ],
    )


def _differences(table: SweepResult, label: str, judged: Mapping[str, Sequential] | None) -> Sequence[float]:
    if judged is not None:
        return judged[label].differences
    row = table.rows[label]
    before = table.rows[row.arm.baseline or ""].scores
    return [
        after - base for key, after in row.scores.items() if after is not None and (base := before.get(key)) is not None
    ]


def _won(table: SweepResult, label: str, judged: Mapping[str, Sequential] | None) -> str:
    one = table.comparisons[label]
    wins, ties, losses = one.wins, one.ties, one.losses
    if judged is not None:
        sign = 1 if table.higher_is_better else -1
        gains = [sign * each for each in judged[label].differences]
        wins, ties, losses = (sum(each > 0 for each in gains), gains.count(0), sum(each < 0 for each in gains))
    return f"{label}: pairs won {wins}, tied {ties}, lost {losses}."


def rate_curves(record: ComparisonRecord, colors: Mapping[str, int]) -> list[Figure]:
    """Held-out score against each tuned number, one line per arm: does it help, or does it only shift the best rate?

    Other tuned settings are at the arm's best value.
    """
    times, unit = (100.0, " in %") if is_percent(record.score) else (1.0, "")
    styles, figures = dashes(record.best), []
    diverged = any(None in point.held_out for point in record.tuned)
    for name in next(iter(record.best.values()), {}):
        series, best = [], []
        for label, chosen in record.best.items():
            points = [point for point in record.tuned if point.label == label and _at_best(point, chosen, name)]
            # A value at which a trial diverged is not chosen; the mean of the others would flatter it.
            scores = {point.settings[name]: _finite(point.held_out) for point in points if None not in point.held_out}
            scores = dict(sorted(scores.items())) if _are_numbers(scores) else {}
            if len(scores) < 2:
                continue
            mean_X = np.array([times * statistics.fmean(values) for values in scores.values()])
            spread_X = np.array([times * statistics.stdev(v) if len(v) > 1 else 0.0 for v in scores.values()])
            note = "one standard deviation over seeds"
            style: dict[str, Any] = {"color": colors.get(label, 0), "dash": styles[label], "note": note}
            series.append(series_around(label, list(scores), mean_X, spread_X, **style))
            best.append(f"{label} is best at {chosen[name]:g}")
        if series:
            figures.append(_rate_figure(name, f"held-out {score_label(record.score)}{unit}", series, best, diverged))
    return figures


def _rate_figure(name: str, y: str, series: list[Series], best: list[str], diverged: bool) -> Figure:
    return Figure(
        name=f"rates-{name}",
        title=f"Held-out score by {name}",
        caption="Mean over the seeds of tuning; bands are one standard deviation over seeds. Curves that are shifted"
        " sideways say that a method only needs another value; a higher top says that it helps."
        + (" Values at which a trial diverged are left out." if diverged else ""),
        alt="; ".join(best) + ".",
        panels=[Panel(x=name, y=y, series=series, log_x=min(min(one.x) for one in series) > 0)],  # type: ignore[operator]
    )


def tuning_curve(record: ComparisonRecord, colors: Mapping[str, int]) -> Figure | None:
    """The expected best held-out score after k tuning trials, drawn at random from those that were run.

    A trial that diverged costs as much as any other: it counts as the worst score of all arms.
    """
    times, unit = (100.0, " in %") if is_percent(record.score) else (1.0, "")
    styles, series = dashes(record.best), []
    finite = [value for point in record.tuned for value in _finite(point.held_out)]
    worst = (min if record.higher_is_better else max)(finite, default=0.0)
    for label in record.best:
        trials = [value for point in record.tuned if point.label == label for value in point.held_out]
        scores = [worst if value is None else value for value in trials]
        if len(scores) > 1:
            expected = times * expected_best(np.array(scores), record.higher_is_better)
            x = [float(k) for k in range(1, len(expected) + 1)]
            shade = colors.get(label, 0)
            series.append(Series(name=label, x=x, y=expected.tolist(), color=shade, dash=styles[label]))
    if not series:
        return None
    return Figure(
        name="budget",
        title="Expected best score after k tuning trials",
        caption="Of k trials drawn with replacement from all tuning trials: what a budget of k trials buys."
        + (" One that diverged counts as the worst score." if any(None in p.held_out for p in record.tuned) else ""),
        alt="; ".join(
            f"{one.name}: {one.y[0]:.4g} after one trial, {one.y[-1]:.4g} after {len(one.y)}" for one in series
        )
        + ".",
        panels=[Panel(x="tuning trials", y=f"expected best held-out {score_label(record.score)}{unit}", series=series)],
    )


def _at_best(point: RateRecord, chosen: Mapping[str, Any], name: str) -> bool:
    return all(point.settings[other] == value for other, value in chosen.items() if other != name)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _finite(scores: Iterable[float | None]) -> list[float]:
    return [score for score in scores if score is not None]


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
