"""g = f - mean(f over every axis but the directed one), per block of the outer axis.

A tile is S rows by C entries: a row is one index of the directed axis, its entries run over all other axes. A panel is
L such tiles.
"""

import triton
import triton.language as tl

from riesz.backends.triton.columns import aligned, multiple, offsets, rounded, widened


@triton.jit
def place(rows, l, first, C: tl.constexpr, VECTOR: tl.constexpr):
    """The pointers of tile l of a panel, and their mask."""
    pointer_S, valid_S, count, inner, stride_outer, stride_inner = rows
    entry_C = first + l * C + tl.arange(0, C).to(tl.int64)
    offset_C = offsets(entry_C, inner, stride_outer, stride_inner, VECTOR)
    return pointer_S[:, None] + offset_C[None, :], valid_S[:, None] & (entry_C < count)[None, :]


@triton.jit
def direct(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
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
