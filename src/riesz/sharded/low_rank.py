"""What a shard needs of the others: off its diagonal, A has rank two or three.

Split an axis into runs. The block of A that takes run r to another run k is smooth in both indices: the kernel is a
parabola (SobolevTilde) or a sum of two exponentials (Sobolev, LaplacianSmoothing) of the distance. So it factors,

    A[k, r] = scale * V_k X_kr U_r,        U_r of shape (K, rows of r), V_k of shape (rows of k, K), K = 3 or 2,

and so does the difference between the block of a run with itself and the *same metric solved on that run alone*, made
periodic there. A rank therefore solves its own runs with the ordinary kernels, sends the K sums `U_r f` of each column,
and adds `V_k X_kr` times the sums of every run r. Exact: no iteration, no truncation.

Shape suffixes: K terms, L rows of a run, R runs of one column, C columns, W ranks, S slots for runs. Everything is
float64 but for those sums that are sent in float32.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from riesz.backends.shards import RunNumbers, ShardRun
from riesz.metrics import LaplacianSmoothing, Metric, Operator
from riesz.sharded.batching import ColumnBatch, SumExchange, direct_rows_
from riesz.sharded.collectives import WORD, AllGather, padded
from riesz.sharded.groups import RankGroup
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
    what they add cancels against the run's own solution where frequencies are high, more so for longer columns:
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
        return self.basis(length).mT / self._units

    def basis(self, length: int) -> Tensor:
        u_L = (torch.arange(length, dtype=torch.float64) - (length - 1) / 2) / self.n
        return torch.stack([torch.ones_like(u_L), u_L, u_L**2 - self._spread(length)], dim=1)

    def starts(self, length: int) -> Tensor:
        """What each term adds to mean, slope and value, from which the compiled kernels walk along a run."""
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
        """The same for the solution of the run alone, from its own sums.

        None for float64: its sums must be taken of the difference to the mean, which is not known before them.
        """
        if dtype == torch.float64:
            return None
        slope = -1 / (self.lam * self.n * length)
        starts = [[1 / length, 0.0, 0.0], [0.0, slope, 0.0], [1 / length, slope / 2, -self.n * slope / 2]]
        return torch.tensor(starts, dtype=torch.float64) * self._units.mT

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
        return x_KK * self._units.mT

    @property
    def _units(self) -> Tensor:
        """What the sums are divided by: powers of two, so that none in float32 exceeds the largest entry."""
        unit = 2.0 ** max(0, math.ceil(math.log2(self.n / 4)))
        return torch.tensor([[1.0], [unit], [unit]], dtype=torch.float64)

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

    def starts(self, length: int) -> Tensor:
        """What each term adds to mean, y before and h after a run, from which the compiled kernels walk along it.

        With z as they round it: y is carried on as z^(j+1) y, h as z^(length-j) h, and (1 - z)^2 h is the solution.
        """
        z = 2 * self.sigma / (1 + 2 * self.sigma + math.sqrt(1 + 4 * self.sigma))
        y = (1 + z) / ((1 - z) * z)
        return torch.tensor(
            [[0.0, 0.0], [y, 0.0], [y * z ** (length + 1) / ((1 - z) * (1 + z)), 1 / ((1 - z) ** 2 * z)]],
            dtype=torch.float64,
        )

    def alone_starts(self, length: int, dtype: torch.dtype) -> Tensor | None:
        """None: the walk needs both recursions at every block of rows, not only at the ends of the run."""
        return None

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


def couplings(factors: LowRank, run: Run, others: tuple[Run, ...]) -> Tensor:
    """X of this run with all runs of a column, one after the other: of shape (K, R K)."""
    # Within one group: the groups of a convolution are independent, so only positions in the column count.
    own = _in_column(run, factors.n)
    with torch.inference_mode(False):
        return torch.cat([factors.coupling(own, _in_column(other, factors.n)) for other in others], dim=1)


def start_couplings(factors: LowRank, run: Run, others: tuple[Run, ...]) -> Tensor:
    """The same for the starting values of the compiled kernels: of shape (3, R K)."""
    x_KR = couplings(factors, run, others)
    with torch.inference_mode(False):
        return factors.starts(run.length) @ x_KR


def tables(factors: LowRank, length: int) -> tuple[Tensor, Tensor]:
    """U and V of a run of this length."""
    with torch.inference_mode(False):
        return factors.sums(length), factors.basis(length)


def _with(metric: AnyOperator, **values: object) -> AnyOperator:
    # A copy set without its checks: the strength on a short run may leave the range that users may ask for.
    out = copy.copy(metric)
    out._set(**values)
    return out


def _middle(run: Run) -> float:
    return run.start + (run.length - 1) / 2


def _in_column(run: Run, n: int) -> Run:
    return Run(run.start % n, run.length)


# -- the exchange of sums ----------------------------------------------------------------------------------------------


def factors_of(batch: ColumnBatch) -> LowRank:
    factors = low_rank(batch.metric, batch.rows.n)
    assert factors is not None
    return factors


def inexact_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of those sums that need no float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class LowRankExchange(SumExchange):
    """Two or three sums of each column and run, gathered from all ranks; see the top of this file."""

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str):
        super().__init__(group, batches, backend)
        self._factors: dict[int, LowRank] = {}
        self._starts: dict[int, tuple[int, int]] = {}
        size = WORD
        for batch in batches:
            factors = factors_of(batch)
            sums = batch.rows.slots * batch.columns
            exact = size
            size += 8 * sums * factors.exact
            self._starts[id(batch)] = (exact, size)
            size += padded(inexact_dtype(batch.dtype).itemsize * sums * (factors.terms - factors.exact))
        self._collective = self._gather = AllGather(group, size - WORD, batches[0].device)

    def _refresh(self) -> None:
        self._factors = {id(batch): factors_of(batch) for batch in self._batches}
        # Gradients of equal length share them; they are kept as long as the metric's numbers are.
        self._tables, self._couplings, self._start_couplings = cache(tables), cache(couplings), cache(start_couplings)
        super()._refresh()

    def _run_numbers(self, batch: ColumnBatch, run: Run) -> RunNumbers:
        factors, others = self._factors[id(batch)], tuple(other for _, _, other in batch.rows.partners(run))
        return RunNumbers(
            factors.alone(batch.metric, run.length),
            self._tables(factors, run.length)[0],
            self._start_couplings(factors, run, others),
            factors.alone_starts(run.length, batch.dtype),
        )

    def _shard_run(self, alone: ShardRun, batch: ColumnBatch, column: int, run: Run) -> ShardRun:
        exact, inexact = self._offsets(batch, column, 0, batch.rows.divided(self._group.rank).index(run))
        return replace(
            alone,
            exact=self._factors[id(batch)].exact,
            inexact_dtype=inexact_dtype(batch.dtype),
            lead=batch.columns,
            exact_offset=exact,
            inexact_offset=inexact,
            partner_offsets=tuple(self._offsets(batch, column, rank, at) for rank, at, _ in batch.rows.partners(run)),
        )

    def _offsets(self, batch: ColumnBatch, column: int, rank: int, slot: int) -> tuple[int, int]:
        factors, (exact, inexact) = self._factors[id(batch)], self._starts[id(batch)]
        first, itemsize = rank * self._gather.stride, inexact_dtype(batch.dtype).itemsize
        rest = factors.terms - factors.exact
        return (
            first + exact + 8 * (slot * factors.exact * batch.columns + column),
            first + inexact + itemsize * (slot * rest * batch.columns + column),
        )

    def _views(self, buffer: Tensor, batch: ColumnBatch) -> tuple[Tensor, Tensor]:
        """The sums of a batch in buffers of one or more ranks: in float64, and in the other dtype."""
        factors, starts = self._factors[id(batch)], self._starts[id(batch)]
        by_rank = buffer.view(-1, self._gather.stride)
        views = []
        for start, terms, dtype in zip(
            starts,
            (factors.exact, factors.terms - factors.exact),
            (torch.float64, inexact_dtype(batch.dtype)),
            strict=True,
        ):
            shape = (len(by_rank), batch.rows.slots, terms, batch.columns)
            stop = start + dtype.itemsize * math.prod(shape[1:])
            views.append(by_rank[:, start:stop].view(dtype).view(shape))
        return views[0], views[1]

    def _pack(self, buffer: Tensor) -> None:
        for batch in self._batches:
            factors, columns_LC = self._factors[id(batch)], batch.read(torch.float64)
            exact_WSKC, inexact_WSKC = self._views(buffer, batch)
            divided = [(run, start) for run, start in batch.runs() if run.length < batch.rows.n]
            for slot, (run, start) in enumerate(divided):
                weights_KL = self._tables(factors, run.length)[0].to(batch.device)
                sums_KC = weights_KL @ columns_LC[start : start + run.length]
                exact_WSKC[0, slot] = sums_KC[: factors.exact]
                inexact_WSKC[0, slot] = sums_KC[factors.exact :]

    def _solve(self, received: Tensor) -> None:
        for batch in self._batches:
            assert isinstance(batch.metric, Metric)
            factors, columns_LC = self._factors[id(batch)], batch.read(torch.float64)
            sums_WSKC = torch.cat([sums.double() for sums in self._views(received, batch)], dim=2)
            for run, start in batch.runs():
                own_LC = columns_LC[start : start + run.length]
                whole = run.length == batch.rows.n
                metric = batch.metric if whole else factors.alone(batch.metric, run.length)
                direct_rows_(own_LC, run.length, metric, self._backend)
                if whole:
                    continue
                partners = batch.rows.partners(run)
                ranks, slots = [rank for rank, _, _ in partners], [slot for _, slot, _ in partners]
                coupling_KR = self._couplings(factors, run, tuple(other for _, _, other in partners)).to(batch.device)
                basis_LK = self._tables(factors, run.length)[1].to(batch.device)
                terms_KC = coupling_KR @ sums_WSKC[ranks, slots].flatten(0, 1)
                own_LC.addmm_(basis_LK, terms_KC, alpha=float(batch.metric.scale))
            batch.write(columns_LC)
