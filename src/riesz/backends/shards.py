"""The compiled kernels for shards: columns whose rows are on several ranks, the sums they exchange and their solution.

Addresses of gradients are passed at every call, numbers of the metrics when they change. Everything else is fixed when
the kernels are made.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from riesz.backends import cpu, opaque_operator
from riesz.backends.native import BAD_ARGUMENT, DTYPES, CMetric, CShard, Native, check, load, threads
from riesz.backends.registry import choose
from riesz.metrics import Operator

MAX_ROWS = 1 << 16
"""Longest run of rows: the scratch memory of a tile grows with it."""


_NONE = torch.zeros(0, 0, dtype=torch.float64)


@dataclass(frozen=True)
class RunNumbers:
    """What a run needs of its metric's numbers; runs of the same rows share it. The defaults are for whole columns."""

    metric: Operator  # what the run solves by itself
    table_KL: Tensor = _NONE  # the weights of the sums of each column, in float64; no rows where nothing is sent
    coupling: Tensor = _NONE  # starting values per sum of each partner, of shape (3, partners * K)
    # Starting values per sum of the run's own, of shape (3, K); None where the kernels must work them out.
    alone: Tensor | None = None


@dataclass(frozen=True)
class ShardRun:
    """A run of rows of some columns of one gradient: entry (row, column) is `data[row * stride + column]`."""

    rows: int
    columns: int
    stride: int
    dtype: torch.dtype
    numbers: RunNumbers  # what changes with the metric
    exact: int = 0  # how many of the sums, from the first, are stored in float64
    inexact_dtype: torch.dtype = torch.float64  # of the others
    lead: int = 0  # entries from one sum of a column to the next
    exact_offset: int = 0  # bytes from the start of the buffer to this run's first sums, of either kind
    inexact_offset: int = 0
    solves_alone: bool = True  # whether the solution starts from that of the run by itself
    # By partner, the bytes to its exact and to its inexact sums in what is received.
    partner_offsets: tuple[tuple[int, int], ...] = ()


class ShardKernels:
    """The kernels of many runs, each called once for all of them."""

    def __init__(self, runs: Sequence[ShardRun]):
        native = load()
        assert isinstance(native, Native)
        self._native = native
        self._count = len(runs)
        self._shards = (CShard * len(runs))()
        self._offsets = [array("q", [offset for pair in run.partner_offsets for offset in pair]) for run in runs]
        own = 0
        for shard, run, offsets in zip(self._shards, runs, self._offsets, strict=True):
            shard.rows, shard.columns, shard.stride, shard.dtype = run.rows, run.columns, run.stride, DTYPES[run.dtype]
            shard.terms, shard.exact, shard.lead = len(run.numbers.table_KL), run.exact, run.lead
            shard.inexact_dtype = DTYPES[run.inexact_dtype]
            shard.exact_offset, shard.inexact_offset = run.exact_offset, run.inexact_offset
            shard.partners, shard.solves_alone = len(run.partner_offsets), run.solves_alone
            shard.offsets = offsets.buffer_info()[0]
            if run.numbers.alone is not None:
                shard.own_offset = own
                own += run.numbers.alone.shape[1] * run.columns
        self._own = torch.empty(own, dtype=torch.float64)  # the sums of this rank, as the walk needs them
        self.set_numbers([run.numbers for run in runs])

    def set_numbers(self, numbers: Sequence[RunNumbers]) -> None:
        """Compute with other numbers, by run; those of a run may differ from its first ones in their values alone."""
        self._kept: list[object] = []  # the memory that the structs point to
        by_id: dict[int, tuple[int, int, int | None, CMetric]] = {}
        for shard, own in zip(self._shards, numbers, strict=True):
            if (values := by_id.get(id(own))) is None:
                table, coupling, metric = own.table_KL.contiguous(), own.coupling.contiguous(), own.metric
                alone = None if own.alone is None else own.alone.contiguous()
                self._kept += [own, table, coupling, alone]
                values = by_id[id(own)] = (
                    table.data_ptr(),
                    coupling.data_ptr(),
                    None if alone is None else alone.data_ptr(),
                    CMetric(metric.native_kind, metric.native_riemann, *metric.native_numbers()),
                )
            shard.table, shard.coupling, shard.alone, shard.metric = values

    @staticmethod
    def serves(local: Tensor, backend: str) -> bool:
        """Whether the kernels compute on this memory under the name the user chose."""
        return local.numel() == 0 or (local.dtype in DTYPES and choose(backend, local) is cpu.CPU)

    @staticmethod
    def available() -> bool:
        """Whether the kernels may run now: a dispatch mode must see torch's own operators instead."""
        return isinstance(load(), Native) and not opaque_operator.is_watched()

    def sums(self, addresses: Sequence[int], sums: Tensor) -> None:
        """Store the sums of every run, whose first entries are at these addresses."""
        check(self._call(self._native.shard_sums, addresses, sums))

    def solve_(self, addresses: Sequence[int], received: Tensor) -> bool:
        """Direct every run in place; False, with nothing touched, if the kernels cannot at this strength."""
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
