"""What the column kernels share: a panel of rows in registers, sums over the pieces of a column, powers of z.

Shape suffixes: S pieces of a column, C columns.

A program owns C neighbouring columns. Its panel is S * L rows of them: lane (s, c) holds rows s * L .. s * L + L - 1 of
column c. Lanes march alone; pieces are joined by sums over lanes (`tl.sum`) and by `chain`, never by a scan. What is
past the end of a column or past the last column is masked, and reads as zero.
"""

import triton
import triton.language as tl


@triton.jit
def aligned(address, DTYPE: tl.constexpr, VECTOR: tl.constexpr):
    """The address as a pointer; a vectorised tile starts at a multiple of 16 bytes."""
    pointer = address.to(tl.pointer_type(DTYPE))
    if VECTOR > 1:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def multiple(value, VECTOR: tl.constexpr):
    """The value, in a form that shows the compiler it is a multiple of VECTOR."""
    return (value // VECTOR) * VECTOR


@triton.jit
def offsets(passenger, inner, stride_outer, stride_inner, VECTOR: tl.constexpr):
    """Where each passenger lies. Vectorised tiles have one outer passenger and neighbours side by side."""
    if VECTOR > 1:
        return passenger
    else:
        return (passenger // inner) * stride_outer + (passenger % inner) * stride_inner


@triton.jit
def open_columns(address, block, geometry, DTYPE: tl.constexpr, C: tl.constexpr, VECTOR: tl.constexpr):
    """The columns of a program, as the functions below take them: pointer, n, stride_row, offset_C, live_C."""
    n, outer, inner = geometry[0], geometry[1], geometry[2]
    column_C = block * C + tl.arange(0, C)
    offset_C = offsets(column_C, inner, geometry[3], geometry[5], VECTOR)
    live_C = column_C < multiple(outer * inner, VECTOR)
    return aligned(address, DTYPE, VECTOR), n, multiple(geometry[4], VECTOR), offset_C, live_C


@triton.jit
def exact(f):
    """A tile in a type that casts to the others everywhere: the interpreter casts bfloat16 to float32 alone."""
    return f.to(tl.float32) if f.dtype == tl.bfloat16 else f


@triton.jit
def rounded(value, DTYPE: tl.constexpr):
    """The value as it is stored."""
    return value.to(tl.float32).to(DTYPE) if tl.bfloat16 == DTYPE else value.to(DTYPE)


@triton.jit
def row_numbers(first, l, S: tl.constexpr, L: tl.constexpr):
    return first + tl.arange(0, S).to(tl.int64) * L + l


@triton.jit
def load_panel(columns, first, S: tl.constexpr, L: tl.constexpr):
    """L tiles of S x C, as stored."""
    pointer, n, stride_row, offset_C, live_C = columns
    tiles = ()
    for l in tl.static_range(L):
        row_S = row_numbers(first, l, S, L)
        mask_SC = (row_S < n)[:, None] & live_C[None, :]
        f_SC = tl.load(pointer + (row_S * stride_row)[:, None] + offset_C[None, :], mask=mask_SC, other=0.0)
        tiles = tiles + (exact(f_SC),)
    return tiles


@triton.jit
def store_tile(columns, value_SC, first, l, S: tl.constexpr, L: tl.constexpr):
    pointer, n, stride_row, offset_C, live_C = columns
    row_S = row_numbers(first, l, S, L)
    mask_SC = (row_S < n)[:, None] & live_C[None, :]
    place_SC = pointer + (row_S * stride_row)[:, None] + offset_C[None, :]
    tl.store(place_SC, rounded(value_SC, pointer.dtype.element_ty), mask=mask_SC)


@triton.jit
def total(tiles, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr):
    """The sum of every column of a panel."""
    sum_SC = tl.zeros((S, C), ACC)
    for l in tl.static_range(L):
        sum_SC += tiles[l].to(ACC)
    return tl.sum(sum_SC, axis=0)


@triton.jit
def total_of_all(columns, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr):
    """The sum of every column, panel by panel."""
    sum_C = tl.zeros((C,), ACC)
    for first in range(0, columns[1], S * L):
        sum_C += total(load_panel(columns, first, S, L), ACC, S, C, L)
    return sum_C


@triton.jit
def rows_of(first, n, S: tl.constexpr, L: tl.constexpr):
    """How many rows of every piece are there; a piece past the end of the column has none."""
    return tl.minimum(tl.maximum(n - first - tl.arange(0, S) * L, 0), L)


@triton.jit
def entry(
    f, base_C, l: tl.constexpr, first, n, ACC: tl.constexpr, WIDE: tl.constexpr, S: tl.constexpr, L: tl.constexpr
):
    """f - base in row l of every piece, zero past the end; the base is zero where sums have digits to spare.

    Sums of float32 in float64 have: their mean is taken off afterwards. In float64 there are none, so it, or that of a
    panel, is taken off first, and a column's common part, however large, costs the rest no precision.
    """
    x_SC = f[l].to(ACC)
    if WIDE:
        x_SC = tl.where((row_numbers(first, l, S, L) < n)[:, None], x_SC - base_C[None, :], 0.0)
    return x_SC


@triton.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The even and the odd rows."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS // 2, 2, COLUMNS)), (0, 2, 1)))


@triton.jit
def chain(value_SC, ratio_S, start_C, S: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, BACKWARD: tl.constexpr):
    """The state before every piece, and after the last, where a piece turns state x into ratio x + value.

    Neighbouring pieces are composed pair by pair up to one, then states are handed down again: a tree of splits and
    joins in a fixed order. `BACKWARD` runs from the last piece to the first. LEVELS is log2 S.
    """
    values, ratios = (), ()
    x, r = value_SC, tl.reshape(ratio_S, (S, 1))
    for level in tl.static_range(LEVELS):
        even, odd = halves(x, S >> level, C)
        r_even, r_odd = halves(r, S >> level, 1)
        if BACKWARD:
            even, odd = odd, even
            r_even, r_odd = r_odd, r_even
        values, ratios = values + (even,), ratios + (r_even,)
        x, r = r_odd * even + odd, r_odd * r_even
    state = tl.reshape(start_C, (1, C))
    last = tl.reshape(r * state + x, (C,))
    for level in tl.static_range(LEVELS):
        after = ratios[LEVELS - 1 - level] * state + values[LEVELS - 1 - level]
        if BACKWARD:
            state = tl.join(after, state)
        else:
            state = tl.join(state, after)
        state = tl.reshape(tl.permute(state, (0, 2, 1)), (2 << level, C))
    return state, last


@triton.jit
def power(exponent, log_z):
    """z^exponent for exponents >= 0."""
    return tl.exp(exponent * log_z)


@triton.jit
def one_minus_exp(x):
    """1 - exp(x) for x <= 0 without cancellation (Kahan): the error of exp and that of log are the same."""
    e = tl.exp(x)
    safe = tl.where((e == 1.0) | (e < 0.5), 0.5, e)
    return tl.where(e == 1.0, -x, tl.where(e < 0.5, 1.0 - e, (1.0 - safe) * x / tl.log(safe)))
