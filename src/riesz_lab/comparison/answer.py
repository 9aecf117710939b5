"""The result of a comparison: the table of all arms, and the answer in words."""

import html
from dataclasses import dataclass, field

from riesz_lab.comparison import conclusions, next_steps, remarks
from riesz_lab.comparison.outliers import Outlier, find_outliers
from riesz_lab.comparison.planning import Plan
from riesz_lab.comparison.rounds import SequentialResult
from riesz_lab.comparison.tuning import Tuned
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.sweeps import SweepResult


@dataclass(frozen=True, repr=False)
class Answer(SweepResult):
    """What `riesz_lab.compare` returns: a table of all arms, and what it means.

    Attributes:
        function: the name of what was compared.
        command: the command that was given, without what says how many seeds; empty in Python.
        tuned: how each arm's settings were chosen; None if they were not tuned.
        verdicts: the sequential judgements of a comparison that ran until it was sure; None if the number of seeds
            was fixed in advance. Then only these count, not the comparisons in the rows.
        plan: how many pairs are needed; None unless it was asked for.
        stored: the dates of trials that were not trained again.
        seconds: what all trials took, tuning included.
        takes_rate: whether the function takes a setting `lr` that was not tuned.
        without_outliers: the same judgements without trials that are far from all others, for the arms that have such.
    """

    function: str = ""
    command: str = ""
    tuned: Tuned | None = None
    verdicts: SequentialResult | None = None
    plan: Plan | None = None
    stored: tuple[str, ...] = ()
    seconds: float = 0.0
    takes_rate: bool = False
    without_outliers: dict[str, Comparison | Sequential] = field(default_factory=dict)

    @property
    def outliers(self) -> list[Outlier]:
        return find_outliers(self)

    @property
    def answers(self) -> list[str]:
        """One sentence per arm: does it help, by how much, how sure."""
        return conclusions.answers(self)

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing the answer."""
        return remarks.warnings(self)

    @property
    def next_steps(self) -> list[str]:
        """What to do now: a line of code, or a command."""
        return next_steps.next_steps(self)

    @property
    def notes(self) -> list[str]:
        """How the answer came about: rates, tuning and its cost, stored trials."""
        return remarks.notes(self)

    @property
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
