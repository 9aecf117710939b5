"""How little the rows of one part of an axis need of the others: off its diagonal, the matrix of a metric has low rank.

Split an axis into spans of rows. The block of A that takes span r to another span k is smooth in both indices: the
kernel is a constant (ReweightedL2), a parabola (SobolevTilde) or a sum of two exponentials (Sobolev,
LaplacianSmoothing) of the distance. So it factors,

    A[k, r] = scale * V_k X_kr U_r,        U_r of shape (K, rows of r), V_k of shape (rows of k, K), K = 1, 3 or 2,

and so does the difference between the block of a span with itself and the *same metric solved on that span alone*, made
periodic there (of ReweightedL2, the scaled rows alone). So a span needs no more of another than the K sums `U_r f` of
each column. Exact: no iteration, no truncation. `riesz.sharded` sends these sums. A metric names its class here as
`off_diagonal`.

Shape suffixes: K terms, L rows of a span, R terms of all spans of a column. Everything is float64.
"""

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from riesz.metrics.base import Metric
    from riesz.metrics.operator import Operator

LONG = 256
"""Columns of SobolevTilde beyond this length send all their sums in float64. Measured on columns near the highest
frequency, without blend, on 2 to 8 ranks, as a part of the largest entry: with float32, 2.6e-6 at 256, 5.4e-6 at 512,
4e-5 at 4,096 and 8e-4 at 65,536; with float64, 4e-9 at 4,096 and 1e-6 at 65,536.
"""


@dataclass(frozen=True, order=True)
class RowSpan:
    """Consecutive rows of an axis."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.length


class LowRank(Protocol):
    """U, X and V of a metric along an axis of length n; a metric of your own may have a subclass of its own."""

    terms: ClassVar[int]  # K: how many sums of a column are sent

    n: int

    @classmethod
    def of(cls, metric: "Metric", n: int) -> "LowRank": ...

    @property
    def exact(self) -> int:
        """How many of the sums, from the first, must be sent in float64. The others take the precision of float32."""
        return self.terms

    def alone(self, metric: "Metric", length: int) -> "Operator":
        """What a span of this length solves by itself."""

    def sums(self, length: int) -> Tensor:
        """U of a span."""

    def basis(self, length: int) -> Tensor:
        """V of a span."""

    def coupling(self, span: RowSpan, other: RowSpan) -> Tensor:
        """X: what one sum of the other span adds to each term of this one. Both lie in one column."""

    def starts(self, length: int) -> Tensor:
        """What each term adds to the three values from which compiled kernels walk along a span: of shape (3, K)."""

    def alone_starts(self, length: int, dtype: torch.dtype) -> Tensor | None:
        """What each sum of the span itself adds to them; None where the kernels must take other sums for that."""
        return None


@dataclass(frozen=True)
class Constant(LowRank):
    """ReweightedL2: lam/n everywhere off the diagonal. X is the same for all spans, so their sums may be added."""

    n: int
    lam: float

    terms = 1

    @classmethod
    def of(cls, metric: "Metric", n: int) -> "Constant":
        return cls(n, float(metric.strength))

    def alone(self, metric: "Metric", length: int) -> "Operator":
        from riesz.metrics.identity import Identity

        return _with(Identity(), scale=metric.scale, blend=metric.blend)

    def sums(self, length: int) -> Tensor:
        return torch.ones(1, length, dtype=torch.float64)

    def basis(self, length: int) -> Tensor:
        return torch.ones(length, 1, dtype=torch.float64)

    def coupling(self, span: RowSpan, other: RowSpan) -> Tensor:
        return torch.tensor([[self.lam / self.n]], dtype=torch.float64)

    def starts(self, length: int) -> Tensor:
        """The mean is the first of the three."""
        return torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)


@dataclass(frozen=True)
class Parabola(LowRank):
    """SobolevTilde.

    With m = lam n^2, the kernel at distance d is `(mean_factor + ((n^2 - 1)/12 - d (n - d)/2) / m) / n`. On a span,
    with u the row counted from its middle in units of n, the terms are 1, u and u^2 - mean(u^2). The last two do not
    depend on the span's mean, so they may be sent in float32 while the sum, which decides the mean, is sent in float64.
    But what they add cancels against the span's own solution where frequencies are high, more so for longer columns:
    see `LONG`.
    """

    n: int
    lam: float
    mean_factor: float

    terms = 3

    @classmethod
    def of(cls, metric: "Metric", n: int) -> "Parabola":
        return cls(n, float(metric.strength), float(metric.mean_factor(n)))

    @property
    def exact(self) -> int:
        return 1 if self.n <= LONG else self.terms

    def alone(self, metric: "Metric", length: int) -> "Operator":
        """The metric with the same m on its own length."""
        return _with(metric, riemann=False, lam=self.lam * (self.n / length) ** 2)

    def sums(self, length: int) -> Tensor:
        return self.basis(length).mT / self._units

    def basis(self, length: int) -> Tensor:
        u_L = (torch.arange(length, dtype=torch.float64) - (length - 1) / 2) / self.n
        return torch.stack([torch.ones_like(u_L), u_L, u_L**2 - self._spread(length)], dim=1)

    def coupling(self, span: RowSpan, other: RowSpan) -> Tensor:
        # The kernel as p0 + p1 t + p2 t^2 in t = d / n.
        m = self.lam * self.n**2
        p0 = (self.mean_factor + (self.n**2 - 1) / (12 * m)) / self.n
        p1, p2 = -self.n / (2 * m), self.n / (2 * m)
        t = (_middle(span) - _middle(other)) / self.n
        if span == other:
            # The kernel of the span alone is taken off; the terms in |d| are the same in both and cancel.
            length = span.length
            p0 -= (1 + (length**2 - 1) / (12 * m)) / length
            p1, p2 = 0.0, p2 - self.n**2 / (2 * m * length)
        elif t < 0:
            t += 1
        # t + u - v in place of d / n, sorted by powers of u (rows) and v (columns); then u^2 = term + spread.
        slope = p1 + 2 * p2 * t
        x_KK = torch.tensor(
            [[p0 + p1 * t + p2 * t**2, -slope, p2], [slope, -2 * p2, 0.0], [p2, 0.0, 0.0]], dtype=torch.float64
        )
        x_KK[0, 0] += p2 * (self._spread(span.length) + self._spread(other.length))
        return x_KK * self._units.mT

    def starts(self, length: int) -> Tensor:
        """The three are mean, slope and value."""
        u = -(length - 1) / (2 * self.n)
        return torch.tensor(
            [
                [0.0, 0.0, 2 * self.lam],
                [0.0, 1 / self.n, (2 * u - 1 / self.n) / self.n],
                [1.0, u, u**2 - self._spread(length)],
            ],
            dtype=torch.float64,
        )

    def alone_starts(self, length: int, dtype: torch.dtype) -> Tensor | None:
        """None for float64: its sums must be taken of the difference to the mean, which is not known before them."""
        if dtype == torch.float64:
            return None
        slope = -1 / (self.lam * self.n * length)
        starts = [[1 / length, 0.0, 0.0], [0.0, slope, 0.0], [1 / length, slope / 2, -self.n * slope / 2]]
        return torch.tensor(starts, dtype=torch.float64) * self._units.mT

    @property
    def _units(self) -> Tensor:
        """What the sums are divided by: powers of two, so that none in float32 exceeds the largest entry."""
        unit = 2.0 ** max(0, math.ceil(math.log2(self.n / 4)))
        return torch.tensor([[1.0], [unit], [unit]], dtype=torch.float64)

    def _spread(self, length: int) -> float:
        return (length**2 - 1) / (12 * self.n**2)


@dataclass(frozen=True)
class Exponentials(LowRank):
    """Sobolev and LaplacianSmoothing, `g - sigma D g = f`.

    The kernel at distance d is `(z^d + z^(n-d)) / ((1 - z^n) sqrt(1 + 4 sigma))`, log z = -2 asinh(1/(2 sqrt(sigma))).
    The sums of a span are the ends of the two recursions, forward and backward; the terms decay from its two edges.
    """

    n: int
    sigma: float

    terms = 2

    @classmethod
    def of(cls, metric: "Metric", n: int) -> "Exponentials":
        return cls(n, float(metric.grid_strength(n)))

    def alone(self, metric: "Metric", length: int) -> "Operator":
        """The metric with the same sigma, whatever the length."""
        from riesz.metrics.laplacian_smoothing import LaplacianSmoothing

        return _with(LaplacianSmoothing(), sigma=self.sigma, scale=metric.scale, blend=metric.blend)

    def sums(self, length: int) -> Tensor:
        from_start_L = torch.arange(length, dtype=torch.float64)
        return torch.exp(self._log_z * torch.stack([length - 1 - from_start_L, from_start_L]))

    def basis(self, length: int) -> Tensor:
        return self.sums(length).flip(0).mT

    def coupling(self, span: RowSpan, other: RowSpan) -> Tensor:
        # From the last row of one span to the first of the next, around the axis.
        gaps = [(first.start - (last.stop - 1)) % self.n for first, last in ((span, other), (other, span))]
        reach = [math.exp((gap or self.n) * self._log_z) / self._turn(self.n) for gap in gaps]
        if span == other:
            alone = math.exp(self._log_z) / self._turn(span.length)
            reach = [value - alone for value in reach]
        return torch.diag(torch.tensor(reach, dtype=torch.float64)) / math.sqrt(1 + 4 * self.sigma)

    def starts(self, length: int) -> Tensor:
        """The three are the mean, y before and h after the span.

        With z as the kernels round it: y is carried on as z^(j+1) y, h as z^(length-j) h, and (1 - z)^2 h is the
        solution. The span alone has no such starts: its walk needs both recursions at every block of rows.
        """
        z = 2 * self.sigma / (1 + 2 * self.sigma + math.sqrt(1 + 4 * self.sigma))
        y = (1 + z) / ((1 - z) * z)
        return torch.tensor(
            [[0.0, 0.0], [y, 0.0], [y * z ** (length + 1) / ((1 - z) * (1 + z)), 1 / ((1 - z) ** 2 * z)]],
            dtype=torch.float64,
        )

    @property
    def _log_z(self) -> float:
        return -2 * math.asinh(0.5 / math.sqrt(self.sigma))

    def _turn(self, length: int) -> float:
        """1 - z^length: what repeating with this period divides by."""
        return -math.expm1(length * self._log_z)


def low_rank(metric: "Operator", n: int) -> LowRank | None:
    """The factors of a metric along an axis of length n; None if none are known."""
    return None if metric.off_diagonal is None else metric.off_diagonal.of(metric, n)  # type: ignore[arg-type]


_NONE = torch.zeros(0, 0, dtype=torch.float64)


@dataclass(frozen=True)
class SpanTables:
    """What a span of rows needs of its metric's numbers. The defaults are for whole columns."""

    alone: "Operator"  # what the span solves by itself
    sums_KL: Tensor = _NONE  # U, the weights of the sums of each column
    basis_LK: Tensor = _NONE  # V, the terms
    coupling_KR: Tensor = _NONE  # X with all spans of the column, one after the other
    starts_3R: Tensor = _NONE  # what each sum of the column adds to the three values from which kernels walk along it
    # What the span's own sums add to them for its own solution; None where that needs others.
    alone_3K: Tensor | None = None

    @classmethod
    def of(
        cls,
        metric: "Operator",
        n: int,
        span: RowSpan,
        others: Iterable[RowSpan],
        dtype: torch.dtype,
        device: torch.device,
    ) -> "SpanTables":
        """For gradients of a dtype. Rows are those of a column of length n, or of several independent ones on end."""
        form, length = low_rank(metric, n), span.length
        if length == n or form is None:
            return cls(metric)
        own, *rest = (RowSpan(one.start % n, one.length) for one in (span, *others))
        with torch.inference_mode(False):
            x_KR = torch.cat([form.coupling(own, other) for other in rest], dim=1)
            made = form.sums(length), form.basis(length), x_KR, form.starts(length) @ x_KR
            sums, basis, coupling, starts = (table.to(device).contiguous() for table in made)
            alone_3K = form.alone_starts(length, dtype)
            alone_3K = None if alone_3K is None else alone_3K.to(device).contiguous()
            alone = form.alone(metric, length)  # type: ignore[arg-type]
        return cls(alone, sums, basis, coupling, starts, alone_3K)


def _with(metric: "Metric", **values: object) -> "Metric":
    # A copy set without its checks: the strength on a short span may leave the range that users may ask for.
    out = copy.copy(metric)
    out._set(**values)
    return out


def _middle(span: RowSpan) -> float:
    return span.start + (span.length - 1) / 2
