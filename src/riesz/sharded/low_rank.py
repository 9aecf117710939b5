"""What a shard needs of the others: off its diagonal, A has rank two or three.

Split an axis into runs. The block of A that takes run r to another run k is smooth in both indices: the kernel is a
parabola (SobolevTilde) or a sum of two exponentials (Sobolev, LaplacianSmoothing) of the distance. So it factors,

    A[k, r] = scale * V_k X_kr U_r,        U_r of shape (K, rows of r), V_k of shape (rows of k, K), K = 3 or 2,

and so does the difference between the block of a run with itself and the *same metric solved on that run alone*, made
periodic there. A rank therefore solves its own runs with the ordinary kernels, sends the K sums `U_r f` of each column,
and adds `V_k X_kr` times the sums of every run r. Exact: no iteration, no truncation.

Shape suffixes: K terms, L rows of a run, R runs of one column. Everything is float64.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from riesz.metrics import LaplacianSmoothing, Metric, Operator
from riesz.sharded.layout import Run

AnyOperator = TypeVar("AnyOperator", bound=Operator)

LONG = 256
"""Columns of SobolevTilde beyond this length send all their terms in float64. Measured on columns near the highest
frequency, without blend, on 2 to 8 ranks, as a part of the largest entry: with float32, 2.6e-6 at 256, 5.4e-6 at 512,
4e-5 at 4,096 and 8e-4 at 65,536; with float64, 4e-9 at 4,096 and 1e-6 at 65,536.
"""


@dataclass(frozen=True)
class Parabola:
    """SobolevTilde along an axis of length n.

    With m = lam n^2, the kernel at distance d is `(mean_factor + ((n^2 - 1)/12 - d (n - d)/2) / m) / n`. On a run, with
    u the row counted from its middle in units of n, the terms are 1, u and u^2 - mean(u^2). The last two do not depend
    on the run's mean, so they may be sent in float32 while the sum, which decides the mean, is sent in float64. But
    what they add cancels against the run's own solution where frequencies are high, the more the longer the column is:
    see `LONG`.
    """

    n: int
    lam: float
    mean_factor: float

    terms = 3

    @property
    def exact(self) -> int:
        """How many of the terms, from the first, must be sent in float64."""
        return 1 if self.n <= LONG else self.terms

    def alone(self, metric: Operator, length: int) -> Operator:
        """The metric that a run solves by itself: the same m on its own length."""
        strength = self.lam * (self.n / length) ** 2
        return _with(metric, riemann=False, **{str(metric.strength_field): strength})

    def sums(self, length: int) -> Tensor:
        u_L = _from_middle(length) / self.n
        return torch.stack([torch.ones_like(u_L), u_L, u_L**2 - self._spread(length)])

    def basis(self, length: int) -> Tensor:
        return self.sums(length).mT

    def coupling(self, run: Run, other: Run) -> Tensor:
        """X: what one sum of the other run adds to each term of this run."""
        # The kernel as p0 + p1 t + p2 t^2 in t = d / n.
        m = self.lam * self.n**2
        p0 = (self.mean_factor + (self.n**2 - 1) / (12 * m)) / self.n
        p1, p2 = -self.n / (2 * m), self.n / (2 * m)
        t = (_middle(run) - _middle(other)) / self.n
        if run == other:
            # The kernel of the run alone is taken off; the terms in |d| are the same in both and cancel.
            length = run.length
            p0 -= (1 + (length**2 - 1) / (12 * m)) / length
            p1, p2 = 0.0, p2 - self.n**2 / (2 * m * length)
        elif t < 0:
            t += 1
        # t + u - v in place of d / n, sorted by powers of u (rows) and v (columns); then u^2 = term + spread.
        slope = p1 + 2 * p2 * t
        x_KK = torch.tensor(
            [[p0 + p1 * t + p2 * t**2, -slope, p2], [slope, -2 * p2, 0.0], [p2, 0.0, 0.0]], dtype=torch.float64
        )
        x_KK[0, 0] += p2 * (self._spread(run.length) + self._spread(other.length))
        return x_KK

    def _spread(self, length: int) -> float:
        return (length**2 - 1) / (12 * self.n**2)


@dataclass(frozen=True)
class Exponentials:
    """Sobolev and LaplacianSmoothing, `g - sigma D g = f`, along an axis of length n.

    The kernel at distance d is `(z^d + z^(n-d)) / ((1 - z^n) sqrt(1 + 4 sigma))`, log z = -2 asinh(1/(2 sqrt(sigma))).
    The sums of a run are the ends of the two recursions, forward and backward; the terms decay from its two edges.
    """

    n: int
    sigma: float

    terms = 2
    exact = 2

    def alone(self, metric: Operator, length: int) -> Operator:
        """The metric that a run solves by itself: the same sigma, whatever the length."""
        assert isinstance(metric, Metric)
        return _with(LaplacianSmoothing(), sigma=self.sigma, scale=metric.scale, blend=metric.blend)

    def sums(self, length: int) -> Tensor:
        from_start_L = torch.arange(length, dtype=torch.float64)
        return torch.exp(self._log_z * torch.stack([length - 1 - from_start_L, from_start_L]))

    def basis(self, length: int) -> Tensor:
        return self.sums(length).flip(0).mT

    def coupling(self, run: Run, other: Run) -> Tensor:
        """X: what one sum of the other run adds to each term of this run."""
        # From the last row of one run to the first of the next, around the axis.
        gaps = [(first.start - (last.stop - 1)) % self.n for first, last in ((run, other), (other, run))]
        reach = [math.exp((gap or self.n) * self._log_z) / self._turn(self.n) for gap in gaps]
        if run == other:
            alone = math.exp(self._log_z) / self._turn(run.length)
            reach = [value - alone for value in reach]
        return torch.diag(torch.tensor(reach, dtype=torch.float64)) / math.sqrt(1 + 4 * self.sigma)

    @property
    def _log_z(self) -> float:
        return -2 * math.asinh(0.5 / math.sqrt(self.sigma))

    def _turn(self, length: int) -> float:
        """1 - z^length: what repeating with this period divides by."""
        return -math.expm1(length * self._log_z)


LowRank = Parabola | Exponentials


def low_rank(metric: Operator, n: int) -> LowRank | None:
    """The factors of a metric along an axis of length n; None if it has none that we know."""
    if metric.off_diagonal == "parabola":
        assert isinstance(metric, Metric)
        return Parabola(n, float(metric.strength), float(metric.mean_factor(n)))
    if metric.off_diagonal == "exponentials":
        assert isinstance(metric, Metric)
        return Exponentials(n, float(metric.grid_strength(n)))
    return None


@lru_cache(maxsize=1024)
def couplings(factors: LowRank, run: Run, others: tuple[Run, ...]) -> Tensor:
    """X of this run with all runs of a column, one after the other: of shape (K, R K)."""
    # Within one group: the groups of a convolution are independent, so only positions in the column count.
    own = _in_column(run, factors.n)
    with torch.inference_mode(False):
        return torch.cat([factors.coupling(own, _in_column(other, factors.n)) for other in others], dim=1)


@lru_cache(maxsize=1024)
def tables(factors: LowRank, length: int) -> tuple[Tensor, Tensor]:
    """U and V of a run of this length."""
    with torch.inference_mode(False):
        return factors.sums(length), factors.basis(length)


def _with(metric: AnyOperator, **values: object) -> AnyOperator:
    # A copy set without its checks: the strength on a short run may leave the range that users may ask for.
    out = copy.copy(metric)
    out._set(**values)
    return out


def _from_middle(length: int) -> Tensor:
    return torch.arange(length, dtype=torch.float64) - (length - 1) / 2


def _middle(run: Run) -> float:
    return run.start + (run.length - 1) / 2


def _in_column(run: Run, n: int) -> Run:
    return Run(run.start % n, run.length)
