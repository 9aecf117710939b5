"""Columns of many gradients side by side, what a strategy is, and the one for any metric: whole columns travel.

Shape suffixes: L the rows of this rank, N all rows, C columns, W ranks, G groups of a convolution, P parameters.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from riesz.backends import direct_
from riesz.control import permutation
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator
from riesz.metrics.low_rank import Constant, RowSpan
from riesz.private_torch import copy_all_
from riesz.sharded.agreement import RankGroup, Work
from riesz.sharded.collectives import WORD, AllToAll, Buffer, padded
from riesz.sharded.layout import LocalShard, RowPartition

MAX_NUMEL = 1 << 20
"""Entries of a column batch: a copy of one, in float64, is all that is in memory at a time."""

MAX_BYTES = 256 << 20
"""The most that arrives in one collective; larger models take several."""


@dataclass(frozen=True)
class Member:
    """Columns of one shard, from number `first` on."""

    shard: LocalShard
    first: int
    columns: int

    @property
    def present(self) -> bool:
        return self.shard.local is not None

    def read(self) -> Tensor:
        return self.shard.read()[:, self.first : self.first + self.columns]


@dataclass
class ColumnBatch:
    """Columns of one metric, dtype and partition into rows, in one rank group."""

    group: RankGroup
    rows: RowPartition
    metric: Operator
    dtype: torch.dtype
    device: torch.device
    members: list[Member] = field(default_factory=list)
    columns: int = 0

    @property
    def room(self) -> int:
        """How many more columns fit; decided by the rank with the most rows, so that all ranks agree."""
        return max(1, MAX_NUMEL // max(self.rows.counts)) - self.columns

    def add(self, shard: LocalShard, first: int) -> int:
        """Add as many columns of a shard as there is room for; returns how many."""
        columns = min(self.room, shard.columns - first)
        self.members.append(Member(shard, first, columns))
        self.columns += columns
        return columns

    def spans(self) -> list[tuple[RowSpan, int]]:
        """This rank's spans, each with the row of the batch that it begins at."""
        spans = self.rows.spans[self.group.rank]
        return list(zip(spans, accumulate((span.length for span in spans), initial=0), strict=False))

    def read(self, dtype: torch.dtype, width: int = 0) -> Tensor:
        """A copy of all columns, at least `width` of them; zeros where a parameter has no gradient, and at the end."""
        height = self.rows.counts[self.group.rank]
        all_LC = torch.zeros(height, max(width, self.columns), dtype=dtype, device=self.device)
        present = [pair for pair in self._split(all_LC[:, : self.columns]) if pair[0].present]
        if present:
            copy_all_([own_LC for _, own_LC in present], [member.read() for member, _ in present])
        return all_LC

    def write(self, columns_LC: Tensor) -> None:
        """Write all columns where they were read."""
        targets, values = [], []
        for member, own_LC in self._split(columns_LC):
            if member.present:
                home_LC = member.shard.view()
                if home_LC is None:
                    member.shard.write(own_LC, member.first)
                else:
                    targets.append(home_LC[:, member.first : member.first + member.columns])
                    values.append(own_LC)
        if targets:
            copy_all_(targets, values)

    def _split(self, columns_LC: Tensor) -> Iterator[tuple[Member, Tensor]]:
        widths = [member.columns for member in self.members]
        return zip(self.members, torch.split(columns_LC, widths, dim=1), strict=True)


def batch_columns(shards: Iterable[LocalShard]) -> list[ColumnBatch]:
    """Column batches in the order of their first columns, the same on every rank of a group."""
    latest: dict[object, ColumnBatch] = {}
    out: list[ColumnBatch] = []
    for shard in shards:
        assert shard.group is not None
        assert shard.partition is not None
        key = (shard.group, shard.partition, id(shard.metric), shard.dtype, shard.device)
        first = 0
        while first < shard.columns:
            batch = latest.get(key)
            if batch is None or batch.room <= 0:
                batch = latest[key] = ColumnBatch(shard.group, shard.partition, shard.metric, shard.dtype, shard.device)
                out.append(batch)
            first += batch.add(shard, first)
    return out


def work_of(batches: Sequence[ColumnBatch], permuted: bool) -> Work:
    """What ranks that direct these batches must have in common."""
    layout = [
        (
            type(batch.metric).__name__,
            batch.metric.fixed_settings(),
            batch.rows.n,
            batch.rows.groups,
            str(batch.dtype),
            [(member.columns, member.present) for member in batch.members],
        )
        for batch in batches
    ]
    absent = {member.shard.name for batch in batches for member in batch.members if not member.present}
    return Work((permuted, layout), [batch.metric for batch in batches], absent=absent)


def direct_rows_(columns_NC: Tensor, length: int, metric: Operator, backend: str) -> None:
    """Direct columns that are whole: groups of `length` rows, one after the other."""
    rows, columns = columns_NC.shape
    groups = rows // length
    direct_([ColumnView(columns_NC.view(groups, length, columns), groups, length, columns, groups)], metric, backend)


# -- strategies --------------------------------------------------------------------------------------------------------

Part = TypeVar("Part", ColumnBatch, LocalShard)


class Strategy(Generic[Part]):
    """One way for ranks to direct what they share: what it serves, what it sends, and what is computed around that.

    It is made once for a layout, of all that one collective carries, and used at every step while the layout holds.
    All ranks of the group make the same, because all that decides is known to each of them.

    Args:
        group: the ranks that share these columns.
        parts: what is directed.
        backend: the backend of what this rank computes.
        permuted: whether columns are directed along random orders of their rows, as a control.
    """

    def __init__(self, group: RankGroup, parts: Sequence[Part], backend: str, permuted: bool):
        raise NotImplementedError

    @classmethod
    def serves(cls, part: Part, permuted: bool) -> bool:
        """Whether it computes the operator of this part."""
        raise NotImplementedError

    @classmethod
    def bytes(cls, part: Part) -> int:
        """The bytes that arrive at a rank for this part in a step; in a ring, for an all-reduce."""
        raise NotImplementedError

    def start(self) -> None:
        """Pack what other ranks need, and begin to send it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for what other ranks send, and direct in place. Raises on all ranks if their work differs."""
        raise NotImplementedError

    def drop_buffers(self) -> None:
        """Free what is kept from step to step."""
        raise NotImplementedError

    @classmethod
    def within_limit(
        cls, group: RankGroup, parts: Iterable[Part], backend: str, permuted: bool
    ) -> "list[Strategy[Part]]":
        """Strategies for all of these parts whose collectives stay below the limit."""
        portions: list[list[Part]] = [[]]
        total = 0
        for part in parts:
            if portions[-1] and total + cls.bytes(part) > MAX_BYTES:
                portions.append([])
                total = 0
            portions[-1].append(part)
            total += cls.bytes(part)
        return [cls(group, portion, backend, permuted) for portion in portions]


class ExchangedColumns(Strategy[ColumnBatch]):
    """Any metric: an all-to-all gives each rank some of the columns as wholes, which it directs; another returns them.

    On the wire: every entry twice, in the gradient's dtype. A rank gets the n - n/W rows it lacks of its M/W columns,
    and its own n/W rows of the others' back: `2 M n/W (W - 1)/W` entries.

    Part r of the buffer `_rows` is this rank's rows of the columns that rank r directs; part r of the buffer `_columns`
    is rank r's rows of the columns that this rank directs. The first exchange goes from `_rows` to `_columns`.
    """

    @classmethod
    def serves(cls, batch: ColumnBatch, permuted: bool) -> bool:
        # Two of these are never worth it where one all-reduce of a sum serves.
        return batch.metric.off_diagonal is not Constant

    @classmethod
    def bytes(cls, batch: ColumnBatch) -> int:
        counts = batch.rows.counts
        there, back = sum(counts) - min(counts), max(counts) * (len(counts) - 1)
        return (there + back) * -(-batch.columns // len(counts)) * batch.dtype.itemsize

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str, permuted: bool):
        self._group, self._batches, self._backend, self._permuted = group, batches, backend, permuted
        self._work = work_of(batches, permuted)
        self._shares = [-(-batch.columns // group.size) for batch in batches]
        own, by_rank = self._sizes(group.rank), [self._sizes(rank) for rank in range(group.size)]
        sent, received = [sum(own)] * group.size, [sum(sizes) for sizes in by_rank]
        device = batches[0].device
        self._rows = Buffer(sum(sent) + WORD * group.size, device)
        self._columns = Buffer(sum(received) + WORD * group.size, device)
        self._there = AllToAll(group, self._work, sent, received, (self._rows, self._columns))
        self._back = AllToAll(group, self._work, received, sent, (self._columns, self._rows), is_back=True)
        self._row_ranges = [[(0, group.size, start)] for start in _starts(own, WORD)]
        self._column_ranges = self._ranges(by_rank)
        positions = [_positions(batch) for batch in batches]
        in_order = [torch.equal(p, torch.arange(len(p), device=p.device)) for p in positions]
        self._positions = [None if ordered else p for p, ordered in zip(positions, in_order, strict=True)]

    def start(self) -> None:
        self._work.update()
        for index, (batch, share) in enumerate(zip(self._batches, self._shares, strict=True)):
            columns_LC = batch.read(batch.dtype, share * self._group.size)
            (parts_WLC,) = self._views(self._rows.get(), index, self._row_ranges[index])
            parts_WLC.copy_(columns_LC.view(len(columns_LC), self._group.size, share).transpose(0, 1))
        self._there.start()

    def finish(self) -> None:
        self._there.finish()
        for index, batch in enumerate(self._batches):
            views = list(self._views(self._columns.get(), index, self._column_ranges[index]))
            # Rank by rank, in the order of their own rows; then sorted into the order of the axis, and back.
            columns_NC, positions_N = torch.cat([view.flatten(0, 1) for view in views]), self._positions[index]
            if positions_N is not None:
                columns_NC = torch.empty_like(columns_NC).index_copy_(0, positions_N, columns_NC)
            if self._permuted:
                _direct_permuted_(columns_NC, batch, self._backend)
            else:
                direct_rows_(columns_NC, batch.rows.n, batch.metric, self._backend)
            if positions_N is not None:
                columns_NC = columns_NC.index_select(0, positions_N)
            pieces = torch.split(columns_NC, [view.shape[0] * view.shape[1] for view in views])
            copy_all_(views, [piece.view(view.shape) for piece, view in zip(pieces, views, strict=True)])
        self._back.start()
        self._back.finish()
        for index, batch in enumerate(self._batches):
            (parts_WLC,) = self._views(self._rows.get(), index, self._row_ranges[index])
            batch.write(parts_WLC.transpose(0, 1).flatten(1)[:, : batch.columns])
        self._rows.release()
        self._columns.release()

    def drop_buffers(self) -> None:
        self._rows.drop()
        self._columns.drop()

    def _sizes(self, rank: int) -> list[int]:
        """By batch, the bytes of a rank's rows of one rank's share of the columns."""
        return [
            padded(batch.rows.counts[rank] * share * batch.dtype.itemsize)
            for batch, share in zip(self._batches, self._shares, strict=True)
        ]

    def _ranges(self, by_rank: list[list[int]]) -> list[list[tuple[int, int, int]]]:
        """By batch, neighbours with equal rows in every batch: first rank, past the last, byte of the first part."""
        counts = [tuple(batch.rows.counts[rank] for batch in self._batches) for rank in range(self._group.size)]
        ranges: list[list[tuple[int, int, int]]] = [[] for _ in self._batches]
        first, position = 0, 0
        for rank in range(1, self._group.size + 1):
            if rank == self._group.size or counts[rank] != counts[first]:
                for own, start in zip(ranges, _starts(by_rank[first], position + WORD), strict=True):
                    own.append((first, rank, start))
                position += (rank - first) * (WORD + sum(by_rank[first]))
                first = rank
        return ranges

    def _views(self, buffer: Tensor, index: int, ranges: list[tuple[int, int, int]]) -> Iterator[Tensor]:
        """The parts of one batch in a buffer, as tensors of shape (ranks, rows of each, columns of a share)."""
        batch, share = self._batches[index], self._shares[index]
        flat, size = buffer.view(batch.dtype), batch.dtype.itemsize
        for first, stop, start in ranges:
            rank = first if ranges is self._column_ranges[index] else self._group.rank
            rows, stride = batch.rows.counts[rank], WORD + sum(self._sizes(rank))
            yield flat.as_strided((stop - first, rows, share), (stride // size, share, 1), start // size)


def _starts(sizes: Sequence[int], first: int) -> list[int]:
    return list(accumulate(sizes, initial=first))[:-1]


def _positions(batch: ColumnBatch) -> Tensor:
    """Where on the axis the rows of all ranks belong, rank by rank."""
    rows = [torch.arange(span.start, span.stop) for spans in batch.rows.spans for span in spans]
    return torch.cat(rows).to(batch.device)


def _direct_permuted_(columns_NC: Tensor, batch: ColumnBatch, backend: str) -> None:
    """Direct this rank's share; each gradient has an order of its own, which each of its columns follows."""
    n, share = batch.rows.n, columns_NC.shape[1]
    first = share * batch.group.rank
    orders_NP = torch.stack([permutation(member.shard.name, n, batch.device) for member in batch.members], dim=1)
    owners = torch.repeat_interleave(torch.tensor([member.columns for member in batch.members]))
    # The padding of the last shares belongs to no gradient and may follow any order.
    own = torch.nn.functional.pad(owners, (0, share * batch.group.size - len(owners)))[first : first + share]
    order_GNC = orders_NP[:, own.to(batch.device)].expand(batch.rows.groups, n, share)
    columns_GNC = columns_NC.view(batch.rows.groups, n, share)
    shuffled_GNC = columns_GNC.gather(1, order_GNC)
    direct_rows_(shuffled_GNC.view(-1, share), n, batch.metric, backend)
    columns_GNC.scatter_(1, order_GNC, shuffled_GNC)
