"""g = (scale + blend) f + scale lam mean(f), column by column."""

import triton
import triton.language as tl

from riesz.backends.triton.columns import aligned, load_panel, multiple, offsets, store_tile, total, total_of_all


@triton.jit
def direct(
    address, block, n, outer, inner, stride_outer, stride_row, stride_inner, blocks, numbers, scratch,
    DTYPE: tl.constexpr, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr,
    LEVELS: tl.constexpr, VECTOR: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    pointer = aligned(address, DTYPE, VECTOR)
    columns, stride_row = multiple(outer * inner, VECTOR), multiple(stride_row, VECTOR)
    column_C = block * C + tl.arange(0, C)
    offset_C, live_C = offsets(column_C, inner, stride_outer, stride_inner, VECTOR), column_C < columns
    lam, scale, blend = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    factor = (scale + blend).to(ACC)
    if ONE:
        f = load_panel(pointer, 0, n, stride_row, offset_C, live_C, S, L)
        shared_C = (scale * lam).to(ACC) * (total(f, ACC, S, C, L) / n)
        for l in tl.static_range(L):
            value_SC = factor * f[l].to(ACC) + shared_C[None, :]
            store_tile(pointer, value_SC, 0, l, n, stride_row, offset_C, live_C, S, L)
    else:
        sum_C = total_of_all(pointer, n, stride_row, offset_C, live_C, ACC, S, C, L)
        shared_C = (scale * lam).to(ACC) * (sum_C / n)
        for first in range(0, n, S * L):
            f = load_panel(pointer, first, n, stride_row, offset_C, live_C, S, L)
            for l in tl.static_range(L):
                value_SC = factor * f[l].to(ACC) + shared_C[None, :]
                store_tile(pointer, value_SC, first, l, n, stride_row, offset_C, live_C, S, L)
