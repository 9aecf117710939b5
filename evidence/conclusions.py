"""What the protocol concludes from which outcome, computed from complete tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evidence.attribution import attribute
from evidence.rows import compared, metrics
from evidence.sweeps import repeats_lambda_fashion
from evidence.wording import if_small, numbers, points, said
from riesz_lab.statistics import Comparison
from riesz_lab.sweeps import ArmResult, Sweep, SweepResult
from riesz_lab.sweeps.tuning import TUNED

Tables = Mapping[str, SweepResult]
"""By the name of the sweep."""

OUTCOMES = {"better": "confirmed in direction", "worse": "contradicted at these settings"}
"""What a verdict says of the claim that a metric is better than SGD; the others speak for themselves."""


def by_outcome(make: Callable[[], Sweep]) -> Callable[[Tables], list[str]]:
    """The metrics of a sweep, grouped by what is concluded of the claim that they are better than SGD."""

    def conclude(tables: Tables) -> list[str]:
        found: dict[str, list[str]] = {}
        for row in metrics(tables[make().name]):
            comparison = compared(row)
            found.setdefault(outcome(comparison), []).append(f"{row.arm.label} ({numbers(comparison)})")
        return [f"{conclusion}: {'; '.join(arms)}" for conclusion, arms in found.items()]

    return conclude


def _against(table: SweepResult, row: ArmResult) -> str:
    """What an arm is compared with, and the rates of both where they were tuned."""
    assert row.arm.baseline is not None
    if TUNED.fullmatch(table.sweep.name) is None:
        return f"against {row.arm.baseline}:"
    rate = table.sweep[row.arm.baseline].config.lr
    return f"at rate {row.arm.config.lr:g} against {row.arm.baseline} at {rate:g}:"


def outcome(comparison: Comparison) -> str:
    """What is concluded of the claim that a metric is better."""
    found = OUTCOMES.get(comparison.verdict)
    return said(comparison) if found is None else found + if_small(comparison)


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
        lines, where = [], gain().name.removeprefix("evidence-")
        for label, one in attribute(pairs).items():
            now = pairs[label][3]
            if repeats_lambda_fashion(now_table.sweep, now.arm):
                lines.append(f"{label}: the same trials as above, so nothing new; {said(one.then)}")
                continue
            conclusion = {
                "none": f"a gain here; in {where} {said(one.then)}"
                if one.now.verdict == "better"
                else f"no gain in {where} to explain",
                "small": "the gain is no larger than the margin: nothing to explain",
                "larger": f"the gain is more than {what}",
                "remains": f"the gain is more than {what}",
                "part": f"part of the gain is {what}",
                "gone": f"the gain is {what}",
                "open": f"open whether the gain is more than {what}",
            }[one.fate if one.then.verdict == "better" else "none"]
            gained = f"{points(one.then.difference)} in {where}; " if one.then.verdict == "better" else ""
            here = f"{_against(now_table, now)} {said(one.now)} ({numbers(one.now)})"
            lines.append(f"{label}: {conclusion}; {gained}{here}")
        return lines

    return conclude
