"""The two kernels that are launched: many gradients through a table of addresses, or a single one by its address.

`BODY` is `direct` of one metric's file:
  direct(address, block, geometry, numbers, scratch, DTYPE, ACC, S, C, L, LEVELS, VECTOR, WHOLE)
with the program's number `block` within its gradient, geometry = (n, outer, inner, stride_outer, stride_row,
stride_inner, blocks), all int64, and the fields of a `tiles.Tile`. `TILES` are the shapes of tiles that occur in the
launch, and each program runs the branch of the one its gradient has: one launch serves short and long columns, aligned
and not.
"""

import triton
import triton.language as tl

FIELDS = tl.constexpr(10)


@triton.jit
def many(
    addresses,  # int64[gradients]
    geometry,  # int64[gradients, FIELDS]: see table.py
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
