"""Kernels for shards: columns whose rows are on several ranks, the sums they exchange and their solution.

A backend that has them names a class like `CpuShardKernels` as its `shard_kernels`. `riesz.sharded.sums` makes one for
all gradients that share a collective, and calls it twice in a step. Addresses of gradients are passed at every call,
tables when the metric's numbers change. Everything else is fixed when the kernels are made.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from riesz.backends.native import BAD_ARGUMENT, DTYPES, CMetric, CShard, Native, check, load, threads
from riesz.metrics.low_rank import SpanTables


@dataclass(frozen=True)
class ShardBlock:
    """A span of rows of some columns of one gradient: entry (row, column) is `data[row * stride + column]`."""

    rows: int
    columns: int
    stride: int
    dtype: torch.dtype
    tables: SpanTables  # what changes with the metric
    exact: int = 0  # how many of the sums, from the first, are stored in float64
    inexact_dtype: torch.dtype = torch.float64  # of the others
    lead: int = 0  # entries from one sum of a column to the next
    exact_offset: int = 0  # bytes from the start of the buffer to this block's first sums, of either kind
    inexact_offset: int = 0
    solves_alone: bool = True  # whether the solution starts from that of the span by itself
    # By span of the column, the bytes to its exact and to its inexact sums in what is received.
    partner_offsets: tuple[tuple[int, int], ...] = ()


class ShardKernels(Protocol):
    """The kernels of many blocks, each called once for all of them. `riesz.sharded.sums.SumStrategy` says when."""

    max_rows: int
    """The longest span that they serve."""

    def __init__(self, blocks: Sequence[ShardBlock]): ...

    def set_tables(self, tables: Sequence[SpanTables]) -> None:
        """Compute with other numbers, by block; tables differ from the first ones in their values alone."""

    def pack(self, addresses: Sequence[int], buffer: Tensor) -> None:
        """Store the sums of every block, whose first entries are at these addresses, in a buffer of bytes.

        Sums that are not stored by any block keep their values.
        """

    def correct_(self, addresses: Sequence[int], received: Tensor) -> bool:
        """Direct every block in place, given all sums; False, with nothing touched, if they cannot at this strength."""


class CpuShardKernels:
    """The compiled kernels of csrc/shards.cpp."""

    max_rows = 1 << 16  # the scratch memory of a tile grows with it

    def __init__(self, blocks: Sequence[ShardBlock]):
        native = load()
        assert isinstance(native, Native)
        self._native = native
        self._count = len(blocks)
        self._shards = (CShard * len(blocks))()
        self._offsets = [array("q", [offset for pair in block.partner_offsets for offset in pair]) for block in blocks]
        own = 0
        for shard, block, offsets in zip(self._shards, blocks, self._offsets, strict=True):
            shard.rows, shard.columns, shard.stride = block.rows, block.columns, block.stride
            shard.dtype, shard.inexact_dtype = DTYPES[block.dtype], DTYPES[block.inexact_dtype]
            shard.terms, shard.exact, shard.lead = len(block.tables.sums_KL), block.exact, block.lead
            shard.exact_offset, shard.inexact_offset = block.exact_offset, block.inexact_offset
            shard.partners, shard.solves_alone = len(block.partner_offsets), block.solves_alone
            shard.offsets = offsets.buffer_info()[0]
            if block.tables.alone_3K is not None:
                shard.own_offset = own
                own += block.tables.alone_3K.shape[1] * block.columns
        self._own = torch.empty(own, dtype=torch.float64)  # the sums of this rank, as the walk needs them
        self.set_tables([block.tables for block in blocks])

    def set_tables(self, tables: Sequence[SpanTables]) -> None:
        self._kept: list[object] = []  # the memory that the structs point to
        by_id: dict[int, tuple[int, int, int | None, CMetric]] = {}
        for shard, own in zip(self._shards, tables, strict=True):
            if (values := by_id.get(id(own))) is None:
                self._kept.append(own)
                values = by_id[id(own)] = (
                    own.sums_KL.data_ptr(),
                    own.starts_3R.data_ptr(),
                    None if own.alone_3K is None else own.alone_3K.data_ptr(),
                    CMetric(own.alone.native_kind, own.alone.native_riemann, *own.alone.native_numbers()),
                )
            shard.table, shard.coupling, shard.alone, shard.metric = values

    def pack(self, addresses: Sequence[int], buffer: Tensor) -> None:
        check(self._call(self._native.shard_sums, addresses, buffer))

    def correct_(self, addresses: Sequence[int], received: Tensor) -> bool:
        result = self._call(self._native.shard_walk, addresses, received)
        if result == BAD_ARGUMENT:
            return False
        check(result)
        return True

    def _call(self, kernel: Any, addresses: Sequence[int], sums: Tensor) -> int:
        data, own = array("Q", addresses), self._own.data_ptr()
        where = (data.buffer_info()[0], self._shards, self._count)
        status: int = kernel(*where, sums.data_ptr(), own, self._native.parallel_for, threads())
        return status
