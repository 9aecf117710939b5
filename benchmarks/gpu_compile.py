"""Every variant of the Triton kernels, compiled for GPUs that are not here: registers, shared memory, spills, vectors.

A variant is a kernel, a dtype and a tile; it is compiled as the launch of many gradients. Registers and spills of
NVIDIA targets come from the cubin, those of AMD targets from the code object's metadata.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from riesz.backends.triton.kernels import DTYPES, KERNELS, Kernel
from riesz.backends.triton.tiles import THREADS, Geometry, Tile, as_argument

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
DTYPES_BY_SIZE = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

COLUMNS = 4096
"""A number of columns that every vector divides."""


@dataclass(frozen=True)
class Variant:
    """What is compiled."""

    kernel: Kernel
    dtype: torch.dtype
    tile: Tile

    def __str__(self) -> str:
        t = self.tile
        columns = "whole" if t.one else "panels"
        access = f"{t.vector * self.dtype.itemsize}-byte" if t.vector > 1 else "strided"
        return f"{self.kernel.stem} {str(self.dtype)[6:]} {t.pieces}x{t.columns}x{t.rows} {columns} {access}"


@dataclass(frozen=True)
class Compiled:
    """What the compiler says of a variant.

    Attributes:
        registers: per thread.
        shared: bytes of shared memory per program.
        spills: bytes (NVIDIA) or registers (AMD) that did not fit into registers.
        wide: memory accesses of 16 bytes, and accesses of gradients in all.
    """

    variant: Variant
    target: str
    registers: int
    shared: int
    spills: int
    wide: int
    accesses: int


def variants(dtypes: tuple[torch.dtype, ...] = DTYPES_BY_SIZE) -> Iterator[Variant]:
    """Every tile the formulas can give, for every kernel and dtype."""
    for kernel in KERNELS.values():
        for dtype in dtypes:
            tiles = {}
            for n in (1, 8, 32, 128, 256, 512, 5000):
                for geometry in _geometries(kernel, n):
                    for is_aligned in (True, False):
                        tiles[kernel.tile_of(geometry, dtype, is_aligned)] = None
            yield from (Variant(kernel, dtype, tile) for tile in tiles)


def _geometries(kernel: Kernel, n: int) -> Iterator[Geometry]:
    if kernel.stem == "centralization":
        for inner in (16, 1024, 8192, 65536):
            yield Geometry(n, 1, inner, 0, inner, 1)
    else:
        yield Geometry(n, 1, COLUMNS, 0, COLUMNS, 1)


def compile_variant(variant: Variant, target: str) -> Compiled:
    """Compile for a target by its name in TARGETS."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from riesz.backends.triton import entry

    constants = {
        "BODY": variant.kernel.body(),
        "DTYPE": getattr(tl, DTYPES[variant.dtype]),
        "ACC": getattr(tl, variant.kernel.accumulates_in(variant.dtype)),
        "TILES": (as_argument(variant.tile),),
    }
    pointers = {"addresses": "*i64", "geometry": "*i64", "owners": "*i32", "numbers": "*fp64", "scratch": "*fp64"}
    source = ASTSource(
        entry.many,
        signature=pointers | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(index,): [["tt.divisibility", 16]] for index in range(len(pointers))},
    )
    backend, architecture, warp = TARGETS[target]
    compiled: Any = triton.compile(
        source, target=GPUTarget(backend, architecture, warp), options={"num_warps": THREADS // warp}
    )
    read = _read_nvidia if backend == "cuda" else _read_amd
    return Compiled(variant, target, *read(compiled, variant, target))


def _read_nvidia(compiled: Any, variant: Variant, target: str) -> tuple[int, int, int, int, int]:
    ptx = compiled.asm["ptx"]
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "kernel.cubin")
        code.write_bytes(compiled.asm["cubin"])
        usage = subprocess.run(
            [_cuobjdump(), "--dump-resource-usage", str(code)], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+)", usage), re.search(r"STACK:(\d+)", usage)
    assert registers is not None
    assert stack is not None
    # The kernels have no arrays of their own, so a stack holds spilled registers and nothing else.
    accesses = re.findall(r"(?:ld|st)\.global\S*", ptx)
    wide = [access for access in accesses if re.search(r"v4\.[bf]32|v2\.[bf]64", access)]
    return int(registers[1]), int(compiled.metadata.shared), int(stack[1]), len(wide), len(accesses)


def _read_amd(compiled: Any, variant: Variant, target: str) -> tuple[int, int, int, int, int]:
    assembly = compiled.asm["amdgcn"]

    def number(name: str) -> int:
        match = re.search(rf"\.{name}:\s*(\d+)", assembly)
        assert match is not None
        return int(match[1])

    accesses = re.findall(r"(?:global|buffer)_(?:load|store)_\S+", assembly)
    wide = [access for access in accesses if access.endswith("dwordx4")]
    spills = number("vgpr_spill_count") + number("sgpr_spill_count")
    return number("vgpr_count"), int(compiled.metadata.shared), spills, len(wide), len(accesses)


def _cuobjdump() -> str:
    """The one inside Triton, which knows the targets Triton writes for."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump")
