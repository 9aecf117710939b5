"""What the protocol concludes from which outcome, computed from complete tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import riesz
from evidence import sweeps
from riesz_lab.report.figures.regimes import best_rate
from riesz_lab.statistics import Comparison
from riesz_lab.sweeps import ArmResult, Sweep, SweepResult

Tables = Mapping[str, SweepResult]
"""By the name of the sweep."""

OUTCOMES = {
    "better": "confirmed in direction",
    "no difference": "does not hold here by more than {margin:.1f} points",
    "worse": "contradicted at these settings",
    "no evidence": "undecided",
}
"""The protocol's conclusion from a verdict."""

NOT_BETTER = ("no difference", "worse", "identical")
"""Verdicts that exclude a gain of the margin or more."""

SMALL_BATCH, LARGE_BATCH, PAPER_RATE = 8, 128, 0.1
"""Where the paper's gain is largest and smallest."""


def by_outcome(make: Callable[[], Sweep]) -> Callable[[Tables], list[str]]:
    """The metrics of a sweep, grouped by what is concluded of the claim that they are better than SGD."""

    def conclude(tables: Tables) -> list[str]:
        found: dict[str, list[str]] = {}
        for row in metrics(tables[make().name]):
            comparison = _compared(row)
            outcome = OUTCOMES.get(comparison.verdict, comparison.verdict).format(margin=100 * comparison.margin)
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
        if not tables[gain().name].complete:
            return [f"not decided: trials of {gain().name} are missing"]
        before = {row.arm.config.metric: _compared(row) for row in metrics(tables[gain().name])}
        lines = []
        for row in metrics(tables[control().name]):
            then, now = before[row.arm.config.metric], _compared(row)
            outcome = _explained(then, now, what)
            lines.append(f"{row.arm.label}: {outcome}; {now.verdict} ({numbers(now)})")
        return lines

    return conclude


@dataclass(frozen=True)
class SmallBatches:
    """The comparisons of a metric with SGD that the claim about small batches rests on."""

    metric: str
    small: Comparison  # where the paper's gain is largest
    large: Comparison  # at the large batch size and the same rate
    best_rate: float | None  # that suits SGD best at the small batch size; None if it fails at every rate
    at_best: Comparison | None  # at that rate, if it is another one


def read_small_batches(table: SweepResult) -> list[SmallBatches]:
    """One for each metric of the sweep."""
    best = best_rate(table, SMALL_BATCH)
    cells = {
        (row.arm.config.metric, row.arm.config.batch_size, row.arm.config.lr): _compared(row) for row in metrics(table)
    }
    return [
        SmallBatches(
            type(riesz.metric(metric)).__name__,
            cells[metric, SMALL_BATCH, PAPER_RATE],
            cells[metric, LARGE_BATCH, PAPER_RATE],
            best,
            None if best in (None, PAPER_RATE) else cells[metric, SMALL_BATCH, best],
        )
        for metric in dict.fromkeys(metric for metric, _, _ in cells)
    ]


def small_batches(tables: Tables) -> list[str]:
    """The gain where the paper's is largest, at the rate that suits SGD there, and at the large batch size."""
    lines = []
    for one in read_small_batches(tables[sweeps.regimes().name]):
        parts = [f"batch {SMALL_BATCH}, rate {PAPER_RATE:g}: {one.small.verdict} ({numbers(one.small)})"]
        if one.at_best is not None:
            at_best = f"{one.at_best.verdict} ({numbers(one.at_best)})"
            parts.append(f"at {one.best_rate:g}, the rate that suits SGD best there: {at_best}")
            parts.append(_explained(one.small, one.at_best, "a matter of the rate"))
        parts.append(f"batch {LARGE_BATCH}, rate {PAPER_RATE:g}: {one.large.verdict} ({numbers(one.large)})")
        lines.append(f"{one.metric}, {'; '.join(parts)}")
    return lines


def small_batches_in_short(table: SweepResult) -> str:
    """The same in a sentence."""
    parts = []
    for one in read_small_batches(table):
        part = f"{one.metric} {100 * one.small.difference:+.2f} points ({one.small.verdict})"
        if one.at_best is not None:
            part += f", and {100 * one.at_best.difference:+.2f} ({one.at_best.verdict}) at the rate that suits SGD best"
        parts.append(part)
    return f"On CIFAR-10 at batch {SMALL_BATCH} and a rate of {PAPER_RATE:g}, against SGD: {'; '.join(parts)}."


def metrics(table: SweepResult) -> Iterable[ArmResult]:
    """The rows that are compared and have a metric; SGD at another rate is none."""
    return (row for row in table.rows.values() if row.comparison is not None and row.arm.config.metric != "identity")


def numbers(comparison: Comparison) -> str:
    """The difference in points with its interval, and if undecided, what would have shown."""
    if not comparison.n:
        return "no pair"
    text = f"{100 * comparison.difference:+.2f}"
    if comparison.interval is not None:
        text += f", {100 * comparison.interval[0]:+.2f} to {100 * comparison.interval[1]:+.2f}"
    if comparison.verdict == "no evidence" and comparison.detectable is not None:
        text += f"; detectable: {100 * comparison.detectable:.2f}"
    return text


def _explained(then: Comparison, now: Comparison, what: str) -> str:
    if then.verdict != "better":
        return "no gain to explain"
    if now.verdict == "better":
        return f"the gain is more than {what}"
    # What was not seen may still be there.
    return f"the gain is {what}" if now.verdict in NOT_BETTER else f"open whether the gain is more than {what}"


def _compared(row: ArmResult) -> Comparison:
    assert row.comparison is not None
    return row.comparison
