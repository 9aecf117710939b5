"""Correlation between the filters of a layer by their distance |i - j|, in their own and in random order.

Definitions, for a weight seen along one axis as n filters w_i of m numbers each (all other indices):

- correlation c_ij: Pearson's, between w_i and w_j over their m numbers;
- curve(d): the mean of c_ij over all pairs with |i - j| = d;
- level: the mean of c_ij over all pairs: what filters have in common in any order (stripes);
- order: curve(1) - level: what neighbours have in common beyond that. A Sobolev metric, which smooths from neighbour to
  neighbour, assumes this regularity; a shuffled network does not have it;
- spectrum(k): the mean over columns of |FFT of the column along the axis|^2 at frequency k, as a share of the total.

Control: the same with the n filters in random order. The band is the middle 95% of shuffled curves; p is the share of
orders, the true one included, whose curve(1) is at least as large. Intervals of curve and level are Student's, of a
mean over clusters of the m numbers (the channels of the other axis; single numbers if those are few), with the
normalisation of the filters taken as given.

Everything follows from the n x n matrices of products: an order costs n^2, and curve(1) of an order only n.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

ORDERS = 9_999
"""Random orders for p."""
BAND_ORDERS = 199
"""Random orders for the band."""
MIN_FILTERS = 8
"""Filters along an axis; with fewer, a curve has no meaning."""
MAX_FILTERS = 2048
"""Filters along an axis; of more, the first are taken."""


@dataclass(frozen=True)
class Regularity:
    """The regularity along one axis."""

    n: int  # number of filters
    curve_D: Array  # mean correlation at distance 1..n-1
    error_D: Array  # the half width of its 95% interval
    band_2D: Array  # lower and upper end of the shuffled curves' band
    level: float  # mean correlation of all pairs
    level_error: float  # the half width of its 95% interval
    level_p: float  # that the true level is zero, two-sided, by the same t distribution
    order: float  # curve(1) - level
    p: float  # of curve(1) under random orders, one-sided: the method assumes that neighbours are alike
    spectrum_F: Array  # share of the power at frequency 0..n//2
    spectrum_band_2F: Array  # the band of the shuffled ones


def correlation_curve(weight_NCK: Array, order: Callable[[int], NDArray[np.int64]] | None = None) -> Array | None:
    """curve(d) alone, d = 1..n-1, for filters along the first axis; `order` gives n filters another order.

    Returns:
        None where `regularity` has none.
    """
    unit_NCK = _unit(weight_NCK)
    if unit_NCK is None:
        return None
    if order is not None:
        unit_NCK = unit_NCK[order(len(unit_NCK))]
    return _curve(unit_NCK.reshape(1, len(unit_NCK), -1))[0]


def regularity(weight_NCK: Array, seed: int = 0) -> Regularity | None:
    """The regularity of filters along the first axis; clusters are along the second.

    Returns:
        None where there are fewer than `MIN_FILTERS` filters or numbers in each, or not two filters vary.
    """
    unit_NCK = _unit(weight_NCK)
    if unit_NCK is None:
        return None
    n = len(unit_NCK)
    flat_NM = unit_NCK.reshape(n, -1)
    correlation_NN = flat_NM @ flat_NM.T
    clusters_CNK = unit_NCK.transpose(1, 0, 2)
    if len(clusters_CNK) < MIN_FILTERS:
        clusters_CNK = flat_NM.T[:, :, None]
    curve_D, error_D, level, level_error, level_p = _curve(clusters_CNK)
    rng = np.random.default_rng([seed, n])
    orders_PN = rng.permuted(np.tile(np.arange(n, dtype=np.int32), (BAND_ORDERS, 1)), axis=1)
    weight_NCK = np.asarray(weight_NCK[:n], dtype=np.float64)
    weights_NN = weight_NCK.reshape(n, -1) @ weight_NCK.reshape(n, -1).T
    shuffled_PD = np.stack([_by_distance(correlation_NN[np.ix_(order, order)]) for order in orders_PN])
    spectra_PF = np.stack([_spectrum(weights_NN[np.ix_(order, order)]) for order in orders_PN])
    return Regularity(
        n=n,
        curve_D=curve_D,
        error_D=error_D,
        band_2D=np.quantile(shuffled_PD, (0.025, 0.975), axis=0),
        level=level,
        level_error=level_error,
        level_p=level_p,
        order=float(curve_D[0] - level),
        p=_p(correlation_NN, float(curve_D[0]), rng),
        spectrum_F=_spectrum(weights_NN),
        spectrum_band_2F=np.quantile(spectra_PF, (0.025, 0.975), axis=0),
    )


def _unit(weight_NCK: Array) -> Array | None:
    """Each filter without its mean and with norm 1, so that products are correlations; constant ones are 0."""
    weight_NCK = np.asarray(weight_NCK[:MAX_FILTERS], dtype=np.float64)
    if min(len(weight_NCK), weight_NCK[:1].size) < MIN_FILTERS or not np.isfinite(weight_NCK).all():
        return None
    centred = weight_NCK - weight_NCK.mean((1, 2), keepdims=True)
    norm = np.sqrt(np.square(centred).sum((1, 2), keepdims=True))
    # Subtracting the mean of a constant filter leaves rounding errors, which are not a pattern.
    constant = norm <= 1e-7 * np.abs(weight_NCK).max((1, 2), keepdims=True) * np.sqrt(weight_NCK[0].size)
    unit_NCK = np.where(constant, 0.0, centred / np.where(constant, 1.0, norm))
    return unit_NCK if np.count_nonzero(np.abs(unit_NCK).sum((1, 2))) >= 2 else None


def _curve(clusters_CNK: Array) -> tuple[Array, Array, float, float, float]:
    """Curve and level as sums over clusters, each with the half width of its 95% interval; and the level's p."""
    count, n, _ = clusters_CNK.shape
    pairs_D = np.arange(n - 1, 0, -1)
    size = 1 << (2 * n - 1).bit_length()  # long enough that the ends do not meet
    power_CF = np.square(np.abs(np.fft.rfft(clusters_CNK, size, axis=1))).sum(2)
    sums_CD = np.fft.irfft(power_CF, size, axis=1)[:, 1:n]
    share_CD = sums_CD / pairs_D
    share_C = sums_CD.sum(1) / pairs_D.sum()
    if count == 1:
        return share_CD[0], np.zeros(n - 1), float(share_C[0]), 0.0, 1.0
    critical = float(stats.t.ppf(0.975, count - 1))
    error_D, error = (np.sqrt(count) * share.std(0, ddof=1) for share in (share_CD, share_C))
    level = float(share_C.sum())
    p = 2 * float(stats.t.sf(abs(level) / error, count - 1)) if error > 0 else 1.0
    return share_CD.sum(0), critical * error_D, level, float(critical * error), p


def _by_distance(correlation_NN: Array) -> Array:
    """The mean of a symmetric matrix over each of its upper diagonals."""
    n = len(correlation_NN)
    return _circular_sums(np.triu(correlation_NN, 1))[1:] / np.arange(n - 1, 0, -1)


def _spectrum(products_NN: Array) -> Array:
    """Share of the power at each frequency, from the products of the filters: the sum over columns of |FFT|^2 is the
    FFT of the products' circular diagonals."""
    n = len(products_NN)
    power_F = np.fft.rfft(_circular_sums(products_NN)).real.clip(0)
    power_F[1 : (n + 1) // 2] *= 2  # each stands for a pair of conjugate frequencies
    return np.asarray(power_F / power_F.sum())


def _circular_sums(square_NN: Array) -> Array:
    """The sum of a matrix over i of [i, (i + d) mod n], for d = 0..n-1."""
    n = len(square_NN)
    # A row twice side by side, read with one step more per row, has each circular diagonal in a column.
    doubled = np.ascontiguousarray(np.concatenate([square_NN, square_NN], axis=1))
    step = doubled.itemsize
    return np.asarray(np.lib.stride_tricks.as_strided(doubled, (n, n), ((2 * n + 1) * step, step)).sum(0))


def _p(correlation_NN: Array, observed: float, rng: np.random.Generator) -> float:
    n = len(correlation_NN)
    at_least = 0
    for start in range(0, ORDERS, 1000):
        count = min(1000, ORDERS - start)
        orders = rng.permuted(np.tile(np.arange(n, dtype=np.int32), (count, 1)), axis=1)
        # Rounding must not decide between orders that are equal.
        at_least += int((correlation_NN[orders[:, :-1], orders[:, 1:]].mean(1) >= observed - 1e-12).sum())
    return (at_least + 1) / (ORDERS + 1)
