"""Trials far from all others: named first, with the result without them beside, never instead."""

import statistics
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from riesz_lab.statistics import holm
from riesz_lab.sweeps import ArmResult, SweepResult

FAR = 8.0
"""Robust standard deviations from the median of its arm. With normal scores of independent arms (simulated), a trial
is named in 2% of comparisons of 2 or 3 arms with 5 seeds, and in 10% of those of 2 arms with 3 seeds."""
FAR_FROM_EQUAL = 0.1
"""Share of the median, where most scores are equal to theirs and there is no spread to compare with."""
LEAST_TRIALS = 6
"""Of all arms together: fewer do not show what is usual."""


@dataclass(frozen=True)
class Outlier:
    """A trial whose score is far from those of its arm; `low` and `high` are the others' range."""

    label: str
    seed: int
    key: Hashable
    score: float
    low: float
    high: float


def find_outliers(table: SweepResult) -> list[Outlier]:
    """Trials more than `FAR` robust standard deviations from their arm's median; the deviation is pooled over arms."""
    scores = {
        label: {key: score for key, score in row.scores.items() if score is not None}
        for label, row in table.rows.items()
    }
    middles = {label: statistics.median(each.values()) for label, each in scores.items() if len(each) > 2}
    distances = [abs(score - middles[label]) for label in middles for score in scores[label].values()]
    if len(distances) < LEAST_TRIALS:
        return []
    spread = 1.4826 * statistics.median(distances)
    found = []
    for label, middle in middles.items():
        far = FAR * spread or FAR_FROM_EQUAL * abs(middle)
        for key, score in scores[label].items():
            others = [each for other, each in scores[label].items() if other != key]
            if far > 0 and abs(score - middle) > far:
                seed = table.rows[label].trials[key].config.seed
                found.append(Outlier(label, seed, key, score, min(others), max(others)))
    return found


def without(table: SweepResult, outliers: list[Outlier], pairs: Mapping[str, int] | None = None) -> SweepResult:
    """The comparisons that an outlier takes part in, with all pairs of outlying trials left out; no other row.

    Args:
        table: the trials.
        outliers: those far from all others.
        pairs: by label, how many pairs an arm was judged by; all if None.
    """
    left_out = {(each.label, each.key) for each in outliers}
    rows: dict[str, ArmResult] = {}
    compared = table.comparisons
    for label, row in table.rows.items():
        if row.comparison is None or row.arm.baseline is None:
            continue
        base = table.rows[row.arm.baseline]
        judged = list(base.scores)[: pairs[label] if pairs else None]
        keys = {key for key in judged if (label, key) in left_out or (base.arm.label, key) in left_out}
        if keys:
            keys |= base.scores.keys() - judged
            before, after = _drop(base, keys), _drop(row, keys)
            compared[label] = table.paired(before.scores, after.scores, row.comparison.margin)
            # Each comparison with a baseline of its own: other arms may have other outliers.
            own = f"{base.arm.label} for {label}"
            rows[own] = replace(before, arm=replace(base.arm, label=own, baseline=None), comparison=None)
            rows[label] = replace(after, arm=replace(row.arm, baseline=own))
    # The same family of claims as in the whole table: those with outliers, and the others as they were.
    corrected = holm(compared, table.sweep.family)
    return replace(table, rows={label: replace(row, comparison=corrected.get(label)) for label, row in rows.items()})


def _drop(row: ArmResult, keys: set[Hashable]) -> ArmResult:
    return replace(row, scores={key: score for key, score in row.scores.items() if key not in keys})
