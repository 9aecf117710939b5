"""Comparisons in few words, for the cells of a table: better, worse, equal within the margin, undecided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from riesz_lab.statistics import Comparison
from riesz_lab.statistics.verdict import Claim, format_signed
from riesz_lab.sweeps import ArmResult


def points(difference: float) -> str:
    """In points, with its sign; zero, up to rounding, has none of its own."""
    return format_signed(round(difference, 9), percent=True)


def interval(comparison: Comparison) -> str:
    return "" if comparison.interval is None else " to ".join(map(points, comparison.interval))


def numbers(comparison: Comparison, failures: bool = True, detectable: bool = True) -> str:
    """The difference in points with its interval; what would have shown, if nothing did; and what failed."""
    parts = [points(comparison.difference) if comparison.n else "no pair of scores"]
    if comparison.interval is not None:
        parts[0] += f", {interval(comparison)}"
    if detectable and comparison.verdict == "no evidence" and comparison.detectable is not None:
        parts.append(f"detectable alone: {100 * comparison.detectable:.2f}")
    if failures and any(comparison.collapsed):
        baseline, method = comparison.collapsed
        parts.append(f"failed: {method} of {comparison.trials}, of the baseline's {baseline}")
    return "; ".join(parts)


def said(comparison: Comparison) -> str:
    """The verdict in the page's words."""
    return _word(comparison) + if_small(comparison)


def _word(comparison: Comparison) -> str:
    words = {"no difference": f"equal within {_margin(comparison)}", "no evidence": "undecided"}
    return words.get(comparison.verdict, comparison.verdict)


def if_small(comparison: Comparison) -> str:
    """What is added to "better" and "worse" where a difference of the margin or more is excluded."""
    small = comparison.verdict in ("better", "worse") and comparison.equivalent
    return f", yet by no more than {_margin(comparison)}" if small else ""


def _margin(comparison: Comparison) -> str:
    return f"{100 * comparison.margin:.1f} points"


def count_verdicts(rows: Iterable[ArmResult]) -> str:
    """How many came out which way, also if none is better: for example "0 of 6 comparisons better, 6 undecided"."""
    comparisons = [row.comparison for row in rows if row.comparison]
    better = [one for one in comparisons if one.verdict == "better"]
    parts = [f"{len(better)} of {len(comparisons)} comparisons better{_of_them(better)}"]
    for verdict in get_args(Claim)[1:]:
        if found := [one for one in comparisons if one.verdict == verdict]:
            parts.append(f"{len(found)} {_word(found[0])}{_of_them(found)}")
    return ", ".join(parts)


def _of_them(comparisons: list[Comparison]) -> str:
    small = [one for one in comparisons if if_small(one)]
    return f" ({len(small)} of them by no more than {_margin(small[0])})" if small else ""
