"""What a comparison answers: its result with warnings, what to do next, and how it came about."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from riesz_lab.config import OWN
from riesz_lab.experiments.arm import format_values
from riesz_lab.experiments.function import settings_of
from riesz_lab.experiments.outliers import Outlier, find_outliers, without
from riesz_lab.experiments.planning import Plan, as_look, fixed_pairs, make_plan, pairs_to_conclude, plan_lines
from riesz_lab.experiments.result import ArmResult, Result
from riesz_lab.experiments.stopping import Judged
from riesz_lab.statistics.sequential import decidable
from riesz_lab.statistics.verdict import LEAST_PAIRS, Verdict, format_difference, format_margin
from riesz_lab.training.progress import clock
from riesz_lab.utils.amounts import count


@dataclass(frozen=True, repr=False)
class Answer(Result):
    """What `riesz_lab.compare` returns: a result, and what it means.

    Attributes:
        function: the name of what was compared.
        command: the command that was given, without what says how many seeds; empty in Python.
        stored: the dates of trials that were not trained again.
        takes_rate: whether the function takes a setting `lr` that was not tuned.
        workers: trials that run at once.
    """

    function: str = ""
    command: str = ""
    stored: tuple[str, ...] = ()
    takes_rate: bool = False
    workers: int = 1

    @cached_property
    def plan(self) -> Plan | None:
        """How many pairs are needed; None unless it was asked for."""
        return make_plan(self, self.workers) if self.experiment.stopping.plans else None

    @cached_property
    def outliers(self) -> list[Outlier]:
        """Trials far from all others."""
        return find_outliers(self)

    @cached_property
    def without_outliers(self) -> dict[str, Judged]:
        """The same judgements without trials that are far from all others, for the arms that have such."""
        return without(self, self.outliers)

    @cached_property
    def answers(self) -> list[str]:
        """One sentence per arm: its verdict, by how much, how sure."""
        return plan_lines(self, self.plan) if self.plan else [sentence(self, label) for label in self.compared]

    @cached_property
    def explanations(self) -> list[str]:
        """What undecided arms would take, and what changed nothing: a line for each such arm."""
        lines = {label: no_steps(arm) or needed(self, label) for label, arm in self.compared.items()}
        return [f"{label}: {line}." for label, line in lines.items() if line]

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before believing the answer."""
        return warnings(self)

    @cached_property
    def next_steps(self) -> list[str]:
        """What to do now: a line of code, or a command."""
        from riesz_lab.experiments.next_steps import next_steps

        return next_steps(self)

    @cached_property
    def notes(self) -> list[str]:
        """How the answer came about: rates, tuning and its cost, stored trials."""
        return [*notes(self), *self.costs]

    @cached_property
    def costs(self) -> list[str]:
        """What was trained for it, and what was stored before."""
        lines = []
        if self.stored:
            dates = min(self.stored), max(self.stored)
            span = dates[0] if dates[0] == dates[1] else " to ".join(dates)
            lines.append(f"{count(len(self.stored), 'stored trial')} used again ({span}); --fresh trains anew.")
        return [*lines, f"All trials together: {clock(sum(trial.seconds for trial in self.trials))}."]

    @cached_property
    def text(self) -> str:
        """The answer, what to do next, and how it came about; without the table of statistics."""
        return "\n".join([*self.answers, *self.warnings, "", *self.next_steps, "", *self.notes])

    def __repr__(self) -> str:
        return "\n".join([*self.answers, *self.warnings, *self.next_steps])

    def _repr_html_(self) -> str:
        def lines(texts: list[str]) -> str:
            return "<br>".join(map(html.escape, texts))

        return (
            f"<p><b>{lines(self.answers)}</b></p><p>{lines(self.warnings)}</p><p>{lines(self.next_steps)}</p>"
            f"<p><small>{lines(self.notes)}</small></p>"
        )


def answer_of(result: Result, **more: Any) -> Answer:
    return Answer(**{field.name: getattr(result, field.name) for field in fields(Result)}, **more)


def sentence(result: Result, label: str) -> str:
    """An arm's verdict with its numbers, its reason, and what an undecided one would take."""
    arm = result.arms[label]
    judged = arm.judged
    assert judged is not None
    margin = format_margin(judged.margin, result.score.unit)
    verdict = f"same (within {margin})" if arm.verdict == Verdict.SAME else str(arm.verdict)
    size = format_difference(judged.difference, judged.interval, result.score.unit) if judged.n else ""
    pairs = count(judged.n, "pair")
    where = f" at each arm's best {' and '.join(result.tuned.settings)}" if result.tuned else ""
    parts = (f"{verdict}{', ' if size else ''}{size}{where}, {pairs}", arm.reason, no_steps(arm), needed(result, label))
    return f"{label} against {arm.arm.baseline}: {'; '.join(filter(None, parts))}."


def needed(result: Result, label: str) -> str:
    """How many pairs would decide an undecided arm; empty where more pairs would not."""
    arm, look = result.arms[label], as_look(result, label)
    if arm.verdict != Verdict.UNDECIDED or any(look.diverged) or look.n < LEAST_PAIRS or look.interval is None:
        return ""
    if result.sequential:
        pairs = pairs_to_conclude(look)
        if pairs is None:
            return f"more than {decidable(look.n)} pairs would be needed to decide it with 80% power"
        return f"with such a mean and spread, about {pairs} pairs in all would decide it with 80% power"
    margin = format_margin(look.margin, result.score.unit)
    pairs = fixed_pairs(look.margin / look.spread, 0.05 / max(1, result.experiment.comparisons))
    if pairs is None:
        return f"more than 2,000 pairs would be needed to detect {margin} with 80% power"
    # As many or fewer would only say again that the margin is within reach of such a test.
    return "" if pairs <= look.n else f"about {pairs} pairs would detect {margin} with 80% power"


def no_steps(arm: ArmResult) -> str:
    """Why a directed optimizer changed nothing, if it made no step in any trial; trials may not say."""
    seen = [row.get("stepped") for trial in arm.trials.values() for row in trial.timing()]
    identical = arm.judged is not None and arm.judged.identical
    if not identical or not seen or any(stepped is not False for stepped in seen):
        return ""
    return "the optimizer that was attached made no step: attach the one that steps"


def warnings(result: Result) -> list[str]:
    """A margin that excludes nothing, outlying and diverged trials, and arms at the edge of a grid."""
    lines = []
    scores = [score for row in result.arms.values() for score in row.scores.values() if score is not None]
    margins = [each.judged.margin for each in result.compared.values() if each.judged is not None]
    if scores and margins and min(scores) >= 0 and max(scores) < min(margins):
        lines.append(
            f"The margin, {min(margins):g}, is larger than every score ({min(scores):.3g} to {max(scores):.3g}):"
            " no method could exceed it. Give a smaller one with --margin."
        )

    def shown(value: float) -> str:
        return f"{100 * value:.2f}%" if result.score.percent else f"{value:.4g}"

    outliers = find_outliers(result)
    for each in outliers:
        lines.append(
            f"Outlier: {each.label}, seed {each.seed} scored {shown(each.score)}, the other seeds "
            f"{shown(each.low)} to {shown(each.high)}. It is included."
        )
    for label, judged in without(result, outliers).items():
        if judged.n >= LEAST_PAIRS:
            size = format_difference(judged.difference, judged.interval, result.score.unit)
            lines.append(f"  Without such trials, {label}: {judged.verdict}, {size}, {judged.n} pairs.")
    for label, row in result.arms.items():
        if gone := [seed for seed, score in zip(_seeds(row), row.scores.values(), strict=True) if score is None]:
            lines.append(f"Diverged: {label}, seed {', '.join(map(str, sorted(gone)))}.")
    if result.tuned is not None and result.tuned.at_the_edge:
        lines.append(
            f"The best value of {', '.join(result.tuned.at_the_edge)} lies at the edge of the grid, which was extended "
            f"by {count(result.tuned.extended, 'value')}: a better one may lie beyond."
        )
    return lines


def notes(result: Result) -> list[str]:
    """How settings were chosen and what that cost; when the experiment was stopped."""
    lines = [text] if (text := _settings(result)) else []
    if (most := result.experiment.stopping.most) is not None:
        arms = result.experiment.comparisons
        shared = "" if arms == 1 else " and for both arms" if arms == 2 else f" and for all {arms} arms"
        lines.append(
            f"Seeds were added until every arm had a verdict, {most} at most; intervals "
            f"allow for a look after every pair{shared}."
        )
    return lines


def _settings(result: Result) -> str:
    if (tuned := result.tuned) is not None:
        best = "; ".join(f"{label} {format_values(values)}" for label, values in tuned.best.items())
        values = ", ".join(f"{name} {', '.join(map(_format, each))}" for name, each in tuned.grid.items())
        gone = sum(score is None for points in tuned.points.values() for point in points for score in point.held_out)
        diverged = f", of which {gone} diverged" if gone else ""
        cost = clock(sum(trial.seconds for trial in tuned.trials))
        return (
            f"Tuned on held-out scores, the same for every arm: {values}; {count(tuned.seeds, 'seed')} each. "
            f"Best: {best}. Cost of tuning: {count(len(tuned.trials), 'trial')}{diverged}, {cost}. Intervals are about "
            "these settings; they do not include the chance by which others might have been chosen."
        )
    configs = [each.arm.config for each in result.arms.values()]
    rates = list(dict.fromkeys(config.lr for config in configs))
    longer = "a metric changes the length of steps too"
    if configs[0].optimizer == OWN:
        if any("lr" in settings_of(config) for config in configs):
            return f"Settings are the same in all arms; {longer}: tune with --tune lr."
        return f"Learning rates are your function's, the same in all arms; {longer}."
    if any(config.control != "none" for config in configs):
        # A control answers for its metric at the metric's own rate; advice to tune it would lead away from that.
        return ""
    where = f"is {rates[0]:g} in all arms" if len(rates) == 1 else "is that of each arm's own setting, as labelled"
    return f"The learning rate {where}; it was tuned for none, and {longer}: tune before you conclude."


def _seeds(arm: ArmResult) -> Sequence[int]:
    return [trial.config.seed for trial in arm.trials.values()]


def _format(value: Any) -> str:
    return f"{value:g}" if type(value) is float else str(value)
