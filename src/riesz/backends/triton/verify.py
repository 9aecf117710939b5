"""Each kernel is compared with eager before its first use on a device, and not used there if they differ.

What is compared is the very kernel that is about to run: the entry point, dtype and all tiles of a launch, with one
sample per tile. A sample has the tile's layout and columns for more than one program, with a margin around it that must
stay as it is. The outcome is remembered per device; Triton and torch cannot change within a process. `RIESZ_VERIFY=0`
turns it off.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from riesz.backends.triton.launch import MAX_PIECES, Geometry, Kernel, Tile

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest difference to eager allowed, relative to the largest entry: a few roundings of either."""

MARGIN = 64
"""Entries around a sample; a multiple of 16 bytes in every dtype."""

Tiles = tuple[Tile, ...]
Key = tuple[str, str, torch.dtype, Tiles, torch.device]

_verdicts: dict[Key, str | None] = {}
_comparing = threading.Lock()


def is_on() -> bool:
    return os.environ.get("RIESZ_VERIFY", "1") != "0"


def is_trusted(
    kernel: Kernel,
    entry: str,
    dtype: torch.dtype,
    tiles: Tiles,
    device: torch.device,
    run: Callable[[Sequence[Tensor], Sequence[Geometry]], None],
    check: Callable[[Tensor, Geometry], None],
    may_wait: bool = True,
) -> bool:
    """Whether a launch agrees with eager on this device; computed once, then remembered.

    Args:
        entry: the entry point, "many" or "single".
        run: directs samples in place by the kernel, in one launch if it is that of many.
        check: directs a sample in place by eager.
        may_wait: False where the result cannot be read, because a graph is being captured; what was not compared
            before is not trusted then.
    """
    if not is_on():
        return True
    key = (kernel.stem, entry, dtype, tiles, device)
    if key not in _verdicts:
        if not may_wait:
            return False
        with _comparing:
            if key not in _verdicts:  # another thread may have compared it meanwhile
                reason = _compare(kernel, dtype, tiles, device, run, check)
                if reason is not None:
                    logging.getLogger("riesz").warning("%s; eager serves in its place", reason)
                _verdicts[key] = reason
    return _verdicts[key] is None


def note() -> str | None:
    """Which kernels are not used, and why; None if all agreed so far."""
    return "; ".join(reason for reason in list(_verdicts.values()) if reason is not None) or None


def sample_geometry(kernel: Kernel, tile: Tile, dtype: torch.dtype) -> Geometry:
    """A gradient that the kernel tiles in this way: as small as it can be with a second program that is not full."""
    if kernel.stem == "identity":
        entries = tile.columns * tile.rows + tile.vector
        return Geometry(1, 1, entries, entries, entries, 1 if tile.vector > 1 else 2)
    if kernel.stem == "centralization":
        rows = tile.rows if tile.whole else kernel.registers[dtype.itemsize].whole_rows + 1  # too many for one panel
        count = tile.columns * rows
        n = tile.pieces // 2 + 3  # of two blocks: a few rows more than one program takes
        if tile.vector > 1:
            return Geometry(n, 2, count, n * count, count, 1, blocks=2)
        return Geometry(n, 4, count // 2, n * count, count, 2, blocks=2)
    # Not a whole number of pieces: the end of a column is where mistakes are made.
    longest_whole = MAX_PIECES * kernel.registers[dtype.itemsize].whole_rows
    n = max(tile.panel - tile.rows // 2, 1) if tile.whole else max(2 * tile.panel, longest_whole) + tile.rows + 1
    if tile.vector > 1:
        inner = tile.columns + 2 * tile.vector
        return Geometry(n, 1, inner, 0, inner, 1)
    inner = tile.columns // 2 + 3
    return Geometry(n, 2, inner, 2 * inner * n, 2 * inner, 2)


def _compare(
    kernel: Kernel,
    dtype: torch.dtype,
    tiles: Tiles,
    device: torch.device,
    run: Callable[[Sequence[Tensor], Sequence[Geometry]], None],
    check: Callable[[Tensor, Geometry], None],
) -> str | None:
    name = f"the triton kernel {kernel.stem} ({str(dtype)[6:]}) on {device}"
    geometries = [sample_geometry(kernel, tile, dtype) for tile in tiles]
    generator = torch.Generator("cpu").manual_seed(1)
    got = []
    for geometry in geometries:
        values = torch.randn(geometry.span + 2 * MARGIN, generator=generator, dtype=torch.float64, device="cpu")
        got.append((values + 1).to(dtype).to(device))  # with a mean, which most kernels treat apart
    wanted = [sample.clone() for sample in got]
    try:
        run([_within(sample) for sample in got], geometries)
        for sample, geometry in zip(wanted, geometries, strict=True):
            check(_within(sample), geometry)
        errors = [_error(*pair) for pair in zip(got, wanted, strict=True)]
    except Exception as failure:  # a compiler that fails is one more way in which a kernel cannot be used
        return f"{name} does not run: {type(failure).__name__}: {str(failure)[:200]}"
    for tile, error in zip(tiles, errors, strict=True):
        if not error <= TOLERANCE[dtype]:
            return f"{name} differs from eager by {error:.1e}, allowed: {TOLERANCE[dtype]:.1e}; {tile}"
    return None


def _within(sample: Tensor) -> Tensor:
    return sample[MARGIN:-MARGIN]


def _error(got: Tensor, wanted: Tensor) -> float:
    """The largest difference relative to the largest entry, margins included; not a number if there is one."""
    difference = (got.double() - wanted.double()).abs().max()
    return (difference / wanted.double().abs().max()).item()
