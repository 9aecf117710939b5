"""What equal scores say about the mean difference. That they were equal so far is no proof that they always are.

Trials that succeed in 0% and in 10% of cases give three ties in a row in 73% of sequences. So bound the share q of
pairs that differ: n ties in a row have the chance (1 - q)^n, and since fractions differ by 1 at most, a mean difference
of `margin` takes q >= margin. Hence

    p = (1 - margin)^n    that the mean difference is the margin or more.

It holds with a look after every pair: only one number of ties is the first with p < alpha.
"""

import math
from typing import Any

import numpy as np


def p_of_ties(n: int, margin: float, scores: Any, percent: bool) -> float | None:
    """p of "the mean difference is the margin or more" after n independent ties and no other pair.

    Args:
        n: ties.
        margin: the largest difference that does not matter.
        scores: all of them.
        percent: they are fractions.

    Returns:
        p; None for scores without known bounds, of which no number of ties excludes a difference.

    Example:
        >>> [p_of_ties(n, 0.02, [0.0], percent=True) < 0.05 for n in (148, 149)]
        [False, True]
    """
    values = np.asarray(scores, float)
    bounded = percent and bool(np.all((values >= 0) & (values <= 1)))
    return max(0.0, 1 - margin) ** n if bounded else None


def describe_ties(pairs: int) -> str:
    return f"identical scores in all {pairs} pairs"


def describe_missing_ties(pairs: int, p: float | None, alpha: float) -> str:
    """Why so many ties decide nothing, by the p that they have and the one that decides."""
    if p is None:
        return f"{describe_ties(pairs)}: a score without spread or known bounds excludes no difference"
    needed = pairs * math.log(alpha) / math.log(p) if p < 1 else math.inf
    many = f"{math.ceil(needed):,}" if needed < 1e6 else "more than a million"
    return f"{describe_ties(pairs)}: a score without spread takes {many} of them to exclude the margin"
