"""What tuning saw: held-out score against each tuned number, and what a budget of tuning trials buys."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from riesz_lab.experiments import Result
from riesz_lab.experiments.tuning import Point, is_number
from riesz_lab.report.figure import Array, Figure, Panel, Series, series_around
from riesz_lab.report.figures.epochs import dashes
from riesz_lab.report.labels import score_label


def tuning_figures(result: Result, colors: Mapping[str, int]) -> list[Figure]:
    """One per tuned number, and the expected best score after k trials; none if nothing was tuned."""
    if result.tuned is None:
        return []
    budget = tuning_curve(result, colors)
    return [*rate_curves(result, colors), *([budget] if budget else [])]


def rate_curves(result: Result, colors: Mapping[str, int]) -> list[Figure]:
    """Held-out score against each tuned number, a line per arm: does it help, or does it only shift the best rate?

    Other tuned settings are at the arm's best value.
    """
    tuned = result.tuned
    assert tuned is not None
    times, unit = (100.0, " in %") if result.score.percent else (1.0, "")
    styles, figures = dashes(tuned.best), []
    diverged = _has_diverged(result)
    for name in tuned.settings:
        series, best = [], []
        for label, chosen in tuned.best.items():
            # A value at which a trial diverged is not chosen; the mean of the others would flatter it.
            points = [point for point in tuned.points[label] if point.mean is not None and _at(point, chosen, name)]
            scores = {point.settings[name]: _finite(point.held_out) for point in points}
            scores = dict(sorted(scores.items())) if all(map(is_number, scores)) else {}
            if len(scores) < 2:
                continue
            mean_X = np.array([times * statistics.fmean(values) for values in scores.values()])
            spread_X = np.array([times * statistics.stdev(v) if len(v) > 1 else 0.0 for v in scores.values()])
            style: dict[str, Any] = {"color": colors.get(label, 0), "dash": styles[label]}
            note = "(one standard deviation over seeds)"
            series.append(series_around(label, list(scores), mean_X, spread_X, note=note, **style))
            best.append(f"{label} is best at {chosen[name]:g}")
        if series:
            y = f"held-out {score_label(result.score.name)}{unit}"
            log = min(float(x) for one in series for x in one.x) > 0
            figures.append(
                Figure(
                    name=f"rates-{name}",
                    title=f"Held-out score by {name}",
                    caption="Mean over the seeds of tuning; bands are one standard deviation over seeds. Curves that"
                    " are shifted sideways say that an arm only needs another value; a higher top says that it helps."
                    + (" Values at which a trial diverged are left out." if diverged else ""),
                    alt="; ".join(best) + ".",
                    panels=[Panel(x=name, y=y, series=series, log_x=log)],
                )
            )
    return figures


def tuning_curve(result: Result, colors: Mapping[str, int]) -> Figure | None:
    """The expected best held-out score after k tuning trials, drawn at random from those that were run.

    A trial that diverged costs as much as any other: it counts as the worst score of all arms.
    """
    tuned = result.tuned
    assert tuned is not None
    times, unit = (100.0, " in %") if result.score.percent else (1.0, "")
    styles, series = dashes(tuned.best), []
    higher = result.score.higher_is_better
    finite = [value for points in tuned.points.values() for point in points for value in _finite(point.held_out)]
    worst = (min if higher else max)(finite, default=0.0)
    for label in tuned.best:
        trials = [value for point in tuned.points[label] for value in point.held_out]
        scores = [worst if value is None else value for value in trials]
        if len(scores) > 1:
            expected = times * expected_best(np.array(scores), higher)
            x = [float(k) for k in range(1, len(expected) + 1)]
            style: dict[str, Any] = {"color": colors.get(label, 0), "dash": styles[label]}
            series.append(Series(name=label, x=x, y=expected.tolist(), **style))
    if not series:
        return None
    after = "; ".join(f"{s.name}: {s.y[0]:.4g} after one trial, {s.y[-1]:.4g} after {len(s.y)}" for s in series)
    y = f"expected best held-out {score_label(result.score.name)}{unit}"
    return Figure(
        name="budget",
        title="Expected best score after k tuning trials",
        caption="Of k trials drawn with replacement from all tuning trials: what a budget of k trials buys."
        + (" One that diverged counts as the worst score." if _has_diverged(result) else ""),
        alt=f"{after}.",
        panels=[Panel(x="tuning trials", y=y, series=series)],
    )


def _has_diverged(result: Result) -> bool:
    points = [point for points in result.tuned.points.values() for point in points] if result.tuned else []
    return any(None in point.held_out for point in points)


def _at(point: Point, chosen: Mapping[str, Any], name: str) -> bool:
    return all(point.settings[other] == value for other, value in chosen.items() if other != name)


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
