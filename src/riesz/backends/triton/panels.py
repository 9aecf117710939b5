"""What the kernels share: the two that are launched, a panel of rows in registers, sums over the pieces of a column.

Shape suffixes: S pieces of a column, C columns.

`many` directs all gradients of a table, `single` one by its address. `BODY` is the kernel of a metric:
  BODY(address, block, geometry, numbers, scratch, DTYPE, ACC, S, C, L, LEVELS, VECTOR, WHOLE)
with the program's number `block` within its gradient, geometry = (n, outer, inner, stride_outer, stride_row,
stride_inner, blocks), all int64, and the fields of a `launch.Tile`. `TILES` are the tiles that occur in a launch. Each
program runs the branch of its gradient's tile, so one launch serves short and long columns, aligned and not.

A program works on C neighbouring columns. Its panel is S * L rows of them: lane (s, c), one entry of an S x C tile,
holds rows s * L .. s * L + L - 1 of column c. Each lane runs the recursion over its own rows; the pieces of a column
are combined by `tl.sum` and by `states_before`, never by `tl.associative_scan`. Rows past the end of a column and
columns past the last one are masked, and read as zero.
"""

import triton
import triton.language as tl

FIELDS = tl.constexpr(10)


@triton.jit
def many(
    addresses,  # int64[gradients]
    geometry,  # int64[gradients, FIELDS]: see `launch.Table`
    owners,  # int32[programs]: the gradient of every program
    numbers,  # float64[4]: strength, scale, blend, flag
    scratch,  # float64
    BODY: tl.constexpr,
    DTYPE: tl.constexpr,
    ACC: tl.constexpr,
    TILES: tl.constexpr,
):
    owner = tl.load(owners + tl.program_id(0)).to(tl.int64)
    address = tl.load(addresses + owner)
    row = geometry + owner * FIELDS
    sizes = (tl.load(row), tl.load(row + 1), tl.load(row + 2))
    strides = (tl.load(row + 3), tl.load(row + 4), tl.load(row + 5))
    own = sizes + strides + (tl.load(row + 6),)
    own_scratch = scratch + tl.load(row + 7)
    block = tl.program_id(0) - tl.load(row + 8)
    tile = tl.load(row + 9)
    for k in tl.static_range(len(TILES)):
        if tile == k:
            BODY(
                address, block, own, numbers, own_scratch, DTYPE, ACC,
                TILES[k][0], TILES[k][1], TILES[k][2], TILES[k][3], TILES[k][4], TILES[k][5],
            )  # fmt: skip


# Nothing but the constants selects another compilation: while a CUDA graph is captured there is no time for one.
# The address is a number here too: what a tile says of the alignment of a pointer is lost where that is an argument.
@triton.jit(
    do_not_specialize=["address", "n", "outer", "inner", "stride_outer", "stride_row", "stride_inner", "blocks"],
)
def single(
    address: tl.int64,
    n: tl.int64,
    outer: tl.int64,
    inner: tl.int64,
    stride_outer: tl.int64,
    stride_row: tl.int64,
    stride_inner: tl.int64,
    blocks: tl.int64,
    numbers,
    scratch,
    BODY: tl.constexpr,
    DTYPE: tl.constexpr,
    ACC: tl.constexpr,
    TILE: tl.constexpr,
):
    sizes = (n.to(tl.int64), outer.to(tl.int64), inner.to(tl.int64))
    strides = (stride_outer.to(tl.int64), stride_row.to(tl.int64), stride_inner.to(tl.int64))
    own = sizes + strides + (blocks.to(tl.int64),)
    BODY(
        address.to(tl.int64), tl.program_id(0).to(tl.int64), own, numbers, scratch, DTYPE, ACC,
        TILE[0], TILE[1], TILE[2], TILE[3], TILE[4], TILE[5],
    )  # fmt: skip


# -- panels -----------------------------------------------------------------------------------------------------------


@triton.jit
def aligned(address, DTYPE: tl.constexpr, VECTOR: tl.constexpr):
    """The address as a pointer; that of a vectorised tile is a multiple of 16 bytes."""
    pointer = address.to(tl.pointer_type(DTYPE))
    if VECTOR > 1:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def multiple(value, VECTOR: tl.constexpr):
    """The value, in a form that shows the compiler it is a multiple of VECTOR."""
    return (value // VECTOR) * VECTOR


@triton.jit
def offsets(index, inner, stride_outer, stride_inner, VECTOR: tl.constexpr):
    """The memory offsets of flat indices into (outer, inner). A vectorised tile has outer = 1 and stride_inner = 1."""
    if VECTOR > 1:
        return index
    else:
        return (index // inner) * stride_outer + (index % inner) * stride_inner


@triton.jit
def open_columns(address, block, geometry, DTYPE: tl.constexpr, C: tl.constexpr, VECTOR: tl.constexpr):
    """The columns of a program, as the functions below take them: pointer, n, stride_row, offset_C, valid_C."""
    n, outer, inner = geometry[0], geometry[1], geometry[2]
    column_C = block * C + tl.arange(0, C)
    offset_C = offsets(column_C, inner, geometry[3], geometry[5], VECTOR)
    valid_C = column_C < multiple(outer * inner, VECTOR)
    return aligned(address, DTYPE, VECTOR), n, multiple(geometry[4], VECTOR), offset_C, valid_C


@triton.jit
def widened(f):
    """bfloat16 as float32, other types as they are: the interpreter casts bfloat16 to no other type."""
    return f.to(tl.float32) if f.dtype == tl.bfloat16 else f


@triton.jit
def rounded(value, DTYPE: tl.constexpr):
    """The value in the type of the gradient; to bfloat16 by way of float32, as in `widened`."""
    return value.to(tl.float32).to(DTYPE) if tl.bfloat16 == DTYPE else value.to(DTYPE)


@triton.jit
def row_numbers(first, l, S: tl.constexpr, L: tl.constexpr):
    """Row l of every piece, counted from the start of the column; the panel starts at row `first`."""
    return first + tl.arange(0, S).to(tl.int64) * L + l


@triton.jit
def load_panel(columns, first, S: tl.constexpr, L: tl.constexpr):
    """The panel as L tiles of S x C: tile l holds row l of every piece."""
    pointer, n, stride_row, offset_C, valid_C = columns
    tiles = ()
    for l in tl.static_range(L):
        row_S = row_numbers(first, l, S, L)
        mask_SC = (row_S < n)[:, None] & valid_C[None, :]
        f_SC = tl.load(pointer + (row_S * stride_row)[:, None] + offset_C[None, :], mask=mask_SC, other=0.0)
        tiles = tiles + (widened(f_SC),)
    return tiles


@triton.jit
def store_tile(columns, value_SC, first, l, S: tl.constexpr, L: tl.constexpr):
    """Write row l of every piece."""
    pointer, n, stride_row, offset_C, valid_C = columns
    row_S = row_numbers(first, l, S, L)
    mask_SC = (row_S < n)[:, None] & valid_C[None, :]
    place_SC = pointer + (row_S * stride_row)[:, None] + offset_C[None, :]
    tl.store(place_SC, rounded(value_SC, pointer.dtype.element_ty), mask=mask_SC)


@triton.jit
def panel_sum(tiles, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr):
    """The sum of every column of a panel."""
    sum_SC = tl.zeros((S, C), ACC)
    for l in tl.static_range(L):
        sum_SC += tiles[l].to(ACC)
    return tl.sum(sum_SC, axis=0)


@triton.jit
def column_sum(columns, ACC: tl.constexpr, S: tl.constexpr, C: tl.constexpr, L: tl.constexpr):
    """The sum of every column, panel by panel."""
    sum_C = tl.zeros((C,), ACC)
    for first in range(0, columns[1], S * L):
        sum_C += panel_sum(load_panel(columns, first, S, L), ACC, S, C, L)
    return sum_C


@triton.jit
def rows_per_piece(first, n, S: tl.constexpr, L: tl.constexpr):
    """The number of rows of every piece: L, fewer where the column ends, 0 past its end."""
    return tl.minimum(tl.maximum(n - first - tl.arange(0, S) * L, 0), L)


@triton.jit
def centered_row(
    f, base_C, l: tl.constexpr, first, n, ACC: tl.constexpr, WIDE: tl.constexpr, S: tl.constexpr, L: tl.constexpr
):
    """f - base in row l of every piece, zero past the end. The base is zero unless `WIDE`: unless f is float64.

    Sums of float32 numbers in float64 have digits to spare, and their mean is subtracted afterwards. Sums of float64
    numbers have none: the mean of the column, or of one panel, is subtracted first, so that a large mean does not
    cost the differences their precision.
    """
    x_SC = f[l].to(ACC)
    if WIDE:
        x_SC = tl.where((row_numbers(first, l, S, L) < n)[:, None], x_SC - base_C[None, :], 0.0)
    return x_SC


@triton.jit
def even_odd(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The even and the odd rows."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS // 2, 2, COLUMNS)), (0, 2, 1)))


@triton.jit
def pinned(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """x itself, in the layout it was computed in: a sum over one entry, above which no layout conversion is moved.

    Triton moves layout conversions above cheap operations. In the tree of `states_before` it would move them all to the
    top, and compute every level again for each level above it, with up to 64 float64 numbers in each thread.
    """
    return tl.sum(tl.reshape(x, (ROWS, 1, COLUMNS)), axis=1)


@triton.jit
def states_before(
    value_SC, ratio_S, start_C,
    S: tl.constexpr, C: tl.constexpr, LEVELS: tl.constexpr, BACKWARD: tl.constexpr, PINNED: tl.constexpr,
):  # fmt: skip
    """The state before every piece, and after the last, where a piece turns state x into ratio x + value.

    A tree in a fixed order: neighbouring pieces are composed pair by pair until one is left, then the states are passed
    down the levels. `BACKWARD` runs from the last piece to the first. LEVELS is log2 S. `PINNED` computes each level
    of a tall tree once: fewer registers, but one exchange through shared memory per level.
    """
    values, ratios = (), ()
    x, r = value_SC, tl.reshape(ratio_S, (S, 1))
    for level in tl.static_range(LEVELS):
        even, odd = even_odd(x, S >> level, C)
        r_even, r_odd = even_odd(r, S >> level, 1)
        if BACKWARD:
            even, odd = odd, even
            r_even, r_odd = r_odd, r_even
        values, ratios = values + (even,), ratios + (r_even,)
        x, r = r_odd * even + odd, r_odd * r_even
        if PINNED and LEVELS > 2:
            x = pinned(x, S >> (level + 1), C)
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
