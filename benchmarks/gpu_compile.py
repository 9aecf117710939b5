"""Claim: compiled for GPUs that are not here, no variant of the Triton kernels spills, and rows move as vectors.

`python -m benchmarks.gpu_compile` compiles every variant for every target, about half an hour on two idle cores, writes
`benchmarks/results/compiled.csv` and prints a summary, which docs/gpu.md shows. Targets may be named.

A variant is a kernel, a dtype and the tiles of a launch: one tile alone, every one there is, and those of whole
networks, where each program takes the branch of its gradient. Registers and spills of NVIDIA targets come from the
cubin, those of AMD targets from the code object's metadata.
"""

from __future__ import annotations

import csv
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks.networks import NETWORKS
from riesz.backends.triton.launch import DTYPES, Geometry, Kernel, Tile, kernels

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


LAUNCHES = ("ResNet-50", "U-Net")
"""Networks whose launches have the most tiles; those of the others are among them."""

RESULT = Path(__file__).parent / "results" / "compiled.csv"


@dataclass(frozen=True)
class Variant:
    """What is compiled.

    Attributes:
        name: that of the network whose launch it is, or describes the only tile.
        entry: the entry point, "many" or "single"; a single gradient has one tile.
    """

    kernel: Kernel
    dtype: torch.dtype
    tiles: tuple[Tile, ...]
    name: str
    entry: str = "many"

    def __str__(self) -> str:
        return f"{self.kernel.stem} {str(self.dtype)[6:]} {self.name} {self.entry}"


@dataclass(frozen=True)
class Compiled:
    """What the compiler says of a variant; a row of the table.

    Attributes:
        kernel, dtype, name: the variant.
        registers: per thread.
        shared: bytes of shared memory per program.
        spills: bytes of memory per thread for what did not fit into registers.
        scalars: scalar registers (AMD) that were moved to lanes of vector registers; they cost no memory.
        wide: memory accesses of 16 bytes; accesses: all of them, tables and numbers included.
        owned: whether every entry of a gradient is loaded and stored by one and the same thread, so that threads of a
            program cannot overtake each other in place.
        triton: the version that compiled it.
    """

    target: str
    kernel: str
    dtype: str
    name: str
    registers: int
    shared: int
    spills: int
    scalars: int
    wide: int
    accesses: int
    owned: bool
    triton: str


def name_of(tile: Tile, dtype: torch.dtype) -> str:
    """Pieces x columns x rows, whether a column is held whole, bytes of an access."""
    access = f"{tile.vector * dtype.itemsize}-byte" if tile.vector > 1 else "strided"
    return f"{tile.pieces}x{tile.columns}x{tile.rows} {'whole' if tile.whole else 'panels'} {access}"


def variants(dtypes: tuple[torch.dtype, ...] = DTYPES_BY_SIZE) -> Iterator[Variant]:
    """Every tile the formulas can give, for every kernel and dtype."""
    for kernel in kernels().values():
        for dtype in dtypes:
            tiles = {}
            for n in (1, 8, 32, 128, 256, 512, 5000):
                for geometry in _geometries(kernel, n):
                    for is_aligned in (True, False):
                        tiles[kernel.tile_of(geometry, dtype, is_aligned)] = None
            yield from (Variant(kernel, dtype, (tile,), name_of(tile, dtype)) for tile in tiles)


def launches() -> Iterator[Variant]:
    """The launches of whole networks in float32, where they have more than one tile."""
    for kernel in kernels().values():
        for network in LAUNCHES:
            shapes = [(shape[0], math.prod(shape[1:])) for shape in NETWORKS[network]]
            geometries = [Geometry(n, 1, inner, 0, inner, 1) for n, inner in shapes]
            tiles = tuple(dict.fromkeys(kernel.tile_of(geometry, torch.float32, True) for geometry in geometries))
            if len(tiles) > 1:
                yield Variant(kernel, torch.float32, tiles, f"launch of {network}, {len(tiles)} tiles")


def _geometries(kernel: Kernel, n: int) -> Iterator[Geometry]:
    if kernel.stem == "centralization":
        for inner in (16, 1024, 8192, 65536):
            yield Geometry(n, 1, inner, 0, inner, 1)
    else:
        yield Geometry(n, 1, COLUMNS, 0, COLUMNS, 1)


def build(variant: Variant, target: str) -> Any:
    """What Triton makes of a variant for a target by its name in TARGETS."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from riesz.backends.triton import panels

    constants: dict[str, Any] = {
        "BODY": variant.kernel.body(),
        "DTYPE": getattr(tl, DTYPES[variant.dtype]),
        "ACC": getattr(tl, variant.kernel.accumulates_in(variant.dtype)),
    }
    tiles = tuple(map(astuple, variant.tiles))
    if variant.entry == "many":
        function, constants["TILES"] = panels.many, tiles
        arguments = {"addresses": "*i64", "geometry": "*i64", "owners": "*i32", "numbers": "*fp64", "scratch": "*fp64"}
        aligned = list(arguments)
    else:
        function, constants["TILE"] = panels.single, tiles[0]
        sizes = ("address", "n", "outer", "inner", "stride_outer", "stride_row", "stride_inner", "blocks")
        arguments = dict.fromkeys(sizes, "i64") | {"numbers": "*fp64", "scratch": "*fp64"}
        aligned = ["numbers", "scratch"]
    source = ASTSource(
        function,
        signature=arguments | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(index,): [["tt.divisibility", 16]] for index, name in enumerate(arguments) if name in aligned},
    )
    vendor, architecture, warp_size = TARGETS[target]
    options = variant.kernel.options(variant.dtype, vendor, warp_size)
    return triton.compile(source, target=GPUTarget(vendor, architecture, warp_size), options=options)


def compile_variant(variant: Variant, target: str) -> Compiled:
    """What the compiler says of a variant for a target."""
    import triton

    compiled = build(variant, target)
    read = _read_nvidia if TARGETS[target][0] == "cuda" else _read_amd
    what = (target, variant.kernel.stem, str(variant.dtype)[6:], variant.name)
    return Compiled(*what, *read(compiled), _is_owned(compiled.asm["ttgir"], variant), triton.__version__)


def _is_owned(ttgir: str, variant: Variant) -> bool:
    """Whether loads and stores of a tile have one layout, in which no two threads hold the same entry."""
    layouts: dict[str, tuple[int, ...]] = {}
    for name, body in re.findall(r"^(#\w+) = #ttg\.blocked<\{(.*)\}>", ttgir, re.M):
        lists = re.findall(r"(?:sizePerThread|threadsPerWarp|warpsPerCTA) = \[([\d, ]+)\]", body)
        sizes = [[int(size) for size in text.split(",")] for text in lists]
        layouts[name] = tuple(math.prod(along) for along in zip(*sizes, strict=True))
    held: dict[tuple[int, ...], set[str]] = {}
    for line in re.findall(r"(?:tt|amdg)\.(?:buffer_)?(?:load|store) .*", ttgir):
        for shape, layout in re.findall(r"tensor<([\dx]+)x(?:!tt\.ptr<\w+>|\w+), (#\w+)>", line):
            held.setdefault(tuple(map(int, shape.split("x"))), set()).add(layout)
    shapes = [
        (tile.columns,) if variant.kernel.stem == "identity" else (tile.pieces, tile.columns) for tile in variant.tiles
    ]
    for shape in shapes:
        if len(held[shape]) > shapes.count(shape):  # tiles of one shape are branches, each with a layout of its own
            return False
        for layout in held[shape]:
            if any(covered > size for covered, size in zip(layouts[layout], shape, strict=True)):
                return False
    return True


def _read_nvidia(compiled: Any) -> tuple[int, int, int, int, int, int]:
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
    return int(registers[1]), int(compiled.metadata.shared), int(stack[1]), 0, len(wide), len(accesses)


def _read_amd(compiled: Any) -> tuple[int, int, int, int, int, int]:
    assembly = compiled.asm["amdgcn"]

    def number(name: str) -> int:
        match = re.search(rf"\.{name}:\s*(\d+)", assembly)
        assert match is not None
        return int(match[1])

    accesses = re.findall(r"(?:global|buffer)_(?:load|store)_\S+", assembly)
    wide = [access for access in accesses if access.endswith("dwordx4")]
    # Vector registers spill to memory, scalar ones to lanes of vector registers; both would show in the memory.
    registers, spills, scalars = map(number, ("vgpr_count", "private_segment_fixed_size", "sgpr_spill_count"))
    return registers, int(compiled.metadata.shared), spills, scalars, len(wide), len(accesses)


def _cuobjdump() -> str:
    """The one inside Triton, which knows the targets Triton writes for."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump")


def _compile(job: tuple[int, str]) -> Compiled:
    return compile_variant([*variants(), *launches()][job[0]], job[1])


def compile_all(targets: Iterable[str], workers: int = 2) -> list[Compiled]:
    """Every variant for every target."""
    count = len([*variants(), *launches()])
    jobs = [(index, target) for target in targets for index in range(count)]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_compile, jobs))


def load(path: Path = RESULT) -> list[Compiled]:
    """The stored table."""
    with path.open(newline="") as file:
        return [
            Compiled(
                *(row[name] for name in ("target", "kernel", "dtype", "name")),
                *(int(row[name]) for name in ("registers", "shared", "spills", "scalars", "wide", "accesses")),
                owned=row["owned"] == "True",
                triton=row["triton"],
            )
            for row in csv.DictReader(file)
        ]


def save(rows: Iterable[Compiled], path: Path = RESULT) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Compiled)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def summary(rows: list[Compiled]) -> list[tuple[str, ...]]:
    """Per target and kernel: how many variants, their largest figures, how many spill and move rows as vectors."""
    lines = []
    for target, kernel in dict.fromkeys((row.target, row.kernel) for row in rows):
        own = [row for row in rows if (row.target, row.kernel) == (target, kernel)]
        vectors = [row for row in own if row.name.endswith("16-byte")]
        lines.append(
            (
                target,
                kernel,
                str(len(own)),
                str(max(row.registers for row in own)),
                str(max(row.shared for row in own)),
                str(sum(row.spills > 0 for row in own)),
                f"{sum(row.wide > 0 for row in vectors)} of {len(vectors)}",
            )
        )
    return lines


HEAD = (
    "target",
    "kernel",
    "variants",
    "registers, most",
    "shared bytes, most",
    "spilling",
    "16-byte variants that have such accesses",
)


def main() -> None:
    targets = sys.argv[1:] or list(TARGETS)
    if unknown := set(targets) - set(TARGETS):
        raise SystemExit(f"expected targets of {list(TARGETS)}, got {sorted(unknown)}")
    rows = compile_all(targets)
    save(rows)
    for line in (HEAD, *summary(rows)):
        print("".join(f"{cell:<28}" for cell in line))
    for row in rows:
        if row.spills or not row.owned:
            print(row)


if __name__ == "__main__":
    main()
