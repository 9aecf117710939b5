"""Comparisons in few words, for the cells of a table."""

from __future__ import annotations

from collections.abc import Iterable

from riesz_lab.statistics import Comparison
from riesz_lab.statistics.verdict import format_signed
from riesz_lab.sweeps import ArmResult, SweepResult


def metrics(table: SweepResult) -> Iterable[ArmResult]:
    """The rows that are compared and have a metric; SGD at another rate is none."""
    return (row for row in table.rows.values() if row.comparison is not None and row.arm.config.metric != "identity")


def points(difference: float) -> str:
    """In points, with its sign; zero, up to rounding, has none of its own."""
    return format_signed(round(difference, 9), percent=True)


def interval(comparison: Comparison) -> str:
    return "" if comparison.interval is None else " to ".join(map(points, comparison.interval))


def numbers(comparison: Comparison, failures: bool = True) -> str:
    """The difference in points with its interval; what would have shown, if nothing did; and what failed."""
    parts = [points(comparison.difference) if comparison.n else "no pair of scores"]
    if comparison.interval is not None:
        parts[0] += f", {interval(comparison)}"
    if comparison.verdict == "no evidence" and comparison.detectable is not None:
        parts.append(f"one test alone detects {100 * comparison.detectable:.2f}")
    if failures and any(comparison.collapsed):
        baseline, method = comparison.collapsed
        parts.append(f"failed: {method} of {comparison.trials}, of the baseline's {baseline}")
    return "; ".join(parts)


def count_verdicts(rows: Iterable[ArmResult]) -> str:
    """How many came out which way."""
    verdicts = [row.comparison.verdict for row in rows if row.comparison]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)) or "none yet"
