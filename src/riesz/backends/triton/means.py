"""Kernels of what is linear in the entry and a mean: Identity, ReweightedL2, Centralization. Each with its record."""

import triton
import triton.language as tl

from riesz.backends.triton.launch import Kernel, Registers, entry_programs, entry_tile, row_programs, row_tile
from riesz.backends.triton.panels import (
    aligned,
    column_sum,
    load_panel,
    multiple,
    offsets,
    open_columns,
    panel_sum,
    rounded,
    store_tile,
    widened,
)


@triton.jit
def identity(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """g = (scale + blend) f, entry by entry."""
    n, outer, inner = geometry[0], geometry[1], geometry[2]
    pointer = aligned(address, DTYPE, VECTOR)
    entries = multiple(outer * n * inner, VECTOR)
    factor = (tl.load(numbers + 1) + tl.load(numbers + 2)).to(ACC)
    for l in tl.static_range(L):
        entry_C = (block * L + l) * C + tl.arange(0, C)
        if VECTOR > 1:
            offset_C = entry_C
        else:
            row_C = entry_C // inner
            offset_C = (row_C // n) * geometry[3] + (row_C % n) * geometry[4] + (entry_C % inner) * geometry[5]
        f_C = tl.load(pointer + offset_C, mask=entry_C < entries, other=0.0)
        tl.store(pointer + offset_C, rounded(factor * widened(f_C).to(ACC), DTYPE), mask=entry_C < entries)


IDENTITY = Kernel(
    "identity", __name__, dict.fromkeys((2, 4, 8), Registers(4, 4)), entry_tile, entry_programs, halves_in_float32=True
)


@triton.jit
def reweighted_l2(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """g = (scale + blend) f + scale lam mean(f), column by column."""
    columns, n = open_columns(address, block, geometry, DTYPE, C, VECTOR), geometry[0]
    lam, scale, blend = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    factor = (scale + blend).to(ACC)
    if WHOLE:
        f = load_panel(columns, 0, S, L)
        shared_C = (scale * lam).to(ACC) * (panel_sum(f, ACC, S, C, L) / n)
        for l in tl.static_range(L):
            value_SC = factor * f[l].to(ACC) + shared_C[None, :]
            store_tile(columns, value_SC, 0, l, S, L)
    else:
        sum_C = column_sum(columns, ACC, S, C, L)
        shared_C = (scale * lam).to(ACC) * (sum_C / n)
        for first in range(0, n, S * L):
            f = load_panel(columns, first, S, L)
            for l in tl.static_range(L):
                value_SC = factor * f[l].to(ACC) + shared_C[None, :]
                store_tile(columns, value_SC, first, l, S, L)


REWEIGHTED_L2 = Kernel(
    "reweighted_l2", __name__, {2: Registers(8, 8), 4: Registers(16, 16), 8: Registers(16, 16)}, halves_in_float32=True
)


@triton.jit
def place(rows, l, first, C: tl.constexpr, VECTOR: tl.constexpr):
    """The pointers of tile l of a panel, and their mask."""
    pointer_S, valid_S, count, inner, stride_outer, stride_inner = rows
    entry_C = first + l * C + tl.arange(0, C).to(tl.int64)
    offset_C = offsets(entry_C, inner, stride_outer, stride_inner, VECTOR)
    return pointer_S[:, None] + offset_C[None, :], valid_S[:, None] & (entry_C < count)[None, :]


@triton.jit
def centralization(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """g = f - mean(f over every axis but the directed one), per block of the outer axis.

    A tile is S rows by C entries: a row is one index of the directed axis, its entries run over all other axes. A
    panel is L such tiles.
    """
    n, inner, stride_outer, blocks = geometry[0], geometry[2], geometry[3], geometry[6]
    outers = geometry[1] // blocks
    count = multiple(outers * inner, VECTOR)
    row_S = block * S + tl.arange(0, S)
    start_S = (row_S // n) * multiple(stride_outer * outers, VECTOR) + (row_S % n) * multiple(geometry[4], VECTOR)
    pointer_S = aligned(address, DTYPE, VECTOR) + start_S
    rows = (pointer_S, row_S < blocks * n, count, inner, stride_outer, geometry[5])
    sum_SC = tl.zeros((S, C), ACC)
    tiles = ()
    if WHOLE:
        for l in tl.static_range(L):
            place_SC, valid_SC = place(rows, l, 0, C, VECTOR)
            tiles = tiles + (widened(tl.load(place_SC, mask=valid_SC, other=0.0)),)
            sum_SC += tiles[l].to(ACC)
    else:
        for first in range(0, count, C * L):
            for l in tl.static_range(L):
                place_SC, valid_SC = place(rows, l, first, C, VECTOR)
                sum_SC += widened(tl.load(place_SC, mask=valid_SC, other=0.0)).to(ACC)
    mean_S = tl.sum(sum_SC, axis=1) / count
    if WHOLE:
        for l in tl.static_range(L):
            place_SC, valid_SC = place(rows, l, 0, C, VECTOR)
            tl.store(place_SC, rounded(tiles[l].to(ACC) - mean_S[:, None], DTYPE), mask=valid_SC)
    else:
        for first in range(0, count, C * L):
            for l in tl.static_range(L):
                place_SC, valid_SC = place(rows, l, first, C, VECTOR)
                value_SC = widened(tl.load(place_SC, mask=valid_SC, other=0.0)).to(ACC) - mean_S[:, None]
                tl.store(place_SC, rounded(value_SC, DTYPE), mask=valid_SC)


CENTRALIZATION = Kernel(
    "centralization",
    __name__,
    {2: Registers(8, 8), 4: Registers(8, 8), 8: Registers(8, 4)},
    row_tile,
    row_programs,
    halves_in_float32=True,
)
