"""What else belongs to an answer: warnings before it is believed, and how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riesz_lab.comparison.arms import format_value, settings_of
from riesz_lab.comparison.display import describe_look
from riesz_lab.comparison.trials import span
from riesz_lab.config import OWN
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.verdict import LEAST_PAIRS
from riesz_lab.training.progress import clock
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.comparison.answer import Answer


def warnings(answer: Answer) -> list[str]:
    """A margin that excludes nothing, outlying and diverged trials, and arms at the edge of a grid."""
    lines = []
    scores = [score for row in answer.rows.values() for score in row.scores.values() if score is not None]
    if scores and min(scores) >= 0 and max(scores) < answer.sweep.margin:
        lines.append(
            f"The margin, {answer.sweep.margin:g}, is larger than every score ({min(scores):.3g} to {max(scores):.3g}):"
            " no method could exceed it. Give a smaller one with --margin."
        )

    def shown(value: float) -> str:
        return f"{100 * value:.2f}%" if answer.percent else f"{value:.4g}"

    for each in answer.outliers:
        lines.append(
            f"Outlier: {each.label}, seed {each.seed} scored {shown(each.score)}, the other seeds "
            f"{shown(each.low)} to {shown(each.high)}. It is included."
        )
    for label, judged in answer.without_outliers.items():
        if judged.n < LEAST_PAIRS:
            continue
        without = judged.sentence if isinstance(judged, Comparison) else describe_look(judged, answer.percent)
        lines.append(f"  Without such trials, {label}: {without}.")
    for label, row in answer.rows.items():
        if gone := [trial.config.seed for trial in row.trials.values() if trial.score() is None]:
            lines.append(f"Diverged: {label}, seed {', '.join(map(str, sorted(gone)))}.")
    if answer.tuned is not None and answer.tuned.at_the_edge:
        lines.append(
            f"The best value of {', '.join(answer.tuned.at_the_edge)} lies at the edge of the grid, which was extended "
            f"by {count(answer.tuned.extended, 'value')}: a better one may lie beyond."
        )
    return lines


def notes(answer: Answer) -> list[str]:
    """How the settings were chosen, what it cost, what was stored before."""
    lines = [_rates(answer)]
    if answer.verdicts is not None:
        arms = len(answer.verdicts.arms)
        lines.append(
            f"Seeds were added until a conclusion held, {answer.verdicts.budget} at most; intervals allow for a look "
            f"after every pair{_shared(arms)}."
        )
    if answer.stored:
        stored = count(len(answer.stored), "stored trial")
        lines.append(f"{stored} used again ({span(answer.stored)}); --fresh trains anew.")
    lines.append(f"All trials together: {clock(answer.seconds)}.")
    return lines


def _shared(arms: int) -> str:
    return "" if arms == 1 else " and for both arms" if arms == 2 else f" and for all {arms} arms"


def _rates(answer: Answer) -> str:
    if (tuned := answer.tuned) is not None:
        best = "; ".join(
            f"{label} " + ", ".join(f"{name}={format_value(value)}" for name, value in values.items())
            for label, values in tuned.best.items()
        )
        values = ", ".join(f"{name} {', '.join(map(format_value, each))}" for name, each in tuned.grid.items())
        gone = sum(score is None for by_point in tuned.by_seed.values() for each in by_point.values() for score in each)
        diverged = f", of which {gone} diverged" if gone else ""
        seeds, trials = count(tuned.seeds, "seed"), count(tuned.trials, "trial")
        return (
            f"Tuned on held-out scores, the same for every arm: {values}; {seeds} each. Best: {best}. Cost of tuning: "
            f"{trials}{diverged}, {clock(tuned.seconds)}. Intervals are about these settings; they do not include the "
            "chance by which others might have been chosen."
        )
    config = next(iter(answer.rows.values())).arm.config
    if (given := settings_of(config)) and "lr" in given and config.optimizer == OWN:
        return "Settings are the same in all arms; a metric changes the length of steps too: tune with --tune lr."
    if config.optimizer != OWN:
        return f"The learning rate is {config.lr:g} in all arms; a metric changes the length of steps too."
    return "Learning rates are your function's, the same in all arms; a metric changes the length of steps too."
