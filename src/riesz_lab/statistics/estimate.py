"""The primary statistic: a mean difference, its standard error and their degrees of freedom; all else follows.

Legend: values_N, one difference per pair; values_IJ, one per initialisation seed and data seed. Leading axes are
allowed everywhere, so that a simulation is one call.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with its uncertainty."""

    mean: Any  # of the differences
    error: Any  # the mean's standard error; zero where the differences have no spread
    freedom: Any  # degrees of freedom of that error

    def interval(self) -> tuple[Any, Any]:
        """The 95% t interval of the true mean."""
        half = scipy.stats.t.ppf(0.975, self.freedom) * self.error
        return self.mean - half, self.mean + half

    def p(self) -> Any:
        """Two-sided p of "the true mean is zero". NaN without spread: there is nothing to judge chance by."""
        return 2 * scipy.stats.t.sf(np.abs(self._ratio(self.mean)), self.freedom)

    def p_beyond(self, margin: float) -> Any:
        """p of "the true mean is `margin` or more away from zero": two one-sided tests (TOST), the larger p."""
        above = scipy.stats.t.sf(self._ratio(self.mean + margin), self.freedom)
        below = scipy.stats.t.cdf(self._ratio(self.mean - margin), self.freedom)
        return np.maximum(above, below)

    def detectable(self) -> float:
        """The smallest true mean that a test at 5% shows with 80% power, if the spread is as observed."""
        return float(self.error) * _noncentrality(float(self.freedom))

    def _ratio(self, value: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.asarray(self.error) > 0, np.divide(value, self.error), np.nan)


def independent(values_N: Array) -> Estimate:
    """Of independent differences: Student's paired t."""
    count = values_N.shape[-1]
    return Estimate(values_N.mean(-1), values_N.std(-1, ddof=1) / np.sqrt(count), count - 1)


def crossed(values_IJ: Array) -> Estimate:
    """Of a full grid of initialisation seeds and data seeds, where cells of one row or column are not independent.

    With d_ij = mu + a_i + b_j + e_ij, the variance of the grand mean is (MS_I + MS_J - MS_E) / (I J), by the mean
    squares of the two-way layout; its degrees of freedom are Satterthwaite's. Where chance makes that variance smaller
    than the largest of the three mean squares would, the largest is taken: on the safe side.
    """
    rows, columns = values_IJ.shape[-2:]
    grand = values_IJ.mean((-2, -1))
    by_row = values_IJ.mean(-1) - grand[..., None]
    by_column = values_IJ.mean(-2) - grand[..., None]
    rest = values_IJ - grand[..., None, None] - by_row[..., :, None] - by_column[..., None, :]
    free = (rows - 1, columns - 1, (rows - 1) * (columns - 1))
    squares = (
        columns * (by_row**2).sum(-1) / free[0],
        rows * (by_column**2).sum(-1) / free[1],
        (rest**2).sum((-2, -1)) / free[2],
    )
    total = squares[0] + squares[1] - squares[2]
    largest = np.maximum.reduce(squares)
    plain = total > largest
    with np.errstate(divide="ignore", invalid="ignore"):
        satterthwaite = total**2 / sum(square**2 / count for square, count in zip(squares, free, strict=True))
    which = np.argmax(np.stack(np.broadcast_arrays(*squares)), 0)
    freedom = np.where(plain, satterthwaite, np.asarray(free, float)[which])
    return Estimate(grand, np.sqrt(np.where(plain, total, largest) / (rows * columns)), freedom)


@lru_cache
def _noncentrality(freedom: float) -> float:
    critical = scipy.stats.t.ppf(0.975, freedom)
    # The other tail adds less than 1e-3 to the power wherever it is near 80%; leaving it out errs on the safe side.
    return float(
        scipy.optimize.brentq(lambda shift: scipy.stats.nct.sf(critical, freedom, shift) - 0.8, 0.0, 10 * critical + 10)
    )
