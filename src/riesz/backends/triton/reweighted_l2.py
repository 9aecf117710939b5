"""g = (scale + blend) f + scale lam mean(f), column by column."""

import triton
import triton.language as tl

from riesz.backends.triton.columns import column_sum, load_panel, open_columns, panel_sum, store_tile


@triton.jit
def direct(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
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
