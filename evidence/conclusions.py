"""What the protocol concludes from which outcome, computed from complete tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evidence.attribution import attribute, compared
from evidence.wording import metrics, numbers
from riesz_lab.sweeps import Sweep, SweepResult

Tables = Mapping[str, SweepResult]
"""By the name of the sweep."""

OUTCOMES = {
    "better": "confirmed in direction",
    "no difference": "does not hold here by more than {margin:.1f} points",
    "worse": "contradicted at these settings",
    "no evidence": "undecided",
}
"""The protocol's conclusion from a verdict."""


def by_outcome(make: Callable[[], Sweep]) -> Callable[[Tables], list[str]]:
    """The metrics of a sweep, grouped by what is concluded of the claim that they are better than SGD."""

    def conclude(tables: Tables) -> list[str]:
        found: dict[str, list[str]] = {}
        for row in metrics(tables[make().name]):
            comparison = compared(row)
            margin = 100 * comparison.margin
            outcome = OUTCOMES.get(comparison.verdict, comparison.verdict).format(margin=margin)
            if comparison.verdict in ("better", "worse") and comparison.equivalent:
                outcome += f", yet by no more than {margin:.1f} points"
            found.setdefault(outcome, []).append(f"{row.arm.label} ({numbers(comparison)})")
        return [f"{outcome}: {'; '.join(arms)}" for outcome, arms in found.items()]

    return conclude


def explained_by(gain: Callable[[], Sweep], control: Callable[[], Sweep], what: str) -> Callable[[Tables], list[str]]:
    """Whether the metrics that gain in one sweep still do in another, which takes something else out of it.

    Args:
        gain: the sweep as the paper ran it.
        control: the same metrics, against a baseline that has it too.
        what: what the gain is if it is gone there.
    """

    def conclude(tables: Tables) -> list[str]:
        then_table, now_table = tables[gain().name], tables[control().name]
        if not then_table.complete:
            return [f"not decided: trials of {gain().name} are missing"]
        before = {row.arm.config.metric: row for row in metrics(then_table)}
        pairs = {
            row.arm.label: (then_table, before[row.arm.config.metric], now_table, row) for row in metrics(now_table)
        }
        lines = []
        for label, one in attribute(pairs).items():
            shared = pairs[label][1].trials == pairs[label][3].trials
            outcome = {
                "none": "a gain here alone" if one.now.verdict == "better" else "no gain shown, so none to explain",
                "small": "the gain is no larger than the margin: nothing to explain",
                "remains": f"the gain is more than {what}",
                "gone": f"the gain is {what}",
                "open": f"open whether the gain is more than {what}",
            }[one.fate if one.then.verdict == "better" else "none"]
            if shared and outcome == "a gain here alone":
                outcome += ", by the very trials above with fewer comparisons to correct for"
            lines.append(f"{label}: {outcome}; {one.now.verdict} ({numbers(one.now)})")
        return lines

    return conclude
