"""Each kernel is compared with eager before its first use on a device, and not used there if they differ.

What is compared is the very kernel that is about to run: the entry point, dtype and all tiles of a launch, with one
sample per tile. A sample has the tile's layout and a few columns, with a margin around it that must stay as it is. The
outcome is remembered per device; Triton and torch cannot change within a process. `RIESZ_VERIFY=0` turns it off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from riesz.backends.triton.kernels import Kernel
from riesz.backends.triton.tiles import MOST_PIECES, Geometry, Tile

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest difference to eager allowed, relative to the largest entry: a few roundings of either."""

MARGIN = 64
"""Entries around a sample; a multiple of 16 bytes in every dtype."""

Tiles = tuple[Tile, ...]
Key = tuple[str, str, torch.dtype, Tiles, torch.device]

_verdicts: dict[Key, str | None] = {}


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
        _verdicts[key] = _compare(kernel, dtype, tiles, device, run, check)
        if (reason := _verdicts[key]) is not None:
            logging.getLogger("riesz").warning("%s; eager serves in its place", reason)
    return _verdicts[key] is None


def note() -> str | None:
    """Which kernels are not used, and why; None if all agreed so far."""
    return "; ".join(reason for reason in _verdicts.values() if reason is not None) or None


def sample_geometry(kernel: Kernel, tile: Tile, dtype: torch.dtype) -> Geometry:
    """A small gradient that the kernel tiles in this way."""
    if kernel.stem == "identity":
        entries = tile.columns * tile.rows + tile.vector
        return Geometry(1, 1, entries, entries, entries, 1 if tile.vector > 1 else 2)
    if kernel.stem == "centralization":
        count = tile.columns * tile.rows + (0 if tile.one else tile.columns)
        if tile.vector > 1:
            return Geometry(3, 1, count, 0, count, 1)
        return Geometry(3, 2, count // 2, 3 * count, count, 2)
    # Not a whole number of pieces: the end of a column is where mistakes are made.
    longest_whole = MOST_PIECES * kernel.registers[dtype.itemsize].whole
    n = max(tile.panel - tile.rows // 2, 1) if tile.one else max(2 * tile.panel, longest_whole) + tile.rows + 1
    if tile.vector > 1:
        return Geometry(n, 1, 2 * tile.vector, 0, 2 * tile.vector, 1)
    return Geometry(n, 2, 3, 6 * n, 6, 2)


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
        got.append(values.to(dtype).to(device))
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
