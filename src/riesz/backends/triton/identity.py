"""g = (scale + blend) f, entry by entry."""

import triton
import triton.language as tl

from riesz.backends.triton.columns import aligned, multiple, rounded, widened


@triton.jit
def direct(
    address, block, geometry, numbers, scratch, DTYPE: tl.constexpr, ACC: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, L: tl.constexpr, LEVELS: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
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
