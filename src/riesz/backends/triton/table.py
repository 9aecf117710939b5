"""All gradients of one dtype and device as one launch: what every program works on, as tensors on the device.

Built once per list of gradients. Addresses are not part of it: they may move, and are given to each launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from riesz.backends.triton.kernels import KERNELS, Kernel
from riesz.backends.triton.tiles import Geometry, Tile
from riesz.layout.axis import ColumnView

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
    return Table.of(KERNELS[stem], dtype, gradients, device)


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
