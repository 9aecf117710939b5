"""g = f - mean(f over every axis but the directed one), per block of the outer axis.

Here a lane's tile is S rows of the directed axis by C passengers; a panel is L such tiles.
"""

import triton
import triton.language as tl

from riesz.backends.triton.columns import aligned, exact, multiple, rounded


@triton.jit
def passengers(l, first, inner, stride_outer, stride_inner, C: tl.constexpr, VECTOR: tl.constexpr):
    passenger_C = first + l * C + tl.arange(0, C).to(tl.int64)
    if VECTOR > 1:
        return passenger_C, passenger_C
    else:
        return passenger_C, (passenger_C // inner) * stride_outer + (passenger_C % inner) * stride_inner


@triton.jit
def direct(
    address, block, n, outer, inner, stride_outer, stride_row, stride_inner, blocks, numbers, scratch,
    DTYPE: tl.constexpr, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
    LEVELS: tl.constexpr, VECTOR: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    pointer = aligned(address, DTYPE, VECTOR)
    stride_row, stride_block = multiple(stride_row, VECTOR), multiple(stride_outer * (outer // blocks), VECTOR)
    count = multiple((outer // blocks) * inner, VECTOR)
    row_S = block * S + tl.arange(0, S)
    place_S = (row_S // n) * stride_block + (row_S % n) * stride_row
    live_S = row_S < blocks * n
    sum_SC = tl.zeros((S, C), ACC)
    tiles = ()
    if ONE:
        for l in tl.static_range(L):
            passenger_C, offset_C = passengers(l, 0, inner, stride_outer, stride_inner, C, VECTOR)
            mask_SC = live_S[:, None] & (passenger_C < count)[None, :]
            tiles = tiles + (exact(tl.load(pointer + place_S[:, None] + offset_C[None, :], mask=mask_SC, other=0.0)),)
            sum_SC += tiles[l].to(ACC)
    else:
        for first in range(0, count, C * L):
            for l in tl.static_range(L):
                passenger_C, offset_C = passengers(l, first, inner, stride_outer, stride_inner, C, VECTOR)
                mask_SC = live_S[:, None] & (passenger_C < count)[None, :]
                f_SC = tl.load(pointer + place_S[:, None] + offset_C[None, :], mask=mask_SC, other=0.0)
                sum_SC += exact(f_SC).to(ACC)
    mean_S = tl.sum(sum_SC, axis=1) / count
    if ONE:
        for l in tl.static_range(L):
            passenger_C, offset_C = passengers(l, 0, inner, stride_outer, stride_inner, C, VECTOR)
            mask_SC = live_S[:, None] & (passenger_C < count)[None, :]
            value_SC = tiles[l].to(ACC) - mean_S[:, None]
            tl.store(pointer + place_S[:, None] + offset_C[None, :], rounded(value_SC, DTYPE), mask=mask_SC)
    else:
        for first in range(0, count, C * L):
            for l in tl.static_range(L):
                passenger_C, offset_C = passengers(l, first, inner, stride_outer, stride_inner, C, VECTOR)
                mask_SC = live_S[:, None] & (passenger_C < count)[None, :]
                where_SC = pointer + place_S[:, None] + offset_C[None, :]
                value_SC = exact(tl.load(where_SC, mask=mask_SC, other=0.0)).to(ACC) - mean_S[:, None]
                tl.store(where_SC, rounded(value_SC, DTYPE), mask=mask_SC)
