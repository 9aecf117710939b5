"""Secondary statistics of paired scores. Each is None where it is not defined."""

import warnings
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use

from riesz_lab.statistics.estimate import Array

Interval = tuple[float, float]


def bootstrap_interval(differences_N: Array) -> Interval | None:
    """BCa bootstrap interval of the mean; always with the same draws, so that a report is repeatable.

    With few pairs it is too narrow (it cannot know of values it has not seen): a check on the t interval's shape, not
    its replacement.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on degenerate data scipy warns and returns NaN, which becomes None here
        interval = scipy.stats.bootstrap((differences_N,), np.mean, method="BCa", rng=0).confidence_interval
    return _pair(interval.low, interval.high)


def wilcoxon_p(differences_N: Array) -> float | None:
    """Two-sided signed-rank test. Zero differences are left out; 1 if nothing is left."""
    if not differences_N.any():
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small samples with ties: scipy falls back to permutations and says so
        return _number(scipy.stats.wilcoxon(differences_N).pvalue)


def error_reduced(baseline_N: Array, method_N: Array) -> tuple[float | None, Interval | None]:
    """100 (1 - mean error / mean error of the baseline), as the paper has it, and Fieller's interval.

    Fieller's interval of a ratio of paired means holds r wherever the t interval of method - r baseline holds zero. So
    it excludes 0% exactly when the primary interval excludes zero. None if the baseline's error itself may be zero: the
    ratio is then unbounded.
    """
    base, mean = float(baseline_N.mean()), float(method_N.mean())
    if base <= 0:
        return None, None
    count = len(baseline_N)
    reduced = 100 * (1 - mean / base)
    if count < 2:
        return reduced, None
    squared = float(scipy.stats.t.ppf(0.975, count - 1)) ** 2 / count
    (var_base, both), (_, var_method) = np.cov(baseline_N, method_N)
    a, b, c = base**2 - squared * var_base, base * mean - squared * both, mean**2 - squared * var_method
    if a <= 0:
        return reduced, None
    root = np.sqrt(max(0.0, b**2 - a * c))
    return reduced, _pair(100 * (1 - (b + root) / a), 100 * (1 - (b - root) / a))


def spread(baseline_N: Array, method_N: Array) -> tuple[float | None, float | None]:
    """Variance of the method over that of the baseline, and the p of Brown and Forsythe that they are equal.

    The test takes the two samples as independent, which pairs are not.
    """
    if min(len(baseline_N), len(method_N)) < 3:
        return None, None
    base, method = float(baseline_N.var(ddof=1)), float(method_N.var(ddof=1))
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore")
        p = _number(scipy.stats.levene(baseline_N, method_N, center="median").pvalue)
    return (method / base if base > 0 else None), p


def fisher_p(collapsed: tuple[int, int], trials: int) -> float | None:
    """Fisher's exact test that collapse is as likely with baseline and method, of equally many trials each."""
    return (
        _number(scipy.stats.fisher_exact([[count, trials - count] for count in collapsed]).pvalue) if trials else None
    )


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _pair(low: Any, high: Any) -> Interval | None:
    return (float(low), float(high)) if np.isfinite(low) and np.isfinite(high) else None
