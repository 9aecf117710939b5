"""Claim: on a GPU, directing the gradients of a step costs about what copying them costs.

`python -m benchmarks.gpu` measures on the GPU of this machine, as `riesz doctor --gpu` does. `--model` prints what can
be known without one, as Markdown: bytes moved, launches, expected times. See also gpu_compile.py, host.py, inductor.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.networks import NETWORKS, Shape
from riesz.backends.triton.launch import Geometry, Kernel, Tile, kernels

METRICS = ("reweighted_l2", "sobolev_tilde", "laplacian_smoothing", "centralization", "identity")


@dataclass(frozen=True)
class Device:
    """A GPU by its data sheet.

    Attributes:
        bandwidth: bytes per second of its memory; l2: bytes of its second-level cache.
        processors: how many run programs; latency: seconds of a read that misses all caches.
    """

    name: str
    bandwidth: float
    l2: int
    processors: int
    latency: float = 0.8e-6


DEVICES = (
    Device("A100 40 GB", 1.555e12, 40 << 20, 108),
    Device("H100 SXM", 3.35e12, 50 << 20, 132),
)
REACHED = 0.85
"""The share of a data sheet's bandwidth that a copy reaches."""

LAUNCH = 5e-6
PROGRAMS_PER_PROCESSOR = 2
"""At 255 registers a thread."""


@dataclass(frozen=True)
class Traffic:
    """Bytes moved per byte of the gradient.

    Attributes:
        first: reads that come from memory; again: reads of what was read before, from L2 where it fits.
        written: writes; scratch: bytes of ends written and read.
    """

    first: float
    again: float
    written: float
    scratch: float

    @property
    def total(self) -> float:
        return self.first + self.again + self.written + self.scratch


def traffic(kernel: Kernel, dtype: torch.dtype, geometry: Geometry, tile: Tile) -> Traffic:
    if tile.whole:
        return Traffic(1, 0, 1, 0)
    # In float64 the recursive kernels take a base off their sums: the mean, or the mean of the first panel.
    bases = {"laplacian_smoothing": 1.0, "sobolev_tilde": tile.panel / geometry.n}
    again = 1 + (bases.get(kernel.stem, 0) if dtype == torch.float64 else 0)
    bytes_in_all = geometry.entries * dtype.itemsize
    return Traffic(1, again, 1, 2 * 8 * kernel.scratch(geometry, tile) / bytes_in_all)


def geometry_of(shape: Shape) -> Geometry:
    """A contiguous weight along its output channels."""
    inner = 1
    for size in shape[1:]:
        inner *= size
    return Geometry(shape[0], 1, inner, 0, inner, 1)


def variants_table() -> str:
    rows = []
    for stem in METRICS:
        kernel = kernels()[stem]
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            done = set()
            for n in (64, 2048):
                geometry = Geometry(n, 1, 4608, 0, 4608, 1)
                if stem == "centralization":
                    geometry = Geometry(512, 1, n * 9, 0, n * 9, 1)
                tile = kernel.tile_of(geometry, dtype, True)
                if tile.whole in done:
                    continue
                done.add(tile.whole)
                t = traffic(kernel, dtype, geometry, tile)
                what = "one read, one write" if tile.whole else "panels, read again"
                dram = f"{t.first + t.written + t.scratch:.2f} to {t.total:.2f}" if t.again else f"{t.total:.2f}"
                held = tile.rows * (tile.columns if stem in ("centralization", "identity") else tile.pieces)
                rows.append((stem, str(dtype)[6:], what, str(held), f"{t.total:.2f}", dram))
    return markdown(
        ("kernel", "dtype", "form", "entries of a column held", "bytes moved per byte", "of them from or to memory"),
        rows,
    )


@dataclass(frozen=True)
class Expected:
    """What the model says of one launch."""

    launches: int
    total: float
    seconds: float
    longest: float
    copy: float


def expected(kernel: Kernel, shapes: Sequence[Shape], device: Device) -> Expected:
    """One step of float32 gradients: memory's time, or that of the longest program if it is longer."""
    moved = size = again_from_l2 = 0.0
    longest = 0.0
    resident = device.processors * PROGRAMS_PER_PROCESSOR
    for shape in shapes:
        geometry = geometry_of(shape)
        tile = kernel.tile_of(geometry, torch.float32, True)
        t = traffic(kernel, torch.float32, geometry, tile)
        bytes_in_all = 4 * geometry.entries
        working_set = 4 * tile.columns * geometry.n * min(resident, kernel.programs(geometry, tile))
        fits = working_set <= device.l2 // 2
        size += bytes_in_all
        moved += bytes_in_all * (t.total - (t.again if fits else 0))
        again_from_l2 += bytes_in_all * (t.again if fits else 0)
        panels = 1 if tile.whole else -(-geometry.n // tile.panel)
        if kernel.stem == "centralization" and not tile.whole:
            panels = -(-geometry.inner // (tile.columns * tile.rows))
        longest = max(longest, panels * (t.first + t.again) * device.latency)
    memory = moved / (device.bandwidth * REACHED) + again_from_l2 / (3 * device.bandwidth)
    copy = 2 * size / (device.bandwidth * REACHED) + LAUNCH
    return Expected(1, (moved + again_from_l2) / size, LAUNCH + max(memory, longest), longest, copy)


def times_table() -> str:
    rows = []
    for network in ("ResNet-50", "ResNet-56"):
        for device in DEVICES:
            for stem in METRICS:
                e = expected(kernels()[stem], NETWORKS[network], device)
                rows.append(
                    (network, device.name, stem, str(e.launches), f"{e.total:.2f}", f"{1e6 * e.seconds:.0f}",
                     f"{1e6 * e.longest:.0f}", f"{1e6 * e.copy:.0f}", f"{e.seconds / e.copy:.2f}")
                )  # fmt: skip
    head = (
        "network",
        "device",
        "kernel",
        "launches",
        "bytes per byte",
        "expected us",
        "longest program us",
        "copy us",
        "ratio",
    )
    return markdown(head, rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="store_true", help="print the model's tables")
    if parser.parse_args().model:
        print("## Bytes moved, by variant\n\n" + variants_table())
        print("\n## Expected times: model, not measured\n\n" + times_table())
        return
    from benchmarks.harness import RESULTS
    from riesz_lab.commands.doctor_gpu import examine_gpu

    raise SystemExit(examine_gpu(RESULTS))


if __name__ == "__main__":
    main()
