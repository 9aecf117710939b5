"""How a gradient is divided into tiles: by formula. Autotuning would run an in-place kernel several times.

A program has 128 threads. Of each row a thread holds 16 bytes where neighbouring columns are adjacent in memory, and
two entries where they are not, since each then needs an address of its own. A lane is one entry of a tile of `pieces` x
`columns`; it holds `rows` consecutive rows of its column in registers. A panel is pieces * rows rows of `columns`
columns. A column that fits into one panel is read once and written once.
"""

from __future__ import annotations

from dataclasses import dataclass

THREADS = 128
BYTES_PER_THREAD = 16
STRIDED_PER_THREAD = 2
MAX_PIECES = 16


@dataclass(frozen=True)
class Geometry:
    """One gradient as (outer, n, inner) with a stride for each axis, n being the length of a column.

    The outer axis consists of `blocks` equal parts that do not affect each other, such as the groups of a convolution.
    """

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
        """Whether its memory is contiguous in the order (outer, n, inner)."""
        sizes = (self.outer, self.n, self.inner)
        strides = (self.stride_outer, self.stride_row, self.stride_inner)
        wanted = (self.n * self.inner, self.inner, 1)
        return all(size == 1 or stride == want for size, stride, want in zip(sizes, strides, wanted, strict=True))

    @property
    def span(self) -> int:
        """The distance in memory from its first entry to past its last, in entries."""
        steps = (self.outer - 1) * self.stride_outer + (self.n - 1) * self.stride_row
        return steps + (self.inner - 1) * self.stride_inner + 1


@dataclass(frozen=True)
class Tile:
    """The part of a gradient that a program works on at a time; the kernel is compiled for it.

    Attributes:
        pieces, columns: the lanes of a program. A column is cut into `pieces`. In centralization, which sums over rows,
            they are the rows and the entries of each.
        rows: consecutive rows that a lane holds in registers; tiles of a panel in centralization.
        levels: log2 of the pieces.
        vector: entries of one memory access; 1 where neighbouring columns are not adjacent or not aligned.
        whole: whether one panel holds whole columns, or whole rows in centralization.
    """

    pieces: int
    columns: int
    rows: int
    levels: int
    vector: int
    whole: bool

    @property
    def panel(self) -> int:
        return self.pieces * self.rows


@dataclass(frozen=True)
class Registers:
    """How much of a gradient a thread holds; chosen so that no compiled kernel spills.

    Attributes:
        whole_rows, panel_rows: rows per lane, where a column fits into one panel and where it does not.
        whole_bytes, panel_bytes: bytes of each row, where it does and where it does not.
        most: the registers that a thread on NVIDIA may use, given where the assembler would otherwise move a few of
            them to memory in order to run more programs at a time.
    """

    whole_rows: int
    panel_rows: int
    whole_bytes: int = BYTES_PER_THREAD
    panel_bytes: int = BYTES_PER_THREAD
    most: int | None = None


def column_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of a kernel that runs along columns."""
    pieces = 1
    while pieces < MAX_PIECES and pieces * registers.whole_rows < geometry.n:
        pieces *= 4
    whole = pieces * registers.whole_rows >= geometry.n
    vector = (registers.whole_bytes if whole else registers.panel_bytes) // itemsize
    if not (is_aligned and geometry.outer == 1 and _is_vector(geometry, vector)):
        vector = 1
    rows = registers.whole_rows if whole else registers.panel_rows
    return Tile(pieces, _lanes(vector) // pieces, rows, pieces.bit_length() - 1, vector, whole)


def row_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of a kernel that sums over rows: over all axes but the directed one."""
    vector = BYTES_PER_THREAD // itemsize
    outers = geometry.outer // geometry.blocks
    flat = outers == 1 and _is_vector(geometry, vector)
    if not (is_aligned and flat and (geometry.blocks == 1 or geometry.stride_outer % vector == 0)):
        vector = 1
    lanes, count = _lanes(vector), outers * geometry.inner
    columns = lanes // 16
    while columns < lanes and columns * registers.whole_rows < count:
        columns *= 4
    whole = columns * registers.whole_rows >= count
    return Tile(lanes // columns, columns, registers.whole_rows if whole else registers.panel_rows, 0, vector, whole)


def entry_tile(geometry: Geometry, itemsize: int, registers: Registers, is_aligned: bool) -> Tile:
    """The tile of an elementwise kernel."""
    vector = BYTES_PER_THREAD // itemsize
    if not (is_aligned and geometry.is_dense and geometry.entries % vector == 0):
        vector = 1
    return Tile(1, _lanes(vector), registers.whole_rows, 0, vector, True)


def _lanes(vector: int) -> int:
    return THREADS * (vector if vector > 1 else STRIDED_PER_THREAD)


def _is_vector(geometry: Geometry, vector: int) -> bool:
    """Whether every row starts at a multiple of `vector` entries and consists of whole vectors."""
    is_adjacent = geometry.stride_inner == 1
    return is_adjacent and geometry.inner % vector == 0 and (geometry.n == 1 or geometry.stride_row % vector == 0)


def column_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.outer * geometry.inner // tile.columns)


def row_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.blocks * geometry.n // tile.pieces)


def entry_programs(geometry: Geometry, tile: Tile) -> int:
    return -(-geometry.entries // (tile.columns * tile.rows))
