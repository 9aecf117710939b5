"""The two kernels that are launched: many gradients through a table of addresses, or a single one by its pointer.

`BODY` is `direct` of one metric's file. `TILES` are the shapes of tiles that occur in the launch, and each program runs
the branch of the one its gradient has: one launch serves short and long columns, aligned and not.
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
    n, outer, inner = tl.load(row), tl.load(row + 1), tl.load(row + 2)
    stride_outer, stride_row, stride_inner = tl.load(row + 3), tl.load(row + 4), tl.load(row + 5)
    blocks, own_scratch = tl.load(row + 6), scratch + tl.load(row + 7)
    block = tl.program_id(0) - tl.load(row + 8)
    tile = tl.load(row + 9)
    for k in tl.static_range(len(TILES)):
        if tile == k:
            BODY(
                address, block, n, outer, inner, stride_outer, stride_row, stride_inner, blocks, numbers, own_scratch,
                DTYPE, ACC, TILES[k][0], TILES[k][1], TILES[k][2], TILES[k][3], TILES[k][4], TILES[k][5],
            )  # fmt: skip


@triton.jit(do_not_specialize=["n", "outer", "inner", "stride_outer", "stride_row", "stride_inner", "blocks"])
def single(
    pointer,
    n,
    outer,
    inner,
    stride_outer,
    stride_row,
    stride_inner,
    blocks,
    numbers,
    scratch,
    BODY: tl.constexpr,
    DTYPE: tl.constexpr,
    ACC: tl.constexpr,
    TILE: tl.constexpr,
):
    BODY(
        pointer.to(tl.int64), tl.program_id(0).to(tl.int64), n.to(tl.int64), outer.to(tl.int64), inner.to(tl.int64),
        stride_outer.to(tl.int64), stride_row.to(tl.int64), stride_inner.to(tl.int64), blocks.to(tl.int64),
        numbers, scratch,
        DTYPE, ACC, TILE[0], TILE[1], TILE[2], TILE[3], TILE[4], TILE[5],
    )  # fmt: skip
