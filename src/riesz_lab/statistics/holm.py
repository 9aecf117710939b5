"""Holm's correction for the number of comparisons in a table.

The chance of any false claim stays below 5% for differences, and below 5% for equivalences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from riesz_lab.statistics.comparison import Comparison

Key = TypeVar("Key")


def adjusted(ps: Sequence[float | None]) -> list[float | None]:
    """Holm-adjusted p-values, in the order given.

    Undefined ones stay undefined and still count: the size of the family is a matter of the design, not of the data.

    Example:
        >>> from riesz_lab.statistics import adjusted
        >>> adjusted([0.01, 0.5, None, 0.02])
        [0.04, 1.0, None, 0.06]
    """
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted_ps: list[float | None] = [None] * len(ps)
    running = 0.0
    for rank, (p, i) in enumerate(order):
        running = max(running, min(1.0, (len(ps) - rank) * p))
        adjusted_ps[i] = running
    return adjusted_ps


def holm(comparisons: Mapping[Key, Comparison], family: int = 0) -> dict[Key, Comparison]:
    """The comparisons of one table, corrected for their number. Differences and equivalences are a family each.

    `family` is how many were planned, if these are only some of them.
    """
    unseen: list[float | None] = [None] * (family - len(comparisons))
    ps = adjusted([comparison.p for comparison in comparisons.values()] + unseen)
    margins = adjusted([comparison.p_margin for comparison in comparisons.values()] + unseen)
    return {
        key: replace(comparison, p_holm=ps[i], p_margin_holm=margins[i], family=len(comparisons) + len(unseen))
        for i, (key, comparison) in enumerate(comparisons.items())
    }
