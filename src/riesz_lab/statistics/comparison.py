"""A method against its baseline, pair by pair.

Cases that textbooks leave open:
1. A pair is two scores under one key. Keys that only one side has are left out and counted (`unpaired`).
2. A score that is None, NaN, infinite or beyond 1e100 is a trial that diverged: it counts as collapsed, and its pair
   has no difference. Since leaving out such pairs flatters whoever diverged, no claim is made in favour of a side that
   diverged where the other did not.
3. A finite score at or beyond `collapsed` counts as collapsed too, and stays among the differences.
4. Fewer than 3 differences: undecided, no interval, no p.
5. All differences zero, to rounding: no interval, no p. The same only if so many ties exclude the margin (see `ties`),
   else undecided. Of pairs that share seeds, the diagonal of their grid is independent, and counts.
6. All differences equal and not zero: their spread is unknown, so undecided, no interval, no p.
7. Keys that are (initialisation seed, data seed) and share seeds are not independent: the primary statistic is then
   that of the crossed design (see `estimate.crossed`), and the secondary ones that assume independence are None. Pairs
   outside of a full grid are left out of all of them.
8. Errors are the scores where lower is better, and 1 - score for fractions; other scores have no error to reduce.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from riesz_lab.statistics import secondary
from riesz_lab.statistics.estimate import Array, Estimate, crossed, independent
from riesz_lab.statistics.secondary import Interval
from riesz_lab.statistics.seeds import as_grid, grid
from riesz_lab.statistics.ties import describe_missing_ties, describe_ties, p_of_ties
from riesz_lab.statistics.verdict import (
    ALPHA,
    LEAST_PAIRS,
    Verdict,
    describe_p,
    format_difference,
    format_margin,
)
from riesz_lab.utils.amounts import count

Scores = Mapping[Hashable, float | None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A method against its baseline. Differences are method - baseline, in the unit of the scores."""

    n: int  # pairs with a difference; of a crossed design, those of its full grid
    unpaired: int  # keys that only one side has
    baseline_mean: float  # over the n pairs; NaN if there is none
    method_mean: float
    difference: float  # their mean difference
    interval: Interval | None  # its paired-t 95% interval
    p: float | None  # that the true difference is zero, two-sided
    p_holm: float | None = None  # the same, corrected for the number of comparisons in a table; None outside of one
    family: int = 1  # how many comparisons it was corrected for
    bootstrap: Interval | None  # BCa interval of the mean difference
    p_wilcoxon: float | None  # signed-rank test
    wins: int  # pairs in which the method is better, equal, worse
    ties: int
    losses: int
    error_reduced: float | None  # 100 (1 - error / baseline's error)
    error_interval: Interval | None  # its 95% interval, Fieller's
    detectable: float | None  # the smallest true difference that such pairs show with 80% power at 5%
    margin: float  # differences up to this do not matter
    # That the true difference is the margin or more (two one-sided tests; of ties alone, see `ties`). Below 5%, "no
    # difference larger than the margin" is claimed.
    p_margin: float | None
    p_margin_holm: float | None = None
    variance_ratio: float | None  # method's variance over baseline's
    p_variance: float | None  # Brown-Forsythe
    collapsed: tuple[int, int]  # trials of (baseline, method) that diverged or collapsed
    trials: int  # pairs of trials, with a difference or without
    diverged: tuple[int, int]  # pairs in which (only the baseline, only the method) diverged
    p_collapsed: float | None  # Fisher's exact test
    crossed: bool  # whether the pairs share seeds
    higher_is_better: bool  # how the scores are read
    percent: bool  # and printed

    @cached_property
    def verdict(self) -> Verdict:
        """better, worse, same (no difference larger than the margin) or undecided."""
        return self._judgement[0]

    @cached_property
    def reason(self) -> str:
        """What the verdict rests on, where that is something else than the interval and the margin; else empty."""
        return self._judgement[1]

    @cached_property
    def _judgement(self) -> tuple[Verdict, str]:
        p = self.p if self.p_holm is None else self.p_holm
        if self.n < LEAST_PAIRS and not any(self.diverged):
            few = f"{count(self.n, 'pair')}; at least {LEAST_PAIRS} are needed" if self.n else "no pairs of scores yet"
            return Verdict.UNDECIDED, few
        baseline, method = self.diverged
        gone = f"trials diverged: the baseline alone in {count(baseline, 'pair')}, the method alone in {method}"
        if self.p is None or p is None or self.n < LEAST_PAIRS:
            return (Verdict.UNDECIDED, gone) if any(self.diverged) else self._without_spread
        if p < ALPHA:
            gains = (self.difference > 0) == self.higher_is_better
            # Leaving out failures flatters the side that failed.
            if self.diverged[gains]:
                return Verdict.UNDECIDED, gone
            small = "by less than the margin" if self.equivalent else ""
            return (Verdict.BETTER if gains else Verdict.WORSE), small
        if self.equivalent:
            return (Verdict.UNDECIDED, gone) if any(self.diverged) else (Verdict.SAME, self._same_by_tests)
        if any(self.diverged):
            return Verdict.UNDECIDED, gone
        corrected = f"{describe_p(p)} after the correction for {self.family} comparisons"
        return Verdict.UNDECIDED, corrected if self.p < ALPHA else ""

    @property
    def identical(self) -> bool:
        """Whether all differences are zero."""
        return self.n >= LEAST_PAIRS and self.ties == self.n

    @property
    def _without_spread(self) -> tuple[Verdict, str]:
        if self.identical:
            if self.equivalent:
                return Verdict.SAME, describe_ties(self.n)
            return Verdict.UNDECIDED, describe_missing_ties(self.n, self.p_margin, ALPHA / self.family)
        if self.crossed:
            grid = "a full grid of initialisations and data orders, and some spread"
            return Verdict.UNDECIDED, f"pairs that share seeds need {grid}"
        return Verdict.UNDECIDED, f"the difference is the same in all {self.n} pairs, so its spread is unknown"

    @property
    def _same_by_tests(self) -> str:
        """Two one-sided tests at 5% are a 90% interval within the margin; the 95% interval may be wider."""
        if self.interval is None or max(map(abs, self.interval)) < self.margin:
            return ""
        p = self.p_margin if self.p_margin_holm is None else self.p_margin_holm
        return f"{describe_p(p or 0.0)} of two one-sided tests"

    @property
    def sentence(self) -> str:
        """The verdict in plain words, with its numbers."""
        unit = "points" if self.percent else ""
        within = f" (within {format_margin(self.margin, unit)})" if self.verdict == Verdict.SAME else ""
        size = [format_difference(self.difference, self.interval, unit)] if self.n else []
        size += [] if self.p is None else [describe_p(self.p)]
        remarks = [self.reason]
        if any(self.collapsed):
            baseline, method = self.collapsed
            fisher = "" if self.p_collapsed is None else f" (Fisher {describe_p(self.p_collapsed)})"
            remarks.append(f"collapsed or diverged: {method} of {self.trials} trials, baseline {baseline}{fisher}")
        if self.crossed and self.p is not None and self.n < self.trials:
            remarks.append(f"{self.n} of {self.trials} pairs form a full grid of seeds, the others are left out")
        if self.unpaired:
            remarks.append(f"left out, without a partner: {count(self.unpaired, 'trial')}")
        parts = [f"{self.verdict}{within}: {', '.join([*size, count(self.n, 'pair')])}", *filter(None, remarks)]
        return "; ".join(parts)

    @property
    def equivalent(self) -> bool:
        """Whether a difference of the margin or more is excluded."""
        p = self.p_margin if self.p_margin_holm is None else self.p_margin_holm
        return p is not None and p < 0.05


def paired(
    baseline: Scores,
    method: Scores,
    *,
    margin: float,
    higher_is_better: bool = True,
    percent: bool = True,
    collapsed: float | None = None,
) -> Comparison:
    """Compare scores by key (a seed, or a pair of seeds).

    Args:
        baseline, method: scores by key; None or NaN for a trial that diverged.
        margin: the largest difference that does not matter, in the unit of the scores.
        higher_is_better: False for scores such as FID.
        percent: the scores are fractions, printed in percentage points.
        collapsed: a score at this value or worse counts as collapsed; None if only divergence does.

    Returns:
        The comparison.

    Example:
        >>> from riesz_lab.statistics import paired
        >>> sgd = {0: 0.912, 1: 0.905, 2: 0.917, 3: 0.909}
        >>> directed = {0: 0.921, 1: 0.917, 2: 0.928, 3: 0.918}
        >>> print(paired(sgd, directed, margin=0.002).sentence)
        better: +1.02 (+0.79 to +1.26) points, p = 0.00085, 4 pairs
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"margin: expected a number above 0, in the unit of the scores, got {margin!r}")
    both = [key for key in baseline if key in method]
    base_all, method_all = (np.array([_number(side[key]) for key in both], dtype=float) for side in (baseline, method))
    there = np.isfinite(base_all) & np.isfinite(method_all)
    finite = int(there.sum())
    if cells := _cells([key for key, ok in zip(both, there, strict=True) if ok]):
        there &= np.array([key in cells for key in both])
    base_N, method_N = base_all[there], method_all[there]
    differences_N = method_N - base_N
    # A difference that rounding alone may cause, a few units in the last place of the scores, is none.
    rounding = 8 * float(np.finfo(float).eps) * float(np.abs([base_N, method_N]).max(initial=0.0))
    differences_N[np.abs(differences_N) <= rounding] = 0.0
    better_N = differences_N if higher_is_better else -differences_N

    pairs = [key for key, ok in zip(both, there, strict=True) if ok]
    estimate, shared = _estimate(dict(zip(pairs, differences_N, strict=True)))
    if estimate is not None and float(estimate.error) <= rounding:
        estimate = None
    p_margin = None if estimate is None else float(estimate.p_beyond(margin))
    if len(pairs) >= LEAST_PAIRS and not differences_N.any():
        rows, columns = grid(pairs) or (pairs, pairs)
        p_margin = p_of_ties(min(len(rows), len(columns)), margin, [base_N, method_N], percent)
    plain = estimate is not None and not shared
    reduced, reduced_interval = None, None
    if len(base_N) and (percent or not higher_is_better):
        errors = (1 - base_N, 1 - method_N) if higher_is_better else (base_N, method_N)
        reduced, reduced_interval = secondary.error_reduced(*errors)
    ratio, p_variance = secondary.spread(base_N, method_N)
    collapses = (_collapsed(base_all, collapsed, higher_is_better), _collapsed(method_all, collapsed, higher_is_better))
    return Comparison(
        n=len(differences_N),
        unpaired=len(set(baseline) ^ set(method)),
        baseline_mean=float(base_N.mean()) if len(base_N) else math.nan,
        method_mean=float(method_N.mean()) if len(method_N) else math.nan,
        difference=float(differences_N.mean()) if len(differences_N) else math.nan,
        interval=None if estimate is None else (float(estimate.interval()[0]), float(estimate.interval()[1])),
        p=None if estimate is None else float(estimate.p()),
        bootstrap=secondary.bootstrap_interval(differences_N) if plain else None,
        p_wilcoxon=secondary.wilcoxon_p(differences_N) if plain else None,
        wins=int((better_N > 0).sum()),
        ties=int((better_N == 0).sum()),
        losses=int((better_N < 0).sum()),
        error_reduced=reduced,
        error_interval=reduced_interval if plain else None,
        detectable=None if estimate is None else estimate.detectable(),
        margin=margin,
        p_margin=p_margin,
        variance_ratio=ratio,
        p_variance=None if shared else p_variance,
        collapsed=collapses,
        trials=len(both),
        diverged=(int(np.isfinite(method_all).sum()) - finite, int(np.isfinite(base_all).sum()) - finite),
        p_collapsed=secondary.fisher_p(collapses, len(both)) if any(collapses) else None,
        crossed=shared,
        higher_is_better=higher_is_better,
        percent=percent,
    )


def _cells(keys: list[Hashable]) -> set[Hashable]:
    """The pairs of the full grid, if pairs share seeds and there is one."""
    rows, columns = grid(keys) or ([], [])
    return set(product(rows, columns)) if min(len(rows), len(columns)) > 1 else set()


def _estimate(differences: dict[Hashable, float]) -> tuple[Estimate | None, bool]:
    """The primary statistic, if there are pairs enough, and whether they share seeds."""
    if (seeds := grid(list(differences))) is not None:
        return (crossed(as_grid(differences, *seeds)) if min(map(len, seeds)) > 1 else None), True
    enough = len(differences) >= LEAST_PAIRS
    return (independent(np.array(list(differences.values()))) if enough else None), False


def _collapsed(scores: Array, threshold: float | None, higher_is_better: bool) -> int:
    fallen = ~np.isfinite(scores)
    if threshold is not None:
        with np.errstate(invalid="ignore"):
            fallen |= scores <= threshold if higher_is_better else scores >= threshold
    return int(fallen.sum())


def _number(value: float | None) -> float:
    # A value whose square overflows is no score.
    return math.nan if value is None or not abs(value) < 1e100 else float(value)
