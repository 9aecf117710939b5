"""Comparisons in few words, for the cells of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from riesz_lab.statistics import Comparison
from riesz_lab.statistics.verdict import Verdict, format_signed
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


SAID: dict[Verdict, tuple[str, str]] = {
    "better": ("is better", "are better"),
    "worse": ("is worse", "are worse"),
    "no difference": ("is equal within the margin", "are equal within the margin"),
    "no evidence": ("shows no evidence of a difference", "show no evidence of a difference"),
    "identical": ("is identical", "are identical"),
    "no claim": ("allows no claim", "allow no claim"),
}
"""What a sentence says of one setting, and of several, with a verdict."""


def count_verdicts(rows: Iterable[ArmResult]) -> str:
    """How many came out which way, in words that end a sentence."""
    counts = Counter(row.comparison.verdict for row in rows if row.comparison)
    parts = [f"{n} {SAID[verdict][n > 1]}" for verdict, n in counts.items()]
    if not parts:
        return "no setting is decided"
    parts[0] = parts[0].replace(" ", f" of {counts.total()} settings ", 1)
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
