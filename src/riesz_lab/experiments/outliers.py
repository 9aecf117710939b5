"""Trials far from all others: named first, with the result without them beside, never instead."""

import statistics
from collections.abc import Hashable
from dataclasses import dataclass

from riesz_lab.experiments.result import Result
from riesz_lab.experiments.stopping import Judged, look_at_pairs
from riesz_lab.statistics import Comparison, holm, paired

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


def find_outliers(result: Result) -> list[Outlier]:
    """Trials more than `FAR` robust standard deviations from their arm's median; the deviation is pooled over arms."""
    scores = {
        label: {key: score for key, score in row.scores.items() if score is not None}
        for label, row in result.arms.items()
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
                seed = result.arms[label].trials[key].config.seed
                found.append(Outlier(label, seed, key, score, min(others), max(others)))
    return found


def without(result: Result, outliers: list[Outlier]) -> dict[str, Judged]:
    """The comparisons that an outlier takes part in, with all pairs of outlying trials left out; by label."""
    left_out = {(each.label, each.key) for each in outliers}
    judged: dict[str, Judged] = {}
    for label, arm in result.compared.items():
        assert arm.judgement is not None
        assert arm.arm.baseline is not None
        base = arm.arm.baseline
        # The store may hold pairs beyond those that an arm was judged by.
        baseline = dict(list(result.arms[base].scores.items())[: arm.judgement.pairs])
        keys = {key for key in baseline if (label, key) in left_out or (base, key) in left_out}
        if not keys:
            continue
        kept = {key: score for key, score in baseline.items() if key not in keys}
        margin, score = arm.judgement.judged.margin, result.score
        if result.sequential:
            judged[label] = look_at_pairs(kept, arm.scores, margin, score, arms=result.experiment.comparisons)
        else:
            method = {key: each for key, each in arm.scores.items() if key not in keys}
            options = {"higher_is_better": score.higher_is_better, "percent": score.percent}
            judged[label] = paired(kept, method, margin=margin, collapsed=result.experiment.collapsed, **options)
    if result.sequential:
        return judged
    # The same family of claims as in the whole table: those with outliers, and the others as they were.
    fixed = {label: each for label, each in judged.items() if isinstance(each, Comparison)}
    corrected = holm({**result.comparisons, **fixed}, result.experiment.comparisons)
    return {label: corrected[label] for label in judged}
