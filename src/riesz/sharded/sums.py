"""A few sums of each column are all that a shard needs of the others: the strategies that send them.

`metrics/low_rank.py` has the formulas: A rank sends the K sums `U f` of each column of its span, solves the span alone,
and adds `V X` times the sums of all spans of the column.

Shape suffixes: K sums of a column, L rows of a span, R sums of all spans of one column, C columns, W ranks, S slots for
spans, G groups of a convolution. Everything is float64 but for those sums that are sent in float32.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from riesz.backends import choose
from riesz.backends.opaque_operator import count_writes, is_watched
from riesz.backends.shards import ShardBlock, ShardKernels
from riesz.metrics import Metric
from riesz.metrics.low_rank import Constant, RowSpan, SpanTables, low_rank
from riesz.sharded.agreement import RankGroup, Work
from riesz.sharded.collectives import AllGather, AllReduce, padded
from riesz.sharded.columns import ColumnBatch, Strategy, direct_rows_, work_of
from riesz.sharded.layout import LocalShard, real_view


class SumStrategy(Strategy[ColumnBatch]):
    """Sums of each column travel, then every rank corrects its own rows.

    A step is two calls, each for all gradients that share the collective:

        start    pack      buffer <- U f                                           kernels.pack(addresses, buffer)
        finish   correct   f <- the metric on the span alone + scale V X received  kernels.correct_(addresses, received)

    `kernels` are the `ShardKernels` of the one backend that serves all gradients here (`Backend.shard_kernels`). They
    are made of `ShardBlock`s, one per gradient and span, with places in the buffers that never change, and of
    `SpanTables`, one per span, which are made again when the metric's numbers change (`_make_tables`). Both calls get
    the addresses of the blocks' first entries, since FSDP2 allocates new gradients.

    Without kernels, `_pack` and `_correct` do the same with torch, one column batch at a time. Both ways read and write
    the same buffers, so ranks need not choose alike. A subclass says where sums lie in what is sent and received.
    """

    _collective: AllGather | AllReduce

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str, permuted: bool):
        self._group, self._batches, self._backend = group, batches, backend
        self._work = work_of(batches, permuted)
        self._kernels: ShardKernels | None = None
        self._kernel_class = self._choose_kernels()
        self._packed = False
        self._tables: dict[tuple[int, RowSpan], SpanTables] = {}  # by batch and span of this rank
        self._sources: list[tuple[LocalShard, int]] = []  # by block, the gradient and the byte in it that it begins at
        self._keys: list[tuple[int, RowSpan]] = []  # by block, whose tables it uses
        self._shards = list({id(m.shard): m.shard for batch in batches for m in batch.members if m.present}.values())

    def start(self) -> None:
        if self._work.update():
            self._make_tables()
        self._packed = self._kernels is not None and not is_watched()
        self._collective.start(self._pack_by_kernels if self._packed else self._pack)

    def finish(self) -> None:
        received = self._collective.finish()
        # The kernels keep sums of their own from the packing.
        if self._packed and self._kernels is not None and self._kernels.correct_(self._addresses(), received):
            count_writes([shard.local for shard in self._shards if shard.local is not None])
        else:
            self._correct(received)

    def drop_buffers(self) -> None:
        self._collective.drop_buffers()

    # -- with kernels: tables, places and addresses

    def _choose_kernels(self) -> type[ShardKernels] | None:
        """The kernels that serve all gradients here, if some do."""
        kinds = set()
        for batch in self._batches:
            longest = max((span.length for span, _ in batch.spans()), default=0)
            for shard in {id(member.shard): member.shard for member in batch.members if member.present}.values():
                local = shard.local
                assert local is not None
                if local.numel() == 0:
                    continue
                kernels = choose(self._backend, real_view(local)).shard_kernels if shard.is_dense() else None
                kinds.add(kernels if kernels is not None and longest <= kernels.max_rows else None)
        return kinds.pop() if len(kinds) == 1 else None

    def _make_tables(self) -> None:
        """Work out what depends on the metric's numbers; blocks, the first time only."""
        made: dict[object, SpanTables] = {}  # shared by batches of equal columns
        for batch in self._batches:
            for span, _ in batch.spans():
                key = (id(batch.metric), batch.rows, span, batch.dtype, batch.device)
                if key not in made:
                    others = [other for _, _, other in self._partners(batch, span)]
                    made[key] = SpanTables.of(batch.metric, batch.rows.n, span, others, batch.dtype, batch.device)
                self._tables[id(batch), span] = made[key]
        if self._kernel_class is None:
            return
        for_kernels = self._tables_for_kernels()
        if self._kernels is None:
            blocks = list(self._blocks(for_kernels))
            self._kernels = self._kernel_class(blocks) if blocks else None
        else:
            self._kernels.set_tables([for_kernels[key] for key in self._keys])

    def _tables_for_kernels(self) -> dict[tuple[int, RowSpan], SpanTables]:
        return self._tables

    def _blocks(self, tables: dict[tuple[int, RowSpan], SpanTables]) -> Iterator[ShardBlock]:
        for batch in self._batches:
            firsts = accumulate((member.columns for member in batch.members), initial=0)
            for member, column in zip(batch.members, firsts, strict=False):
                for span, first_row in batch.spans() if member.present else ():
                    width, stride = member.columns, member.shard.columns
                    self._sources.append((member.shard, (first_row * stride + member.first) * batch.dtype.itemsize))
                    self._keys.append((id(batch), span))
                    block = ShardBlock(span.length, width, stride, batch.dtype, tables[id(batch), span])
                    yield self._placed(block, batch, column, span) if span.length < batch.rows.n else block

    def _placed(self, block: ShardBlock, batch: ColumnBatch, column: int, span: RowSpan) -> ShardBlock:
        """The same block with the places of its sums: those of the batch's columns from this one on."""
        raise NotImplementedError

    def _addresses(self) -> list[int]:
        return [shard.local.data_ptr() + offset for shard, offset in self._sources if shard.local is not None]

    def _pack_by_kernels(self, buffer: Tensor) -> None:
        assert self._kernels is not None
        self._kernels.pack(self._addresses(), buffer)

    # -- with torch

    def _pack(self, buffer: Tensor) -> None:
        """Write the sums of all columns to the buffer."""
        raise NotImplementedError

    def _correct(self, received: Tensor) -> None:
        """Direct all columns, given the sums of all ranks."""
        raise NotImplementedError

    def _partners(self, batch: ColumnBatch, span: RowSpan) -> list[tuple[int, int, RowSpan]]:
        """Rank, slot and rows of each span whose sums a span of this rank receives."""
        return batch.rows.partners(span)


class ReducedSums(SumStrategy):
    """ReweightedL2: one all-reduce of the sum of each column.

    `g = (scale + blend) f + scale lam mean(f)`: the mean is all that a rank lacks, and sums may be added on their way.

    On the wire: 8 bytes per column, for each group of a convolution that is divided. In a ring, twice (W - 1)/W of that
    arrives at a rank.
    """

    @classmethod
    def serves(cls, batch: ColumnBatch, permuted: bool) -> bool:
        return batch.metric.off_diagonal is Constant  # which no order of the rows changes

    @classmethod
    def bytes(cls, batch: ColumnBatch) -> int:
        ranks = len(batch.rows.spans)
        return 16 * batch.columns * len(batch.rows.divided_groups) * (ranks - 1) // ranks

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str, permuted: bool):
        super().__init__(group, batches, backend, permuted)
        self._starts: dict[int, int] = {}  # by batch, in numbers
        count = 0
        for batch in batches:
            self._starts[id(batch)] = count
            count += len(batch.rows.divided_groups) * batch.columns
            own = [batch.rows.number(span) for span in batch.rows.divided[group.rank]]
            if len(set(own)) < len(own):  # the kernels store a sum, they do not add to it
                self._kernel_class = None
        self._collective = AllReduce(group, self._work, count, batches[0].device)

    def _tables_for_kernels(self) -> dict[tuple[int, RowSpan], SpanTables]:
        """The kernels multiply each row and add the mean, which is the first of their starting values, as it is."""
        changed: dict[tuple[int, RowSpan], SpanTables] = {}
        for batch in self._batches:
            assert isinstance(batch.metric, Metric)
            for span, _ in batch.spans():
                tables = self._tables[id(batch), span]
                starts_3R = tables.starts_3R * float(batch.metric.scale)
                changed[id(batch), span] = replace(tables, alone=batch.metric, starts_3R=starts_3R)
        return changed

    def _placed(self, block: ShardBlock, batch: ColumnBatch, column: int, span: RowSpan) -> ShardBlock:
        place = 8 * (self._starts[id(batch)] + batch.rows.number(span) * batch.columns + column)
        return replace(block, exact=1, exact_offset=place, solves_alone=False, partner_offsets=((place, place),))

    def _pack(self, numbers: Tensor) -> None:
        for batch in self._batches:
            columns_LC, totals_GC = batch.read(torch.float64), self._totals(numbers, batch)
            for span, row in batch.spans():
                if span.length < batch.rows.n:
                    totals_GC[batch.rows.number(span)] += columns_LC[row : row + span.length].sum(0)

    def _correct(self, received: Tensor) -> None:
        for batch in self._batches:
            metric, totals_GC = batch.metric, self._totals(received, batch)
            assert isinstance(metric, Metric)
            columns_LC, weight = batch.read(torch.float64), float(metric.scale * metric.strength) / batch.rows.n
            for span, row in batch.spans():
                own_LC, divided = columns_LC[row : row + span.length], span.length < batch.rows.n
                total_C = totals_GC[batch.rows.number(span)] if divided else own_LC.sum(0)
                own_LC.mul_(float(metric.scale + metric.blend)).add_(total_C * weight)
            batch.write(columns_LC)

    def _partners(self, batch: ColumnBatch, span: RowSpan) -> list[tuple[int, int, RowSpan]]:
        return [(self._group.rank, 0, span)]  # their total arrives, in one place

    def _totals(self, buffer: Tensor, batch: ColumnBatch) -> Tensor:
        start, groups = self._starts[id(batch)], len(batch.rows.divided_groups)
        return buffer[start : start + groups * batch.columns].view(groups, batch.columns)


@dataclass(frozen=True)
class SentSums:
    """The sums of one batch in what a rank sends: first those in float64, then the others."""

    exact: int  # how many of a column are in float64
    others: int  # and how many are not
    dtype: torch.dtype  # of the others
    exact_start: int  # in bytes
    others_start: int
    stop: int

    @classmethod
    def of(cls, batch: ColumnBatch, start: int = 0) -> "SentSums":
        form, columns = low_rank(batch.metric, batch.rows.n), batch.rows.slots * batch.columns
        assert form is not None
        dtype = torch.float64 if batch.dtype == torch.float64 else torch.float32
        exact, others = form.exact, form.terms - form.exact
        others_start = start + 8 * columns * exact
        return cls(exact, others, dtype, start, others_start, others_start + padded(dtype.itemsize * columns * others))


class GatheredSums(SumStrategy):
    """SobolevTilde, Sobolev, LaplacianSmoothing: one all-gather of the three or two sums of each column and span.

    On the wire: 16 bytes per column (two sums in float64; of SobolevTilde one in float64 and two in float32), or 24 of
    SobolevTilde in float64 or beyond `LONG` rows. Those of all W - 1 others arrive at a rank.
    """

    @classmethod
    def serves(cls, batch: ColumnBatch, permuted: bool) -> bool:
        return not permuted and batch.metric.off_diagonal not in (None, Constant)

    @classmethod
    def bytes(cls, batch: ColumnBatch) -> int:
        return (len(batch.rows.spans) - 1) * SentSums.of(batch).stop

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str, permuted: bool):
        super().__init__(group, batches, backend, permuted)
        self._sent: dict[int, SentSums] = {}
        size = 0
        for batch in batches:
            self._sent[id(batch)] = SentSums.of(batch, size)
            size = self._sent[id(batch)].stop
        self._collective = self._gather = AllGather(group, self._work, size, batches[0].device)

    def _placed(self, block: ShardBlock, batch: ColumnBatch, column: int, span: RowSpan) -> ShardBlock:
        sent, slot = self._sent[id(batch)], batch.rows.divided[self._group.rank].index(span)
        exact, others = self._offsets(batch, column, 0, slot)
        return replace(
            block,
            exact=sent.exact,
            inexact_dtype=sent.dtype,
            lead=batch.columns,
            exact_offset=exact,
            inexact_offset=others,
            partner_offsets=tuple(self._offsets(batch, column, rank, at) for rank, at, _ in batch.rows.partners(span)),
        )

    def _offsets(self, batch: ColumnBatch, column: int, rank: int, slot: int) -> tuple[int, int]:
        """The bytes of a column's sums in what is received from a rank; from rank 0, also in what is sent."""
        sent, first = self._sent[id(batch)], rank * self._gather.stride
        return (
            first + sent.exact_start + 8 * (slot * sent.exact * batch.columns + column),
            first + sent.others_start + sent.dtype.itemsize * (slot * sent.others * batch.columns + column),
        )

    def _pack(self, buffer: Tensor) -> None:
        for batch in self._batches:
            sent, columns_LC = self._sent[id(batch)], batch.read(torch.float64)
            exact_WSKC, others_WSKC = self._views(buffer, batch)
            divided = [(span, row) for span, row in batch.spans() if span.length < batch.rows.n]
            for slot, (span, row) in enumerate(divided):
                sums_KC = self._tables[id(batch), span].sums_KL @ columns_LC[row : row + span.length]
                exact_WSKC[0, slot] = sums_KC[: sent.exact]
                others_WSKC[0, slot] = sums_KC[sent.exact :]

    def _correct(self, received: Tensor) -> None:
        for batch in self._batches:
            assert isinstance(batch.metric, Metric)
            columns_LC = batch.read(torch.float64)
            sums_WSKC = torch.cat([sums.double() for sums in self._views(received, batch)], dim=2)
            for span, row in batch.spans():
                own_LC, tables = columns_LC[row : row + span.length], self._tables[id(batch), span]
                direct_rows_(own_LC, span.length, tables.alone, self._backend)
                if span.length < batch.rows.n:
                    partners = batch.rows.partners(span)
                    ranks, slots = [rank for rank, _, _ in partners], [slot for _, slot, _ in partners]
                    terms_KC = tables.coupling_KR @ sums_WSKC[ranks, slots].flatten(0, 1)
                    own_LC.addmm_(tables.basis_LK, terms_KC, alpha=float(batch.metric.scale))
            batch.write(columns_LC)

    def _views(self, buffer: Tensor, batch: ColumnBatch) -> list[Tensor]:
        """The sums of a batch in buffers of one or more ranks: in float64, and in the other dtype."""
        sent, by_rank = self._sent[id(batch)], buffer.view(-1, buffer.shape[-1])
        views = []
        for start, terms, dtype in (
            (sent.exact_start, sent.exact, torch.float64),
            (sent.others_start, sent.others, sent.dtype),
        ):
            shape = (len(by_rank), batch.rows.slots, terms, batch.columns)
            stop = start + dtype.itemsize * math.prod(shape[1:])
            views.append(by_rank[:, start:stop].view(dtype).view(shape))
        return views


class OutputMeans(Strategy[LocalShard]):
    """Centralization: one all-reduce of the sum of each output, `g = f - the mean over every axis but the output one`.

    On the wire: 8 bytes per output and group of a convolution, where an axis other than the output one is divided. In a
    ring, twice (W - 1)/W of that arrives at a rank.

    Shape suffixes: R rows of dim 0 (one if that is the output axis), N outputs, P real parts of a number.
    """

    @classmethod
    def serves(cls, part: LocalShard, permuted: bool) -> bool:
        return part.metric.mixes_columns

    @classmethod
    def bytes(cls, part: LocalShard) -> int:
        assert part.group is not None
        return 16 * math.prod(_output_shape(part)) * (part.group.size - 1) // part.group.size

    def __init__(self, group: RankGroup, parts: Sequence[LocalShard], backend: str, permuted: bool):
        self._parts = parts
        self._shapes_GNP = [_output_shape(part) for part in parts]
        self._groups_R = [_group_of_row(part) for part in parts]
        absent = [part.name for part in parts if part.local is None]
        layout = [(part.layout.shape, part.local is not None) for part in parts]
        self._work = Work(layout, title="Centralization", absent=absent)
        self._work.update()
        self._reduce = AllReduce(group, self._work, sum(map(math.prod, self._shapes_GNP)), parts[0].device)

    def start(self) -> None:
        self._reduce.start(self._pack)

    def finish(self) -> None:
        sums = self._split(self._reduce.finish())
        for part, groups_R, sums_GNP in zip(self._parts, self._groups_R, sums, strict=True):
            if part.local is not None:
                means_GNP = sums_GNP * (part.axis.groups / part.axis.columns(part.layout.shape))
                view = _by_output(part, part.local)
                between = [1] * (view.dim() - 3)
                view.copy_(view.double() - means_GNP[groups_R].view(*view.shape[:2], *between, part.parts))

    def drop_buffers(self) -> None:
        self._reduce.drop_buffers()

    def _pack(self, numbers: Tensor) -> None:
        for part, groups_R, sums_GNP in zip(self._parts, self._groups_R, self._split(numbers), strict=True):
            if part.local is not None:
                view = _by_output(part, part.local)
                between = list(range(2, view.dim() - 1))
                sums_GNP.index_add_(0, groups_R, view.sum(between, dtype=torch.float64) if between else view.double())

    def _split(self, numbers: Tensor) -> list[Tensor]:
        flat = torch.split(numbers, list(map(math.prod, self._shapes_GNP)))
        return [sums.view(shape) for sums, shape in zip(flat, self._shapes_GNP, strict=True)]


def _by_output(part: LocalShard, local: Tensor) -> Tensor:
    """A view of shape (R, N, what is averaged over, P)."""
    assert part.axis.dim is not None  # rasterized, there is nothing to average over
    view = real_view(local) if local.is_complex() else local.unsqueeze(-1)
    return view.unsqueeze(0) if part.axis.dim == 0 else view.movedim(part.axis.dim, 1)


def _output_shape(part: LocalShard) -> tuple[int, int, int]:
    """How many groups of dim 0 are averaged each by itself, outputs this rank holds, real parts of a number."""
    assert part.axis.dim is not None
    return 1 if part.axis.dim == 0 else part.axis.groups, part.layout.local_shape[part.axis.dim], part.parts


def _group_of_row(part: LocalShard) -> Tensor:
    """The group that each row of dim 0 belongs to, where groups are blocks of dim 0 and not of the outputs."""
    if part.axis.dim == 0:
        return torch.zeros(1, dtype=torch.long, device=part.device)
    rows = torch.cat([torch.arange(span.start, span.stop) for span in part.layout.held[0]] or [torch.arange(0)])
    return (rows // (part.layout.shape[0] // part.axis.groups)).to(part.device)
