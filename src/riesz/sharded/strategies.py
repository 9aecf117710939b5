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

`run` lays the work out and returns an exchange, which is used at every step while the layout holds: `start` packs and
begins the collective, `finish` waits for it, compares digests and directs in place.

Shape suffixes: L the rows of this rank, N all rows, C columns, K terms, W ranks, S slots for runs, R rows of dim 0,
G groups of a convolution, P real parts of a number.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from riesz.control import permutation
from riesz.private_torch import copy_all_
from riesz.sharded.batching import (
    ColumnBatch,
    ReductionExchange,
    describe,
    describe_layout,
    direct_rows_,
    tunable_numbers,
)
from riesz.sharded.collectives import WORD, AllReduce, AllToAll, Buffer, Exchange, padded
from riesz.sharded.groups import RankGroup, digest
from riesz.sharded.layout import LocalPart, Rows, real_view
from riesz.sharded.low_rank import LowRank, LowRankExchange, factors_of, inexact_dtype, low_rank

MAX_BYTES = 256 << 20
"""The most that arrives in one collective; larger models take several."""

Work = TypeVar("Work", ColumnBatch, LocalPart)


@dataclass(frozen=True, eq=False)
class Strategy(Generic[Work]):
    """One way to direct columns that are divided among ranks."""

    serves: Callable[[Work, bool], bool]  # whether it computes the operator of this work, permuted or not
    bytes: Callable[[Work], int]  # those that arrive at a rank
    run: Callable[[RankGroup, Sequence[Work], str, bool], Exchange]  # the exchange of all of this work

    def run_within_limit(
        self, group: RankGroup, work: Iterable[Work], backend: str, permuted: bool
    ) -> Iterator[Exchange]:
        """Exchanges for all of it whose collectives stay below the limit."""
        portion: list[Work] = []
        total = 0
        for one in work:
            if portion and total + self.bytes(one) > MAX_BYTES:
                yield self.run(group, portion, backend, permuted)
                portion, total = [], 0
            portion.append(one)
            total += self.bytes(one)
        yield self.run(group, portion, backend, permuted)


REDUCTION = Strategy[ColumnBatch](
    # One sum per column, over all ranks: all that a matrix of one constant off the diagonal needs, permuted or not.
    serves=lambda batch, permuted: batch.metric.off_diagonal == "rank one",
    bytes=lambda batch: 16 * batch.columns * len(batch.rows.shared) * (batch.group.size - 1) // batch.group.size,
    run=lambda group, batches, backend, permuted: ReductionExchange(group, batches, backend),
)
LOW_RANK_SUMS = Strategy[ColumnBatch](
    # Each rank solves its own runs and gathers a few sums per column of all others; see low_rank.py.
    serves=lambda batch, permuted: not permuted and low_rank(batch.metric, batch.rows.n) is not None,
    bytes=lambda batch: gather_bytes(factors_of(batch), batch.rows, batch.columns, batch.dtype),
    run=lambda group, batches, backend, permuted: LowRankExchange(group, batches, backend),
)
TRANSPOSING = Strategy[ColumnBatch](
    # Every rank gets some of the columns as wholes, directs them and sends them back: any metric. One all-reduce of a
    # sum is always preferred to two of these.
    serves=lambda batch, permuted: batch.metric.off_diagonal != "rank one",
    bytes=lambda batch: transpose_bytes(batch.rows, batch.columns, batch.dtype),
    run=lambda group, batches, backend, permuted: TransposingExchange(group, batches, backend, permuted),
)
CENTRING = Strategy[LocalPart](
    # Means over divided axes, for an operator that mixes columns: one sum per output, over all ranks.
    serves=lambda part, permuted: part.metric.mixes_columns,
    bytes=lambda part: centring_bytes(part),
    run=lambda group, parts, backend, permuted: CentringExchange(group, parts),
)


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


def centring_bytes(part: LocalPart) -> int:
    """Bytes that arrive when every rank gets the sum of each output over all of them."""
    assert part.group is not None
    return 16 * _output_count(part) * (part.group.size - 1) // part.group.size


# -- transposing -------------------------------------------------------------------------------------------------------


class TransposingExchange(Exchange):
    """Columns to the ranks that direct them, and back.

    Part r of the buffer `rows` is this rank's rows of the columns that rank r directs; part r of the buffer `columns`
    is rank r's rows of the columns that this rank directs. The first exchange goes from `rows` to `columns`, the second
    back.
    """

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str, permuted: bool):
        self._group, self._batches, self._backend, self._permuted = group, batches, backend, permuted
        self._shares = [-(-batch.columns // group.size) for batch in batches]
        self._layout = digest((permuted, describe_layout(batches)))
        self._metrics = list({id(batch.metric): batch.metric for batch in batches}.values())
        own, by_rank = self._sizes(group.rank), [self._sizes(rank) for rank in range(group.size)]
        sent, received = [sum(own)] * group.size, [sum(sizes) for sizes in by_rank]
        device = batches[0].device
        self._rows = Buffer(sum(sent) + WORD * group.size, device)
        self._columns = Buffer(sum(received) + WORD * group.size, device)
        self._there = AllToAll(group, sent, received, (self._rows, self._columns))
        self._back = AllToAll(group, received, sent, (self._columns, self._rows))
        self._row_spans = [[(0, group.size, start)] for start in _starts(own, WORD)]
        self._column_spans = self._spans(by_rank)
        positions = [_positions(batch) for batch in batches]
        in_order = [torch.equal(p, torch.arange(len(p), device=p.device)) for p in positions]
        self._positions = [None if ordered else p for p, ordered in zip(positions, in_order, strict=True)]
        self._token = 0

    def _sizes(self, rank: int) -> list[int]:
        """By batch, the bytes of a rank's rows of one rank's share of the columns."""
        return [
            padded(batch.rows.counts[rank] * share * batch.dtype.itemsize)
            for batch, share in zip(self._batches, self._shares, strict=True)
        ]

    def _spans(self, by_rank: list[list[int]]) -> list[list[tuple[int, int, int]]]:
        """By batch, neighbours with equal rows in every batch: first rank, past the last, byte of the first part."""
        counts = [tuple(batch.rows.counts[rank] for batch in self._batches) for rank in range(self._group.size)]
        spans: list[list[tuple[int, int, int]]] = [[] for _ in self._batches]
        first, position = 0, 0
        for rank in range(1, self._group.size + 1):
            if rank == self._group.size or counts[rank] != counts[first]:
                for span, start in zip(spans, _starts(by_rank[first], position + WORD), strict=True):
                    span.append((first, rank, start))
                position += (rank - first) * (WORD + sum(by_rank[first]))
                first = rank
        return spans

    def _views(self, buffer: Tensor, index: int, spans: list[tuple[int, int, int]]) -> Iterator[Tensor]:
        """The parts of one batch in a buffer, as tensors of shape (ranks, rows of each, columns of a share)."""
        batch, share = self._batches[index], self._shares[index]
        flat = buffer.view(batch.dtype)
        for first, stop, start in spans:
            in_columns = buffer is not self._rows.get()
            rank = first if in_columns else self._group.rank
            rows, stride = batch.rows.counts[rank], WORD + sum(self._sizes(rank))
            size = batch.dtype.itemsize
            yield flat.as_strided((stop - first, rows, share), (stride // size, share, 1), start // size)

    def start(self) -> None:
        self._token = digest((self._layout, tunable_numbers(self._metrics)))
        for index, (batch, share) in enumerate(zip(self._batches, self._shares, strict=True)):
            columns_LC = batch.read(batch.dtype, share * self._group.size)
            (parts_WLC,) = self._views(self._rows.get(), index, self._row_spans[index])
            parts_WLC.copy_(columns_LC.view(batch.height, self._group.size, share).transpose(0, 1))
        self._there.start(self._token)

    def finish(self) -> None:
        self._there.finish(self._token, lambda: describe(self._batches))
        for index, (batch, share) in enumerate(zip(self._batches, self._shares, strict=True)):
            views = list(self._views(self._columns.get(), index, self._column_spans[index]))
            # Rank by rank, in the order of their own rows; then sorted into the order of the axis, and back.
            columns_NC, positions_N = torch.cat([view.flatten(0, 1) for view in views]), self._positions[index]
            if positions_N is not None:
                columns_NC = torch.empty_like(columns_NC).index_copy_(0, positions_N, columns_NC)
            if self._permuted:
                _direct_permuted_(columns_NC, batch, share, self._backend)
            else:
                direct_rows_(columns_NC, batch.rows.n, batch.metric, self._backend)
            if positions_N is not None:
                columns_NC = columns_NC.index_select(0, positions_N)
            pieces = torch.split(columns_NC, [view.shape[0] * view.shape[1] for view in views])
            copy_all_(views, [piece.view(view.shape) for piece, view in zip(pieces, views, strict=True)])
        # Another digest on the way back: a rank that was interrupted may have started its next way there.
        self._back.start(~self._token)
        self._back.finish(~self._token, lambda: describe(self._batches))
        for index, batch in enumerate(self._batches):
            (parts_WLC,) = self._views(self._rows.get(), index, self._row_spans[index])
            batch.write(parts_WLC.transpose(0, 1).flatten(1)[:, : batch.columns])
        self._rows.release()
        self._columns.release()

    def drop_buffers(self) -> None:
        self._rows.drop()
        self._columns.drop()


def _starts(sizes: Sequence[int], first: int) -> list[int]:
    return list(accumulate(sizes, initial=first))[:-1]


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
    direct_rows_(shuffled_GNC.view(-1, share), n, batch.metric, backend)
    columns_GNC.scatter_(1, order_GNC, shuffled_GNC)


# -- centring ----------------------------------------------------------------------------------------------------------


class CentringExchange(Exchange):
    """g = f - the mean over every axis but the output one."""

    def __init__(self, group: RankGroup, parts: Sequence[LocalPart]):
        self._parts = parts
        self._token = digest([(part.layout.shape, part.local is not None) for part in parts])
        self._counts = [_output_count(part) for part in parts]
        self._reduce = AllReduce(group, sum(self._counts), parts[0].device)

    def start(self) -> None:
        sums = self._sums(self._reduce.send_buffer())
        copy_all_(sums, [_output_sums(part) for part in self._parts])
        self._reduce.start(self._token)

    def finish(self) -> None:
        absent = ", ".join(part.name for part in self._parts if part.local is None)
        totals = self._reduce.finish(self._token, lambda: f"Centralization; without a gradient: {absent or 'none'}")
        for part, totals_GNP in zip(self._parts, self._sums(totals), strict=True):
            if part.local is not None:
                means_GNP = totals_GNP * (part.axis.groups / part.axis.columns(part.layout.shape))
                view = _with_parts(part.local)
                view.copy_(view.double() - _expanded(part, means_GNP, view.dim()))
        self._reduce.release()

    def drop_buffers(self) -> None:
        self._reduce.drop()

    def _sums(self, buffer: Tensor) -> list[Tensor]:
        flat = torch.split(buffer.view(torch.float64)[AllReduce.HEADER :], self._counts)
        shapes = [(_output_groups(part), -1, part.parts) for part in self._parts]
        return [sums.view(shape) for sums, shape in zip(flat, shapes, strict=True)]


def _output_groups(part: LocalPart) -> int:
    return 1 if part.axis.dim == 0 else part.axis.groups


def _output_count(part: LocalPart) -> int:
    return _output_groups(part) * part.layout.held(_dim(part)) * part.parts


def _output_sums(part: LocalPart) -> Tensor:
    outputs = part.layout.held(_dim(part))
    sums_GNP = torch.zeros(_output_groups(part), outputs, part.parts, dtype=torch.float64, device=part.device)
    if part.local is None:
        return sums_GNP
    view = _with_parts(part.local)
    kept = (0, _dim(part), view.dim() - 1)
    summed = [dim for dim in range(view.dim()) if dim not in kept]
    by_row = view.sum(summed, dtype=torch.float64) if summed else view.double()
    if part.axis.dim == 0:
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
