"""How a gradient is cut into tiles, all gradients of a step into one table, and how a table is launched.

Imports no Triton before the first launch: the metrics' kernels are imported by `kernels`, and they import Triton.

Tiles follow by formula. Autotuning would run an in-place kernel several times. A program has 128 threads. Of each row a
thread holds 16 bytes where neighbouring columns are adjacent in memory, and two entries where they are not, since each
then needs an address of its own. A lane is one entry of a tile of `pieces` x `columns`; it holds `rows` consecutive
rows of its column in registers. A panel is pieces * rows rows of `columns` columns. A column that fits into one panel
is read once and written once.

A table is built once per list of gradients. Addresses are not part of it: they may move, and are given to each launch.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from riesz.layout.axis import ColumnView

# -- tiles ------------------------------------------------------------------------------------------------------------

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


# -- kernels ----------------------------------------------------------------------------------------------------------

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""What a gradient may hold, by the name Triton has for it."""


@dataclass(frozen=True)
class Kernel:
    """One metric's kernel.

    Attributes:
        stem: the name of its Triton function, and of its file in csrc/.
    module: where that function is.
        registers: what a thread holds in registers, by the size of an entry in bytes.
        tile, programs: how a gradient is tiled, and how many programs that takes.
        halves_in_float32: whether half types are summed in float32. That suffices for a mean; recursions need float64,
            as in csrc/.
        uses_scratch: whether one number per column and panel is stored, where a column is longer than a panel.
    """

    stem: str
    module: str
    registers: dict[int, Registers]
    tile: Callable[[Geometry, int, Registers, bool], Tile] = column_tile
    programs: Callable[[Geometry, Tile], int] = column_programs
    halves_in_float32: bool = False
    uses_scratch: bool = False

    def tile_of(self, geometry: Geometry, dtype: torch.dtype, is_aligned: bool) -> Tile:
        return self.tile(geometry, dtype.itemsize, self.registers[dtype.itemsize], is_aligned)

    def accumulates_in(self, dtype: torch.dtype) -> str:
        return "float32" if dtype.itemsize == 2 and self.halves_in_float32 else "float64"

    def options(self, dtype: torch.dtype, vendor: str, warp_size: int) -> dict[str, int]:
        """What Triton's compiler is told for a target; `vendor` is "cuda" or "hip"."""
        most = self.registers[dtype.itemsize].most
        limit = {} if most is None or vendor != "cuda" else {"maxnreg": most}
        return {"num_warps": THREADS // warp_size} | limit

    def scratch(self, geometry: Geometry, tile: Tile) -> int:
        if not self.uses_scratch or tile.whole:
            return 0
        return -(-geometry.n // tile.panel) * geometry.outer * geometry.inner

    def body(self) -> Any:
        """The Triton function; imports Triton."""
        return getattr(importlib.import_module(self.module), self.stem)


@cache
def kernels() -> dict[str, Kernel]:
    """All kernels by their stems; imports Triton."""
    from riesz.backends.triton import means, smoothing

    all_ = (means.IDENTITY, means.REWEIGHTED_L2, means.CENTRALIZATION, smoothing.SOBOLEV_TILDE)
    return {kernel.stem: kernel for kernel in (*all_, smoothing.LAPLACIAN_SMOOTHING)}


# -- tables -----------------------------------------------------------------------------------------------------------

FIELDS = 10
"""Numbers per gradient: n, outer, inner, their strides (outer, row, inner), blocks, scratch, first program, tile."""


def geometry_of(job: ColumnView) -> Geometry | None:
    """The columns of a job where they lie, or None if three strides do not describe them."""
    try:
        columns_ONI = job.view.view(job.shape)
    except RuntimeError:
        return None
    stride_outer, stride_row, stride_inner = columns_ONI.stride()
    return Geometry(job.length, job.outer, job.inner, stride_outer, stride_row, stride_inner, job.blocks)


@dataclass(frozen=True)
class Table:
    """The launch.

    Attributes:
        kernel, dtype: what is launched.
        tiles: the distinct tiles; a gradient's row names one of them.
        programs: how many programs run.
        geometry: int64, FIELDS per gradient; owners: int32, the gradient of every program; scratch: float64.
        vectors: per gradient, whether its address must stay a multiple of 16 bytes.
        spans: per gradient, the bytes from its address on that it may touch.
    """

    kernel: Kernel
    dtype: torch.dtype
    tiles: tuple[Tile, ...]
    programs: int
    geometry: Tensor
    owners: Tensor
    scratch: Tensor
    vectors: tuple[bool, ...]
    spans: tuple[int, ...]

    @classmethod
    def of(
        cls, kernel: Kernel, dtype: torch.dtype, gradients: Sequence[tuple[Geometry, bool]], device: torch.device
    ) -> Table:
        """The table of gradients given by geometry and whether their address is a multiple of 16 bytes."""
        tiles = [kernel.tile_of(geometry, dtype, is_aligned) for geometry, is_aligned in gradients]
        distinct = tuple(dict.fromkeys(tiles))
        rows: list[tuple[int, ...]] = []
        owners: list[int] = []
        scratch = 0
        for index, ((geometry, _), tile) in enumerate(zip(gradients, tiles, strict=True)):
            strides = (geometry.stride_outer, geometry.stride_row, geometry.stride_inner)
            sizes = (geometry.n, geometry.outer, geometry.inner)
            rows.append((*sizes, *strides, geometry.blocks, scratch, len(owners), distinct.index(tile)))
            scratch += kernel.scratch(geometry, tile)
            owners += [index] * kernel.programs(geometry, tile)
        return cls(
            kernel,
            dtype,
            distinct,
            len(owners),
            upload(rows, torch.int64, device),
            upload(owners, torch.int32, device),
            torch.empty(max(scratch, 1), dtype=torch.float64, device=device),
            tuple(tile.vector > 1 for tile in tiles),
            tuple(geometry.span * dtype.itemsize for geometry, _ in gradients),
        )

    def accepts(self, addresses: Sequence[int]) -> bool:
        """Whether gradients at these addresses are aligned as planned and share no memory."""
        if any(address % 16 for address, vector in zip(addresses, self.vectors, strict=True) if vector):
            return False
        ends = sorted(zip(addresses, self.spans, strict=True))
        return all(ends[i][0] + ends[i][1] <= ends[i + 1][0] for i in range(len(ends) - 1))


@lru_cache(maxsize=16)
def kept_table(
    stem: str, dtype: torch.dtype, gradients: tuple[tuple[Geometry, bool], ...], device: torch.device, stream: int
) -> Table:
    """A table that is kept for the next list of such gradients on a stream.

    One per stream: its copy to the device is ordered before the launches of that stream alone, and launches of two
    streams must not share scratch memory.
    """
    return Table.of(kernels()[stem], dtype, gradients, device)


def stream_of(device: torch.device) -> int:
    """The stream that a launch goes to now."""
    return 0 if device.type == "cpu" else torch.cuda.current_stream(device).cuda_stream


def upload(values: object, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor on the device without waiting for it.

    The copy starts from pinned memory of torch's host allocator, which does not hand it out again before the copy ran.
    """
    # On the CPU whatever torch.set_default_device says: a tensor made on the device would wait for it.
    host = torch.tensor(values, dtype=dtype, device="cpu", pin_memory=device.type != "cpu")
    return host.to(device, non_blocking=True)


# -- launches ---------------------------------------------------------------------------------------------------------


def launch_many(table: Table, addresses: Tensor, numbers: Tensor) -> None:
    """All gradients of a table in one launch."""
    from riesz.backends.triton.panels import many

    with _on(numbers.device):
        many[(table.programs,)](
            addresses,
            table.geometry,
            table.owners,
            numbers,
            table.scratch,
            table.kernel.body(),
            _dtype(DTYPES[table.dtype]),
            _dtype(table.kernel.accumulates_in(table.dtype)),
            tuple(map(astuple, table.tiles)),
            **_options(table.kernel.stem, table.dtype),
        )


def launch_single(kernel: Kernel, gradient: Tensor, geometry: Geometry, tile: Tile, numbers: Tensor) -> None:
    """One gradient by its address. Nothing is copied to the device, so a captured CUDA graph may hold it."""
    from riesz.backends.triton.panels import single

    scratch = torch.empty(max(kernel.scratch(geometry, tile), 1), dtype=torch.float64, device=gradient.device)
    with _on(gradient.device):
        single[(kernel.programs(geometry, tile),)](
            gradient.data_ptr(),
            geometry.n,
            geometry.outer,
            geometry.inner,
            geometry.stride_outer,
            geometry.stride_row,
            geometry.stride_inner,
            geometry.blocks,
            numbers,
            scratch,
            kernel.body(),
            _dtype(DTYPES[gradient.dtype]),
            _dtype(kernel.accumulates_in(gradient.dtype)),
            astuple(tile),
            **_options(kernel.stem, gradient.dtype),
        )


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if device.type == "cpu" else torch.cuda.device(device)


def _dtype(name: str) -> Any:
    import triton.language as tl

    return getattr(tl, name)


@lru_cache(maxsize=64)
def _options(stem: str, dtype: torch.dtype) -> dict[str, int]:
    import triton

    if os.environ.get("TRITON_INTERPRET") == "1":
        return {}
    target = triton.runtime.driver.active.get_current_target()
    return kernels()[stem].options(dtype, target.backend, target.warp_size)
