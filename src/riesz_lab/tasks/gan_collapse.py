"""When a generator counts as collapsed. As in the paper, such trials are counted apart.

A trial is judged at its end, by its last two evaluations, and needs two. It has collapsed if each of them shows one of

1. a score (a Fréchet distance: less is better) that is not finite; or that is more than twice the best of any earlier
   evaluation and, where it was measured, more than a quarter of what the untrained generator scored;
2. generated images whose features vary less than a tenth as much as those of the real ones (`diversity`).

Two, because one bad evaluation among good ones is common. The evaluation before the first step does not count: an
untrained generator is not a collapsed one.
"""

from typing import Any

WORSE = 2.0
LEAST_DIVERSITY = 0.1
UNTRAINED = 0.25


def collapsed(history: list[dict[str, Any]], score: str) -> str | None:
    """The reason, or None.

    Example:
        >>> rows = [{"step": i, "fid_proxy": f, "diversity": 1.0} for i, f in enumerate([90.0, 9.0, 5.0, 30.0, 40.0])]
        >>> collapsed(rows, "fid_proxy")
        'at its end the fid_proxy was 40, after 5 at its best'
        >>> collapsed(rows[:4], "fid_proxy") is None
        True
    """
    scored = [row for row in history if score in row]
    rows = [row for row in scored if row["step"]]
    if len(rows) < 2:
        return None
    untrained = next((row[score] for row in scored if not row["step"]), None) or 0.0
    reasons = [_reason(rows[:end], score, UNTRAINED * untrained) for end in (-1, len(rows))]
    return reasons[-1] if all(reasons) else None


def _reason(rows: list[dict[str, Any]], score: str, bearable: float) -> str | None:
    """What is wrong with the last row, judged by those before it."""
    value, diversity = rows[-1][score], rows[-1]["diversity"]
    if value is None:
        return f"at its end the {score} was no number"
    best = min(row[score] for row in rows if row[score] is not None)
    if value > max(WORSE * best, bearable):
        return f"at its end the {score} was {value:.4g}, after {best:.4g} at its best"
    if diversity is None or diversity < LEAST_DIVERSITY:
        return f"at its end the generated images were all alike: diversity {diversity}, least {LEAST_DIVERSITY}"
    return None
