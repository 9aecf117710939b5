"""Starting the kernels. The only module that calls Triton; imported when the first gradient is served."""

from __future__ import annotations

import contextlib
import os
from dataclasses import astuple
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from riesz.backends.triton import entry
from riesz.backends.triton.kernels import DTYPES, KERNELS, Kernel
from riesz.backends.triton.table import Table
from riesz.backends.triton.tiles import Geometry, Tile

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether the kernels run in Triton's interpreter, on tensors of the CPU. Triton decides it when it is imported."""


def launch_many(table: Table, addresses: Tensor, numbers: Tensor) -> None:
    """All gradients of a table in one launch."""
    with _on(numbers.device):
        entry.many[(table.programs,)](
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
    scratch = torch.empty(max(kernel.scratch(geometry, tile), 1), dtype=torch.float64, device=gradient.device)
    with _on(gradient.device):
        entry.single[(kernel.programs(geometry, tile),)](
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
    return getattr(tl, name)


@lru_cache(maxsize=64)
def _options(stem: str, dtype: torch.dtype) -> dict[str, int]:
    if INTERPRETED:
        return {}
    target = triton.runtime.driver.active.get_current_target()
    return KERNELS[stem].options(dtype, target.backend, target.warp_size)
