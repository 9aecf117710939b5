"""What the protocol concludes from which outcome, computed from complete tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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

SMALL_BATCH, PAPER_RATE = 8, 0.1
"""Where the paper's largest gain is."""


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


def small_batches(tables: Tables) -> list[str]:
    """The gain at the paper's batch size and rate, and at the rate that suits SGD there."""
    table = tables[sweeps.regimes().name]
    best = best_rate(table, SMALL_BATCH)
    cells = {(row.arm.config.metric, row.arm.config.batch_size, row.arm.config.lr): row for row in metrics(table)}
    lines = []
    for metric in dict.fromkeys(metric for metric, _, _ in cells):
        row = cells[metric, SMALL_BATCH, PAPER_RATE]
        then = _compared(row)
        line = f"{row.arm.label}: {then.verdict} ({numbers(then)})"
        if best is None:
            line += "; SGD fails at every rate there"
        elif best == PAPER_RATE:
            line += "; no other rate suits SGD better there"
        else:
            now = _compared(cells[metric, SMALL_BATCH, best])
            outcome = _explained(then, now, "a matter of the rate")
            line += f"; at the rate that suits SGD best there, {best:g}: {now.verdict} ({numbers(now)}); {outcome}"
        lines.append(line)
    return lines


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
    return f"the gain is more than {what}" if now.verdict == "better" else f"the gain is {what}"


def _compared(row: ArmResult) -> Comparison:
    assert row.comparison is not None
    return row.comparison
