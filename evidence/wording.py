"""Comparisons in few words, for the cells of a table: better, worse, equal within the margin, undecided."""

from __future__ import annotations

import statistics
from collections import Counter
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


def said(comparison: Comparison) -> str:
    """The verdict in the page's words."""
    margin = f"{100 * comparison.margin:.1f} points"
    words = {"no difference": f"equal within {margin}", "no evidence": "undecided"}
    return words.get(comparison.verdict, comparison.verdict) + if_small(comparison)


def if_small(comparison: Comparison) -> str:
    """What is added to "better" and "worse" where a difference of the margin or more is excluded."""
    small = comparison.verdict in ("better", "worse") and comparison.equivalent
    return f", yet by no more than {100 * comparison.margin:.1f} points" if small else ""


ORDER = ("better", "worse", "equal", "undecided")
"""In which verdicts are counted; others come last."""


def count_verdicts(rows: Iterable[ArmResult]) -> str:
    """How many came out which way, also if none is better: for example "of 6 comparisons 0 are better, 6 undecided"."""
    counts = Counter(said(row.comparison) for row in rows if row.comparison)
    total = counts.total()
    counts["better"] += 0
    rank = {word: next((i for i, start in enumerate(ORDER) if word.startswith(start)), len(ORDER)) for word in counts}
    first, *others = sorted(counts, key=lambda word: (rank[word], word))
    listed = "".join(f", {counts[word]} {word}" for word in others)
    return f"of {total} comparisons {counts[first]} are {first}{listed}"


def train_accuracy(row: ArmResult) -> float | None:
    """The mean accuracy on training images in the last epoch, as seen while training."""
    results = (trial.result for trial in row.trials.values() if trial.status == "finished")
    known = [one.last["train_accuracy"] for one in results if one and one.last and "train_accuracy" in one.last]
    return statistics.fmean(known) if known else None
