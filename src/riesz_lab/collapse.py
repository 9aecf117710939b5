"""When a generator counts as collapsed. The paper counts such trials apart, and so do we.

A trial is judged at its end, by its last two evaluations, and needs two. It has collapsed if each of them shows one of

1. a score that is no number, or more than twice the best that any earlier evaluation of the trial reached (a Fréchet
   distance: less is better);
2. generated images whose features vary less than a tenth as much as those of the real ones (`diversity`).

Two, because one bad evaluation among good ones is common. The evaluation before the first step does not count: an
untrained generator is not a collapsed one.
"""

from __future__ import annotations

from typing import Any

WORSE = 2.0
LEAST_DIVERSITY = 0.1


def collapsed(history: list[dict[str, Any]], score: str) -> str | None:
    """The reason, or None.

    Example:
        >>> rows = [{"step": i + 1, "fid_proxy": f, "diversity": 1.0} for i, f in enumerate([9.0, 5.0, 30.0, 40.0])]
        >>> collapsed(rows, "fid_proxy")
        'at its end the fid_proxy was 40, after 5 at its best'
        >>> collapsed(rows[:3], "fid_proxy") is None
        True
    """
    rows = [row for row in history if score in row and row["step"]]
    if len(rows) < 2:
        return None
    reasons = [_reason(rows[:-1], rows[-2], score), _reason(rows, rows[-1], score)]
    return reasons[-1] if all(reasons) else None


def _reason(until: list[dict[str, Any]], row: dict[str, Any], score: str) -> str | None:
    value = row[score]
    if value is None:
        return f"at its end the {score} was no number"
    best = min(other[score] for other in until if other[score] is not None)
    if value > WORSE * best:
        return f"at its end the {score} was {value:.4g}, after {best:.4g} at its best"
    if row["diversity"] is None or row["diversity"] < LEAST_DIVERSITY:
        return f"at its end the generated images were all alike: diversity {row['diversity']}, least {LEAST_DIVERSITY}"
    return None
