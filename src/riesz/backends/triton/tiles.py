"""How a gradient falls into tiles: by formula, never by trying. An in-place kernel that is tuned runs several times.

A program has 128 threads. A thread holds 16 bytes of a row where neighbours lie side by side, and two entries where
they do not: each needs an address of its own. Together they cover `pieces` x `columns` lanes, and each lane walks
`rows` rows of its piece in registers. Columns that fit into one panel of pieces * rows rows are read and written once.
"""

from __future__ import annotations

from dataclasses import dataclass

THREADS = 128
BYTES_PER_THREAD = 16
STRIDED_PER_THREAD = 2
MOST_PIECES = 16


@dataclass(frozen=True)
class Geometry:
    """One gradient as columns (outer, n, inner) with a stride for each; `blocks` of the outer axis are independent."""

    n: int
    outer: int
    inner: int
    stride_outer: int
    stride_row: int
    stride_inner: int
    blocks: int = 1

    @property
    def entries(self) -> int:
        return self.outer * self.n * self.inner

    @property
    def is_dense(self) -> bool:
        """Whether its entries lie side by side in the order of (outer, n, inner)."""
        sizes = (self.outer, self.n, self.inner)
        strides = (self.stride_outer, self.stride_row, self.stride_inner)
        wanted = (self.n * self.inner, self.inner, 1)
        return all(size == 1 or stride == want for size, stride, want in zip(sizes, strides, wanted, strict=True))

    @property
    def span(self) -> int:
        """Entries from the first to the last, gaps included."""
        steps = (self.outer - 1) * self.stride_outer + (self.n - 1) * self.stride_row
        return steps + (self.inner - 1) * self.stride_inner + 1


@dataclass(frozen=True)
class Tile:
    """The shape of a program's work; the kernel is compiled for it.

    Attributes:
        pieces, columns: lanes of a program; for centralization rows and passengers.
        rows: rows of a piece that are held in registers.
        levels: log2 of the pieces.
        vector: entries of one memory access; 1 where neighbours are not side by side or not aligned.
        one: whether one panel holds a whole column.
    """

    pieces: int
    columns: int
    rows: int
    levels: int
    vector: int
    one: bool

    @property
    def panel(self) -> int:
        return self.pieces * self.rows


@dataclass(frozen=True)
class Registers:
    """What a thread of a kernel holds without spilling, as the compiled kernels show.

    Attributes:
        whole: rows, where a column fits into one panel.
        panel: rows, where it does not.
        whole_bytes, panel_bytes: bytes of a row, where it does and where it does not.
    """

    whole: int
    panel: int
    whole_bytes: int = BYTES_PER_THREAD
    panel_bytes: int = BYTES_PER_THREAD


def column_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of a kernel that walks along columns."""
    pieces = 1
    while pieces < MOST_PIECES and pieces * registers.whole < geometry.n:
        pieces *= 4
    one = pieces * registers.whole >= geometry.n
    vector = (registers.whole_bytes if one else registers.panel_bytes) // itemsize
    if not (is_aligned and geometry.outer == 1 and _is_vector(geometry, vector)):
        vector = 1
    rows = registers.whole if one else registers.panel
    return Tile(pieces, _lanes(vector) // pieces, rows, pieces.bit_length() - 1, vector, one)


def row_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of a kernel that sums over passengers, row by row."""
    vector = BYTES_PER_THREAD // itemsize
    outers = geometry.outer // geometry.blocks
    flat = outers == 1 and _is_vector(geometry, vector)
    if not (is_aligned and flat and (geometry.blocks == 1 or geometry.stride_outer % vector == 0)):
        vector = 1
    lanes, count = _lanes(vector), outers * geometry.inner
    columns = lanes // 16
    while columns < lanes and columns * registers.whole < count:
        columns *= 4
    one = columns * registers.whole >= count
    return Tile(lanes // columns, columns, registers.whole if one else registers.panel, 0, vector, one)


def entry_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of a kernel that takes entries one by one."""
    vector = BYTES_PER_THREAD // itemsize
    if not (is_aligned and geometry.is_dense and geometry.entries % vector == 0):
        vector = 1
    return Tile(1, _lanes(vector), registers.whole, 0, vector, True)


def _lanes(vector: int) -> int:
    return THREADS * (vector if vector > 1 else STRIDED_PER_THREAD)


def _is_vector(geometry: Geometry, vector: int) -> bool:
    """Whether every row starts at a multiple of a vector and is a whole number of them."""
    side_by_side = geometry.stride_inner == 1
    return side_by_side and geometry.inner % vector == 0 and (geometry.n == 1 or geometry.stride_row % vector == 0)


def column_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.outer * geometry.inner // tile.columns)


def row_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.blocks * geometry.n // tile.pieces)


def entry_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.entries // (tile.columns * tile.rows))
