"""Is a difference still there once something else is taken out of it? Paired by seed, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evidence.rows import compared, gains
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.sweeps import ArmResult, SweepResult

Fate = Literal["none", "small", "larger", "remains", "part", "gone", "open"]

OPEN = ("no evidence", "no claim")
"""Verdicts that exclude nothing; trials that diverged allow no claim, however close the others are."""


@dataclass(frozen=True)
class Attribution:
    """A difference, and what is left of it under a control."""

    then: Comparison  # as the paper ran it
    now: Comparison  # with the other cause on both sides
    change: Comparison  # the second minus the first, seed by seed

    @property
    def fate(self) -> Fate:
        """What became of the difference.

        none: there was none. small: it is within the margin, so that a control that excludes the margin says nothing
        of it. remains: it is there, and not shown to be within the margin. part, larger: the same, and it became
        smaller, or larger, by a change that is not shown to be within the margin. gone: it became smaller, and what is
        left is within the margin or has the other sign. open: the trials do not tell.
        """
        if self.then.verdict not in ("better", "worse"):
            return "none"
        if self.then.equivalent:
            return "small"
        changed = self.change.verdict in ("better", "worse")
        smaller = changed and self.change.verdict != self.then.verdict
        if self.now.verdict == self.then.verdict and not self.now.equivalent:
            if not changed or self.change.equivalent:
                return "remains"
            return "part" if smaller else "larger"
        return "gone" if self.now.verdict not in OPEN and smaller else "open"


def attribute(pairs: Mapping[str, tuple[SweepResult, ArmResult, SweepResult, ArmResult]]) -> dict[str, Attribution]:
    """By name: the arm as the paper ran it, and under a control, each with its table; Holm over the names."""
    changes = holm(
        {
            name: paired(gains(before, then), gains(after, now), margin=before.sweep.margin, percent=before.percent)
            for name, (before, then, after, now) in pairs.items()
        }
    )
    return {
        name: Attribution(compared(then), compared(now), changes[name]) for name, (_, then, _, now) in pairs.items()
    }
