"""The compiled kernels for shards: columns whose rows are on several ranks, the sums they exchange and their solution.

Addresses of gradients are passed at every call. Everything else is fixed when the kernels are made.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riesz.backends import cpu, opaque_operator
from riesz.backends.native import BAD_ARGUMENT, DTYPES, NO_MEMORY, CMetric, CShard, Native, load, threads
from riesz.backends.registry import choose
from riesz.metrics import Operator

MAX_ROWS = 1 << 16
"""Longest run of rows: the scratch memory of a tile grows with it."""


@dataclass(frozen=True)
class ShardRun:
    """A run of rows of some columns of one gradient: entry (row, column) is `data[row * stride + column]`.

    Attributes:
        rows, columns, stride, dtype: of the block of memory.
        table_KL: the weights of the sums of each column, in float64; no rows where nothing is sent.
        exact: how many of the sums, from the first, are stored in float64; the others have `inexact_dtype`.
        lead: entries from one sum of a column to the next.
        exact_offset, inexact_offset: bytes from the start of the buffer to this run's first sums.
        metric: what the run solves by itself.
        solves_alone: whether the solution starts from that of the run by itself.
        alone: its starting values per sum of the run's own, of shape (3, K); None where the kernels must work them out.
        coupling: starting values per sum of each partner, of shape (3, partners * K).
        partner_offsets: by partner, the bytes to its exact and to its inexact sums in what is received.
    """

    rows: int
    columns: int
    stride: int
    dtype: torch.dtype
    table_KL: Tensor
    exact: int
    inexact_dtype: torch.dtype
    lead: int
    exact_offset: int
    inexact_offset: int
    metric: Operator
    solves_alone: bool
    alone: Tensor | None
    coupling: Tensor
    partner_offsets: tuple[tuple[int, int], ...]


class ShardKernels:
    """The kernels of many runs, each called once for all of them."""

    def __init__(self, runs: Sequence[ShardRun]):
        native = load()
        assert isinstance(native, Native)
        self._native = native
        self._count = len(runs)
        self._shards = (CShard * len(runs))()
        self._kept: list[object] = []  # the memory that the structs point to
        own = 0
        for shard, run in zip(self._shards, runs, strict=True):
            table, coupling = run.table_KL.contiguous(), run.coupling.contiguous()
            offsets = array("q", [offset for pair in run.partner_offsets for offset in pair])
            self._kept += [table, coupling, offsets]
            shard.rows, shard.columns, shard.stride, shard.dtype = run.rows, run.columns, run.stride, DTYPES[run.dtype]
            shard.terms, shard.exact, shard.lead = len(table), run.exact, run.lead
            shard.inexact_dtype = DTYPES[run.inexact_dtype]
            shard.exact_offset, shard.inexact_offset = run.exact_offset, run.inexact_offset
            shard.table, shard.coupling = table.data_ptr(), coupling.data_ptr()
            shard.partners, shard.solves_alone = len(run.partner_offsets), run.solves_alone
            shard.offsets = offsets.buffer_info()[0]
            if run.alone is not None:
                alone = run.alone.contiguous()
                self._kept.append(alone)
                shard.alone, shard.own_offset = alone.data_ptr(), own
                own += alone.shape[1] * run.columns
            shard.metric = CMetric(run.metric.native_kind, run.metric.native_riemann, *run.metric.native_numbers())

        self._own = torch.empty(own, dtype=torch.float64)  # the sums of this rank, as the walk needs them

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
        data = array("Q", addresses)
        result = self._native.shard_sums(
            data.buffer_info()[0],
            self._shards,
            self._count,
            sums.data_ptr(),
            self._own.data_ptr(),
            self._native.parallel_for,
            threads(),
        )
        _check(result)

    def solve_(self, addresses: Sequence[int], received: Tensor) -> bool:
        """Direct every run in place; False, with nothing touched, if the kernels cannot at this strength."""
        data = array("Q", addresses)
        result = self._native.shard_walk(
            data.buffer_info()[0],
            self._shards,
            self._count,
            received.data_ptr(),
            self._own.data_ptr(),
            self._native.parallel_for,
            threads(),
        )
        if result == BAD_ARGUMENT:
            return False
        _check(result)
        return True


def _check(result: int) -> None:
    if result == NO_MEMORY:
        raise MemoryError("riesz: no memory for the scratch space of the cpu backend")
    if result:
        raise RuntimeError(f"riesz: the cpu backend refused its arguments (code {result})")
