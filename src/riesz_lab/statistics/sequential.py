"""An anytime-valid paired t test: look after every pair, stop whenever a conclusion holds, keep the error rate.

Under a normal prior of variance g on the standardised effect, the likelihood ratio of Student's t of n differences is

    E_n = (1 + n g)^(-1/2) ((1 + t^2 / v) / (1 + t^2 / (v (1 + n g))))^((v + 1) / 2),    v = n - 1.

If the true mean is zero, E_n is a test martingale whatever the variance, so P(E_n >= 1 / alpha at any n) <= alpha
(Ville). The means that are not rejected are an interval. All intervals together cover the true mean with 1 - alpha:

    mean +- s sqrt(v x / n),    x = (c - 1) / (1 - c / r),    r = 1 + n g,    c = (r / alpha^2)^(1 / n),

and the interval is the whole line while c >= r. This holds for normal differences. It errs on the safe side for heavy
tails; skewed differences break it, as they break the usual t test (test_sequential.py has the table). Two arms whose
scores have one distribution have symmetric differences, so skew needs a method that does change something.

Legend: values_N, one difference per pair. Leading axes are allowed, so that a simulation is one call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use

from riesz_lab.statistics.estimate import Array
from riesz_lab.statistics.ties import describe_missing_ties, describe_ties
from riesz_lab.statistics.verdict import ALPHA, LEAST_PAIRS, Verdict
from riesz_lab.utils.amounts import count

PRIOR_VARIANCE = 3.0
"""g. Over 5 to 30 pairs, and alpha shared by one to four arms, 2 to 4 give the narrowest intervals on average (1.6 to
1.7 times that of a fixed number of pairs); of these, 3 is the least that can conclude from 4 pairs with two arms."""


def half_width(spread: Any, n: Any, alpha: float = ALPHA, g: float = PRIOR_VARIANCE) -> Any:
    """Half the width of the interval after n pairs with this standard deviation; infinite while nothing is excluded."""
    r = 1 + np.asarray(n, float) * g
    c = (r / alpha**2) ** (1 / np.asarray(n, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (c - 1) / (1 - c / r)
        return np.where(c < r, spread * np.sqrt(np.where(c < r, x, 0.0) * (1 - 1 / np.asarray(n, float))), np.inf)


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """What the pairs so far allow to conclude. Differences are method - baseline, in the unit of the scores."""

    differences: tuple[float, ...]  # one per pair that has one
    difference: float  # their mean
    spread: float  # their standard deviation
    # Of the mean, valid at every n at once; None with fewer than 3 pairs, or if all are equal.
    interval: tuple[float, float] | None
    alpha: float  # the error rate of this arm: 5% shared by all arms
    margin: float  # differences up to this do not matter
    diverged: tuple[int, int]  # pairs in which (only the baseline, only the method) diverged
    higher_is_better: bool  # whether a positive difference is a gain
    p_ties: float | None  # that the true difference is the margin or more, if all pairs are ties and scores fractions

    @property
    def n(self) -> int:
        """Pairs with a difference."""
        return len(self.differences)

    @property
    def degenerate(self) -> bool:
        """Whether all differences are equal: the true spread is unknown."""
        return self.n >= LEAST_PAIRS and self.interval is None

    @property
    def identical(self) -> bool:
        """Whether all differences are zero."""
        return self.degenerate and self.difference == 0

    @cached_property
    def verdict(self) -> Verdict:
        """better, worse, same (no difference larger than the margin) or undecided.

        An interval within the margin is "same" even where it excludes zero: such a difference does not matter. Pairs
        that diverged have no difference; nothing is claimed that leaving them out may have caused.
        """
        claim = self._claim()
        return Verdict.UNDECIDED if claim in self._withheld else claim

    @cached_property
    def reason(self) -> str:
        """What the verdict rests on, where that is something else than the interval and the margin; else empty."""
        if self.n < LEAST_PAIRS and not any(self.diverged):
            return f"{count(self.n, 'pair')}; at least {LEAST_PAIRS} are needed" if self.n else "no pairs of scores yet"
        if self.verdict == Verdict.UNDECIDED and any(self.diverged):
            baseline, method = self.diverged
            return f"trials diverged: the baseline alone in {count(baseline, 'pair')}, the method alone in {method}"
        if self.identical:
            if self._claim() == Verdict.SAME:
                return describe_ties(self.n)
            return describe_missing_ties(self.n, self.p_ties, self.alpha)
        return "all differences are equal" if self.degenerate else ""

    def _claim(self) -> Verdict:
        """What the differences allow to conclude, if no pair is without one."""
        if self.interval is None:
            enough = self.identical and self.p_ties is not None and self.p_ties < self.alpha
            return Verdict.SAME if enough else Verdict.UNDECIDED
        low, high = self.interval
        if -self.margin < low and high < self.margin:
            return Verdict.SAME
        if low <= 0 <= high:
            return Verdict.UNDECIDED
        return Verdict.BETTER if (low > 0) == self.higher_is_better else Verdict.WORSE

    @property
    def _withheld(self) -> set[Verdict]:
        """Leaving out failures flatters the side that failed."""
        baseline, method = self.diverged
        withheld = {Verdict.WORSE, Verdict.SAME} if baseline else set()
        return withheld | ({Verdict.BETTER, Verdict.SAME} if method else set())

    def futile(self, budget: int, run: int | None = None) -> bool:
        """Whether no verdict is to be expected by `budget` pairs, even if things go well.

        Well: the spread is at its lower 90% limit, and the mean moves by up to 1.6 standard errors of what is to come.
        Stopping for this reason never makes a false claim more likely.

        Args:
            budget: the most pairs.
            run: pairs so far, with those that have no difference; `n` if None.
        """
        run = self.n if run is None else run
        if self.verdict != Verdict.UNDECIDED or run < LEAST_PAIRS + 2:
            return False
        if self.n == 0 or budget <= run:
            return True
        if self.n < LEAST_PAIRS + 2 or not self.spread > 0:
            return False
        last = self.n + budget - run
        luck = self.spread * math.sqrt((self.n - 1) / scipy.stats.chi2.ppf(0.9, self.n - 1))
        width = float(half_width(luck, last, self.alpha))
        reach = 1.6 * self.spread * math.sqrt(1 / self.n - 1 / last)
        gain = self.difference if self.higher_is_better else -self.difference
        in_reach: dict[Verdict, bool] = {
            Verdict.BETTER: gain + reach >= width,
            Verdict.WORSE: -gain + reach >= width,
            Verdict.SAME: max(0.0, abs(gain) - reach) + width <= self.margin,
        }
        return not any(there for claim, there in in_reach.items() if claim not in self._withheld)


def sequential(
    differences: Sequence[float],
    *,
    margin: float,
    arms: int = 1,
    diverged: tuple[int, int] = (0, 0),
    higher_is_better: bool = True,
    rounding: float = 0.0,
    p_ties: float | None = None,
) -> Sequential:
    """Judge the differences so far.

    Args:
        differences: method - baseline, one per pair.
        margin: the largest difference that does not matter, in the unit of the scores.
        arms: how many arms share the 5% (Bonferroni): all that are compared, stopped or not.
        diverged: pairs without a difference, in which only the baseline, or only the method, diverged.
        higher_is_better: False for scores such as a loss.
        rounding: a difference up to this is zero.
        p_ties: if all pairs are ties, p of "the true difference is the margin or more"; None if unknown.

    Returns:
        The judgement.

    Example:
        >>> from riesz_lab.statistics.sequential import sequential
        >>> now = sequential([0.9, 1.2, 1.0, 1.1, 0.8, 1.0], margin=0.2)
        >>> now.verdict, [round(end, 2) for end in now.interval]
        (<Verdict.BETTER: 'better'>, [0.73, 1.27])
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"margin: expected a number above 0, in the unit of the scores, got {margin!r}")
    values_N = np.array(differences, float)
    values_N[np.abs(values_N) <= rounding] = 0.0
    n = len(values_N)
    mean = float(values_N.mean()) if n else math.nan
    spread = float(values_N.std(ddof=1)) if n > 1 else math.nan
    alpha = ALPHA / max(1, arms)
    interval = None
    if n >= LEAST_PAIRS and spread > rounding:
        half = float(half_width(spread, n, alpha))
        interval = (mean - half, mean + half)
    elif n >= LEAST_PAIRS:
        spread = 0.0
    return Sequential(
        differences=tuple(values_N.tolist()), difference=mean, spread=spread, interval=interval, alpha=alpha,
        margin=margin, diverged=diverged, higher_is_better=higher_is_better, p_ties=p_ties,
    )  # fmt: skip


SIMULATED = 2000
MOST_PAIRS = 2000


@lru_cache(maxsize=256)
def pairs_needed(effect: float, alpha: float = ALPHA, power: float = 0.8) -> int | None:
    """Pairs after which a true difference of `effect` standard deviations has been noticed, with this power.

    Found by simulation with looks after every pair; None beyond 2,000.
    """
    most = _first_guess(effect, alpha)
    while True:
        needed = float(np.quantile(first_exclusions(effect, alpha, most), power, method="higher"))
        if math.isfinite(needed):
            return int(needed)
        if most == MOST_PAIRS:
            return None
        most = min(2 * most, MOST_PAIRS)


def _first_guess(effect: float, alpha: float) -> int:
    """Pairs by which the power is likely beyond 80%: where the effect is 2 standard errors more than half the width.

    Not surely: of few pairs, the spread varies too.
    """
    counts = np.arange(LEAST_PAIRS, MOST_PAIRS + 1)
    enough = half_width(1.0, counts, alpha) + 2 / np.sqrt(counts) < effect
    return int(counts[enough][0]) if enough.any() else MOST_PAIRS


def first_exclusions(effect: float, alpha: float, most: int, sequences: int = SIMULATED) -> Array:
    """In how many pairs simulated sequences of normal differences exclude zero; infinite if not within `most`."""
    values = np.random.default_rng(0).normal(effect, 1.0, (sequences, most))
    counts = np.arange(1, most + 1)
    mean = values.cumsum(1) / counts
    spread = np.sqrt(np.maximum(0.0, (values**2).cumsum(1) - counts * mean**2) / np.maximum(1, counts - 1))
    out = np.abs(mean) > half_width(spread, counts, alpha)
    out[:, : LEAST_PAIRS - 1] = False
    return np.where(out.any(1), out.argmax(1) + 1.0, np.inf)


def decidable(n: int) -> int:
    """The most pairs that are advised after n: beyond, another margin is the better advice."""
    return max(500, 2 * n)


@lru_cache(maxsize=256)
def pairs_to_decide(n: int, effect: float, margin: float, alpha: float = ALPHA, power: float = 0.8) -> int | None:
    """Pairs in all after which a sequence that has n of them is decided, one way or the other, with this power.

    Found by simulation of what follows the n pairs, if the true mean and spread are theirs. None beyond `decidable(n)`.

    Args:
        n: pairs so far, 3 or more.
        effect, margin: their mean and the margin, in standard deviations of the n differences.
        alpha: the error rate.
        power: the share of simulated sequences that are decided by then.

    Example:
        >>> pairs_to_decide(20, 0.0, 1.0), pairs_to_decide(20, 0.0, 0.01)
        (21, None)
    """
    most = decidable(n)
    values = np.random.default_rng(0).normal(effect, 1.0, (SIMULATED, most - n))
    counts = np.arange(n + 1, most + 1)
    mean = (n * effect + values.cumsum(1)) / counts
    squares = n - 1 + n * effect**2 + (values**2).cumsum(1)
    half = half_width(np.sqrt(np.maximum(0.0, squares - counts * mean**2) / (counts - 1)), counts, alpha)
    decided = (np.abs(mean) > half) | (np.abs(mean) + half < margin)
    stops = np.where(decided.any(1), decided.argmax(1) + n + 1.0, np.inf)
    needed = float(np.quantile(stops, power, method="higher"))
    return int(needed) if math.isfinite(needed) else None
