"""The kernels by name: which file, how it is tiled, what it accumulates in. Imports no Triton."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from riesz.backends.triton.tiles import (
    THREADS,
    Geometry,
    Registers,
    Tile,
    column_programs,
    column_tile,
    entry_programs,
    entry_tile,
    row_programs,
    row_tile,
)

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}
"""What a gradient may hold, by the name Triton has for it."""


@dataclass(frozen=True)
class Kernel:
    """One metric's kernel.

    Attributes:
        stem: its file in this folder, as in csrc/.
        registers: what a thread holds in registers, by the size of an entry in bytes.
        tile, programs: how a gradient is tiled, and how many programs that takes.
        halves_in_float32: whether half types are summed in float32. That suffices for a mean; recursions need float64,
            as in csrc/.
        uses_scratch: whether one number per column and panel is stored, where a column is longer than a panel.
    """

    stem: str
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
        return importlib.import_module(f"riesz.backends.triton.{self.stem}").direct


KERNELS = {
    kernel.stem: kernel
    for kernel in (
        Kernel("identity", dict.fromkeys((2, 4, 8), Registers(4, 4)), entry_tile, entry_programs, True),
        Kernel(
            "reweighted_l2", {2: Registers(8, 8), 4: Registers(16, 16), 8: Registers(16, 16)}, halves_in_float32=True
        ),
        Kernel("sobolev_tilde", {2: Registers(4, 4, most=255), 4: Registers(14, 8), 8: Registers(14, 8)}),
        Kernel(
            "laplacian_smoothing",
            {2: Registers(8, 3, whole_bytes=8, panel_bytes=4), 4: Registers(8, 3, panel_bytes=8), 8: Registers(8, 3)},
            uses_scratch=True,
        ),
        Kernel(
            "centralization",
            {2: Registers(8, 8), 4: Registers(8, 8), 8: Registers(8, 4)},
            row_tile,
            row_programs,
            halves_in_float32=True,
        ),
    )
}
