"""Strategies: how ranks that share columns direct them together, each with what it serves, its bytes and its work.

W ranks, columns of length n, M of them. Bytes are those that arrive at a rank in a step, in a ring for an all-reduce.
They decide between strategies that serve the same columns, and the docs quote them.

| strategy    | collective            | serves                          | bytes                                      |
| ----------- | --------------------- | ------------------------------- | ------------------------------------------ |
| Reduction   | all-reduce            | ReweightedL2                    | 16 M (W - 1) / W                           |
| LowRankSums | all-gather            | Sobolev, LaplacianSmoothing     | 16 M (W - 1)                               |
| LowRankSums | all-gather            | SobolevTilde                    | 16 M (W - 1); 24 in float64 or for n > 256 |
| Transposing | all-to-all, two times | these two, and any other metric | 2 M (W - 1) / W * n / W * bytes per entry  |
| Centring    | all-reduce            | Centralization                  | 16 (W - 1) / W per output and group        |

Shape suffixes: L the rows of this rank, N all rows, C columns, K terms, W ranks, S slots for runs, R rows of dim 0,
G groups of a convolution, P real parts of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from riesz.backends import direct_
from riesz.control import permutation
from riesz.layout.axis import ColumnView
from riesz.metrics import Metric, Operator
from riesz.sharded import collectives
from riesz.sharded.batching import ColumnBatch
from riesz.sharded.groups import RankGroup
from riesz.sharded.layout import LocalPart, Rows, real_view
from riesz.sharded.low_rank import LowRank, couplings, low_rank, tables

MAX_BYTES = 256 << 20
"""The most that arrives in one collective; larger models take several."""

Work = TypeVar("Work", ColumnBatch, LocalPart)


class Strategy(Generic[Work]):
    """One way to direct columns that are divided among ranks. Stateless: every method sees all it needs."""

    def serves(self, work: Work, permuted: bool) -> bool:
        """Whether it computes the operator of this work."""
        raise NotImplementedError

    def bytes(self, work: Work) -> int:
        """Bytes that arrive at a rank."""
        raise NotImplementedError

    def run(self, group: RankGroup, work: Sequence[Work], backend: str, permuted: bool) -> None:
        """Direct all of it in place, with one collective, or one there and one back."""
        raise NotImplementedError

    def run_within_limit(self, group: RankGroup, work: Iterable[Work], backend: str, permuted: bool) -> None:
        """Direct all of it in portions whose collectives stay below the limit."""
        for portion in self._portions(work):
            self.run(group, portion, backend, permuted)

    def _portions(self, work: Iterable[Work]) -> Iterator[list[Work]]:
        portion: list[Work] = []
        total = 0
        for one in work:
            if portion and total + self.bytes(one) > MAX_BYTES:
                yield portion
                portion, total = [], 0
            portion.append(one)
            total += self.bytes(one)
        yield portion


class Reduction(Strategy[ColumnBatch]):
    """One sum per column, over all ranks: all that a matrix of one constant off the diagonal needs."""

    def serves(self, work: ColumnBatch, permuted: bool) -> bool:
        return work.metric.off_diagonal == "rank one"  # in any order of the channels

    def bytes(self, work: ColumnBatch) -> int:
        return 16 * work.columns * len(work.rows.shared) * (work.group.size - 1) // work.group.size

    def run(self, group: RankGroup, work: Sequence[ColumnBatch], backend: str, permuted: bool) -> None:
        sums = []
        for batch in work:
            columns_LC = batch.read(torch.float64)
            sums_GC = columns_LC.new_zeros(len(batch.rows.shared), batch.columns)
            for run, start in batch.runs():
                if run.length < batch.rows.n:
                    sums_GC[batch.rows.shared[batch.rows.group(run)]] += columns_LC[start : start + run.length].sum(0)
            sums.append(sums_GC)
        totals = collectives.all_reduce(group, _token(work), sums, lambda: _describe(work))
        for batch, totals_GC in zip(work, totals, strict=True):
            metric = batch.metric
            assert isinstance(metric, Metric)
            columns_LC = batch.read(torch.float64)
            weight = float(metric.scale * metric.strength) / batch.rows.n
            for run, start in batch.runs():
                own_LC, number = columns_LC[start : start + run.length], batch.rows.shared.get(batch.rows.group(run))
                total_C = own_LC.sum(0) if number is None else totals_GC[number]
                own_LC.mul_(float(metric.scale + metric.blend)).add_(total_C * weight)
            batch.write(columns_LC)


class LowRankSums(Strategy[ColumnBatch]):
    """Each rank solves its own runs and gathers a few sums per column of all others; see low_rank.py."""

    def serves(self, work: ColumnBatch, permuted: bool) -> bool:
        return not permuted and low_rank(work.metric, work.rows.n) is not None

    def bytes(self, work: ColumnBatch) -> int:
        return gather_bytes(_factors(work), work.rows, work.columns, work.dtype)

    def run(self, group: RankGroup, work: Sequence[ColumnBatch], backend: str, permuted: bool) -> None:
        sent: list[Tensor] = []
        for batch in work:
            factors = _factors(batch)
            sums_SKC = _low_rank_sums(batch, factors)
            sent += [sums_SKC[:, : factors.exact], sums_SKC[:, factors.exact :].to(inexact_dtype(batch.dtype))]
        gathered = collectives.all_gather(group, _token(work), sent, lambda: _describe(work))
        for index, batch in enumerate(work):
            sums_WSKC = torch.cat([sums.double() for sums in gathered[2 * index : 2 * index + 2]], dim=2)
            batch.write(_corrected(batch, _factors(batch), sums_WSKC, backend))


class Transposing(Strategy[ColumnBatch]):
    """Every rank gets some of the columns as wholes, directs them and sends them back: any metric."""

    def serves(self, work: ColumnBatch, permuted: bool) -> bool:
        # One all-reduce of a sum is always preferred to two of these.
        return work.metric.off_diagonal != "rank one"

    def bytes(self, work: ColumnBatch) -> int:
        return transpose_bytes(work.rows, work.columns, work.dtype)

    def run(self, group: RankGroup, work: Sequence[ColumnBatch], backend: str, permuted: bool) -> None:
        token = _token(work)
        shares = [-(-batch.columns // group.size) for batch in work]
        sends = zip(*(_by_rank(batch, share) for batch, share in zip(work, shares, strict=True)), strict=True)
        heights = [[batch.rows.counts[rank] for batch in work] for rank in range(group.size)]
        shapes = [[torch.Size(pair) for pair in zip(row, shares, strict=True)] for row in heights]
        received = collectives.all_to_all(group, token, list(sends), shapes, lambda: _describe(work))
        returned: list[tuple[Tensor, ...]] = []
        for index, batch in enumerate(work):
            # Rank by rank, in the order of their own rows; then sorted into the order of the axis, and back.
            positions_N = _positions(batch)
            columns_NC = torch.cat([row[index] for row in received])
            whole_NC = torch.empty_like(columns_NC).index_copy_(0, positions_N, columns_NC)
            if permuted:
                _direct_permuted_(whole_NC, batch, shares[index], backend)
            else:
                _direct_rows_(whole_NC, batch.rows.n, batch.metric, backend)
            returned.append(torch.split(whole_NC.index_select(0, positions_N), list(batch.rows.counts)))
        own = [torch.Size((batch.height, share)) for batch, share in zip(work, shares, strict=True)]
        sends_back = list(zip(*returned, strict=True))
        back = collectives.all_to_all(group, token, sends_back, [own] * group.size, lambda: _describe(work))
        for index, batch in enumerate(work):
            batch.write(torch.cat([row[index] for row in back], dim=1)[:, : batch.columns])


class Centring(Strategy[LocalPart]):
    """Means over divided axes, for an operator that mixes columns: one sum per output, over all ranks."""

    def serves(self, work: LocalPart, permuted: bool) -> bool:
        return work.metric.mixes_columns

    def bytes(self, work: LocalPart) -> int:
        assert work.group is not None
        groups = 1 if work.axis.dim == 0 else work.axis.groups
        return 16 * groups * work.layout.held(_dim(work)) * work.parts * (work.group.size - 1) // work.group.size

    def run(self, group: RankGroup, work: Sequence[LocalPart], backend: str, permuted: bool) -> None:
        token = collectives.digest([(part.layout.shape, part.local is not None) for part in work])
        absent = ", ".join(part.name for part in work if part.local is None)
        sums = [_output_sums(part) for part in work]
        description = f"Centralization; without a gradient: {absent or 'none'}"
        totals = collectives.all_reduce(group, token, sums, lambda: description)
        for part, totals_GNP in zip(work, totals, strict=True):
            if part.local is not None:
                means_GNP = totals_GNP * (part.axis.groups / part.axis.columns(part.layout.shape))
                view = _with_parts(part.local)
                view.copy_(view.double() - _expanded(part, means_GNP, view.dim()))


REDUCTION, LOW_RANK_SUMS, TRANSPOSING, CENTRING = Reduction(), LowRankSums(), Transposing(), Centring()


def choose(batches: Sequence[ColumnBatch], permuted: bool) -> list[Strategy[ColumnBatch]]:
    """By batch, the strategy of the fewest bytes among those that serve it.

    Bytes are added up over all batches of a rank group with the same candidates: one collective for all of them.
    """
    totals: dict[object, dict[Strategy[ColumnBatch], int]] = {}
    candidates = [
        tuple(s for s in (REDUCTION, LOW_RANK_SUMS, TRANSPOSING) if s.serves(batch, permuted)) for batch in batches
    ]
    for batch, served_by in zip(batches, candidates, strict=True):
        total = totals.setdefault((batch.group, served_by), dict.fromkeys(served_by, 0))
        for strategy in served_by:
            total[strategy] += strategy.bytes(batch)
    cheapest = {key: min(total, key=total.__getitem__) for key, total in totals.items()}
    return [cheapest[batch.group, served_by] for batch, served_by in zip(batches, candidates, strict=True)]


# -- bytes -------------------------------------------------------------------------------------------------------------


def inexact_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of those sums that need no float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def gather_bytes(factors: LowRank, rows: Rows, columns: int, dtype: torch.dtype) -> int:
    """Bytes that arrive when every rank gets the sums of all others."""
    per_column = 8 * factors.exact + inexact_dtype(dtype).itemsize * (factors.terms - factors.exact)
    return (len(rows.runs) - 1) * rows.slots * columns * per_column


def transpose_bytes(rows: Rows, columns: int, dtype: torch.dtype) -> int:
    """Bytes that arrive when every rank gets whole columns and sends them back directed."""
    ranks = len(rows.runs)
    share = -(-columns // ranks)
    there = (sum(rows.counts) - min(rows.counts)) * share
    back = max(rows.counts) * (ranks - 1) * share
    return (there + back) * dtype.itemsize


# -- low-rank sums -----------------------------------------------------------------------------------------------------


def _factors(batch: ColumnBatch) -> LowRank:
    factors = low_rank(batch.metric, batch.rows.n)
    assert factors is not None
    return factors


def _low_rank_sums(batch: ColumnBatch, factors: LowRank) -> Tensor:
    columns_LC = batch.read(torch.float64)
    sums_SKC = columns_LC.new_zeros(batch.rows.slots, factors.terms, batch.columns)
    divided = [(run, start) for run, start in batch.runs() if run.length < batch.rows.n]
    for slot, (run, start) in enumerate(divided):
        sums_KL, _ = tables(factors, run.length)
        sums_SKC[slot] = sums_KL.to(batch.device) @ columns_LC[start : start + run.length]
    return sums_SKC


def _corrected(batch: ColumnBatch, factors: LowRank, sums_WSKC: Tensor, backend: str) -> Tensor:
    assert isinstance(batch.metric, Metric)
    columns_LC = batch.read(torch.float64)
    for run, start in batch.runs():
        own_LC = columns_LC[start : start + run.length]
        whole = run.length == batch.rows.n
        metric = batch.metric if whole else factors.alone(batch.metric, run.length)
        _direct_rows_(own_LC, run.length, metric, backend)
        if whole:
            continue
        partners = batch.rows.partners(run)
        ranks, slots = [rank for rank, _, _ in partners], [slot for _, slot, _ in partners]
        coupling_KR = couplings(factors, run, tuple(other for _, _, other in partners)).to(batch.device)
        _, basis_LK = tables(factors, run.length)
        terms_KC = coupling_KR @ sums_WSKC[ranks, slots].flatten(0, 1)
        own_LC.addmm_(basis_LK.to(batch.device), terms_KC, alpha=float(batch.metric.scale))
    return columns_LC


def _direct_rows_(columns_NC: Tensor, length: int, metric: Operator, backend: str) -> None:
    rows, columns = columns_NC.shape
    groups = rows // length
    direct_([ColumnView(columns_NC.view(groups, length, columns), groups, length, columns, groups)], metric, backend)


# -- transposing -------------------------------------------------------------------------------------------------------


def _by_rank(batch: ColumnBatch, share: int) -> tuple[Tensor, ...]:
    """This rank's rows, cut into the columns that each rank will direct."""
    columns_LC = batch.read(batch.dtype)
    missing = share * batch.group.size - batch.columns
    return torch.split(torch.nn.functional.pad(columns_LC, (0, missing)), share, dim=1)


def _positions(batch: ColumnBatch) -> Tensor:
    """Where on the axis the rows of all ranks belong, rank by rank."""
    runs = [torch.arange(run.start, run.stop) for held in batch.rows.runs for run in held]
    return torch.cat(runs).to(batch.device)


def _direct_permuted_(columns_NC: Tensor, batch: ColumnBatch, share: int, backend: str) -> None:
    """Each gradient has an order of its own, so each column has that of the gradient it belongs to."""
    n, first = batch.rows.n, share * batch.group.rank
    orders_NP = torch.stack([permutation(member.name, n, batch.device) for member in batch.members], dim=1)
    owners = torch.repeat_interleave(torch.tensor([member.columns for member in batch.members]))
    # The padding of the last shares belongs to no gradient and may follow any order.
    own = torch.nn.functional.pad(owners, (0, share * batch.group.size - len(owners)))[first : first + share]
    order_GNC = orders_NP[:, own.to(batch.device)].expand(batch.rows.groups, n, share)
    columns_GNC = columns_NC.view(batch.rows.groups, n, share)
    shuffled_GNC = columns_GNC.gather(1, order_GNC)
    _direct_rows_(shuffled_GNC.view(-1, share), n, batch.metric, backend)
    columns_GNC.scatter_(1, order_GNC, shuffled_GNC)


# -- centring ----------------------------------------------------------------------------------------------------------


def _output_sums(part: LocalPart) -> Tensor:
    axis, outputs = part.axis, part.layout.held(_dim(part))
    groups = 1 if axis.dim == 0 else axis.groups
    sums_GNP = torch.zeros(groups, outputs, part.parts, dtype=torch.float64, device=part.device)
    if part.local is None:
        return sums_GNP
    view = _with_parts(part.local)
    kept = (0, _dim(part), view.dim() - 1)
    summed = [dim for dim in range(view.dim()) if dim not in kept]
    by_row = view.sum(summed, dtype=torch.float64) if summed else view.double()
    if axis.dim == 0:
        return by_row.unsqueeze(0)
    return sums_GNP.index_add_(0, _group_of_row(part), by_row)


def _expanded(part: LocalPart, means_GNP: Tensor, dims: int) -> Tensor:
    """The means in a shape that broadcasts over the gradient."""
    means = means_GNP.squeeze(0) if part.axis.dim == 0 else means_GNP[_group_of_row(part)]
    shape = [1] * dims
    shape[0], shape[-1] = means.shape[0], means.shape[-1]
    if part.axis.dim != 0:
        shape[_dim(part)] = means.shape[1]
    return means.view(shape)


def _group_of_row(part: LocalPart) -> Tensor:
    """The group that each row of dim 0 belongs to, where groups are blocks of dim 0 and not of the outputs."""
    rows = torch.cat([torch.arange(run.start, run.stop) for run in part.layout.runs[0]] or [torch.arange(0)])
    return (rows // (part.layout.shape[0] // part.axis.groups)).to(part.device)


def _dim(part: LocalPart) -> int:
    assert part.axis.dim is not None  # rasterized, there is nothing to average over
    return part.axis.dim


def _with_parts(local: Tensor) -> Tensor:
    """The gradient with the real parts of a number as its last dim."""
    return real_view(local) if local.is_complex() else local.unsqueeze(-1)


# -- agreement ---------------------------------------------------------------------------------------------------------


def _token(work: Sequence[ColumnBatch]) -> int:
    return collectives.digest(
        [
            (
                type(batch.metric).__name__,
                [float(getattr(batch.metric, name)) for name in batch.metric.tunable_fields],
                batch.rows.n,
                batch.rows.groups,
                str(batch.dtype),
                [(member.columns, member.present) for member in batch.members],
            )
            for batch in work
        ]
    )


def _describe(work: Sequence[ColumnBatch]) -> str:
    absent = {member.name for batch in work for member in batch.members if not member.present}
    metrics = sorted({str(batch.metric) for batch in work})
    return f"{', '.join(metrics)}; without a gradient: {', '.join(sorted(absent)) or 'none'}"
