"""Directing gradients by the Triton kernels: which of them a kernel serves, and one launch per device and dtype."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.eager import EAGER
from riesz.backends.triton import verify
from riesz.backends.triton.kernels import KERNELS, Kernel
from riesz.backends.triton.table import Table, geometry_of, upload
from riesz.backends.triton.tiles import Geometry, Tile
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator
from riesz.metrics.text import KINDS

LONGEST_COLUMN = 1 << 14
"""Rows that one program walks. Longer columns are those of rasterized weights: few, and eager spreads them out."""

IDENTITY, SOBOLEV, SOBOLEV_TILDE = 0, 2, 3
STEMS = {
    IDENTITY: "identity",
    1: "reweighted_l2",
    SOBOLEV: "laplacian_smoothing",
    SOBOLEV_TILDE: "sobolev_tilde",
    4: "laplacian_smoothing",
    5: "centralization",
}
"""The kernel of every operator, by its number in csrc/riesz.h."""

Numbers = tuple[float, ...]


def kernel_of(metric: Operator) -> Kernel | None:
    return None if metric.native_kind is None else KERNELS[STEMS[metric.native_kind]]


def numbers_of(metric: Operator) -> Numbers:
    """Strength, scale, blend and a flag: the Riemann form of SobolevTilde, or that strength counts in n^2 (Sobolev)."""
    flag = metric.native_riemann if metric.native_kind == SOBOLEV_TILDE else metric.native_kind == SOBOLEV
    return (*map(float, metric.native_numbers()), float(flag))


def serves(columns: ColumnView, metric: Operator) -> bool:
    """Whether there is a kernel for these columns."""
    if metric.native_kind is None:
        return False
    if metric.mixes_columns:
        return not (columns.outer == columns.blocks and columns.inner == 1)  # nothing to average over
    if columns.length > LONGEST_COLUMN and metric.native_kind != IDENTITY:
        _announce_long_columns()
        return False
    return True


@lru_cache(maxsize=1)
def _announce_long_columns() -> None:
    logging.getLogger("riesz").warning(
        "backend 'triton' takes columns of at most %d rows; eager serves longer ones, such as rasterized weights",
        LONGEST_COLUMN,
    )


def direct_(columns: Sequence[ColumnView], metric: Operator) -> None:
    """What the registry calls."""
    served = [opened for opened in columns if serves(opened, metric)]
    if left := [opened for opened in columns if not serves(opened, metric)]:
        EAGER.direct_(left, metric)
    if not served:
        return
    if opaque_operator.must_call(served):
        opaque_operator.call(served, metric)
        return
    by_kind: defaultdict[tuple[torch.device, torch.dtype], list[ColumnView]] = defaultdict(list)
    for opened in served:
        by_kind[opened.view.device, opened.view.dtype].append(opened)
    for group in by_kind.values():
        _direct_group_(group, metric)


def implementation(views: list[Tensor], geometry: list[int], kind: int, riemann: bool, numbers: Tensor) -> None:
    """`riesz::direct_` on CUDA and HIP."""
    (operator,) = (operator for operator in KINDS.values() if operator.native_kind == kind)
    strength, scale, blend = numbers.tolist()
    settings = {"scale": scale, "blend": blend, operator.strength_field: strength}
    settings |= {"riemann": True} if riemann else {}
    allowed = {field.name for field in operator.settings()}
    metric = operator(**{name: value for name, value in settings.items() if name in allowed})
    quads = zip(views, *[iter(geometry)] * 4, strict=True)
    direct_([ColumnView(view, *numbers) for view, *numbers in quads], metric)


def _direct_group_(columns: Sequence[ColumnView], metric: Operator) -> None:
    """Columns of one device and dtype."""
    kernel = kernel_of(metric)
    assert kernel is not None
    device, dtype = columns[0].view.device, columns[0].view.dtype
    trusted: list[tuple[ColumnView, Tensor, Geometry]] = []
    left: list[ColumnView] = []
    for opened in columns:
        memory, geometry = _open(opened)
        tile = kernel.tile_of(geometry, dtype, memory.data_ptr() % 16 == 0)
        if is_trusted(kernel, dtype, tile, device, metric):
            trusted.append((opened, memory, geometry))
        else:
            left.append(opened)
    if left:
        EAGER.direct_(left, metric)
    if not trusted:
        return
    addresses = [memory.data_ptr() for _, memory, _ in trusted]
    geometries = [geometry for _, _, geometry in trusted]
    table = Table.of(kernel, dtype, list(zip(geometries, addresses, strict=True)), device)
    numbers = numbers_of(metric)
    if table.accepts(addresses) and not is_capturing(device):
        launch(table, upload(addresses, torch.int64, device), upload(numbers, torch.float64, device))
    else:
        # They share memory, and one after the other is what a loop over them would do; or a graph is being captured,
        # which would copy the table again at every replay, from memory that may have changed by then.
        for _, memory, geometry in trusted:
            direct_single_(kernel, memory, geometry, numbers)
    for opened, memory, _ in trusted:
        if memory is not opened.view:
            opened.view.copy_(memory)
    opaque_operator.count_writes([opened.view for opened, _, _ in trusted])


def _open(columns: ColumnView) -> tuple[Tensor, Geometry]:
    """The memory to write and its geometry: the view's own, or that of a dense copy."""
    if (geometry := geometry_of(columns)) is not None:
        return columns.view, geometry
    outer, n, inner = columns.shape
    return columns.view.contiguous(), Geometry(n, outer, inner, n * inner, inner, 1, columns.blocks)


def direct_single_(kernel: Kernel, memory: Tensor, geometry: Geometry, numbers: Numbers) -> None:
    """The single-tensor entry point: one gradient in a launch of its own."""
    from riesz.backends.triton.launch import launch_single

    tile = kernel.tile_of(geometry, memory.dtype, memory.data_ptr() % 16 == 0)
    on_device = torch.empty(len(numbers), dtype=torch.float64, device=memory.device)
    for index, number in enumerate(numbers):
        on_device[index].fill_(number)  # by value: a copy from the host would be repeated by a captured graph
    launch_single(kernel, memory, geometry, tile, on_device)


def launch(table: Table, addresses: Tensor, numbers: Tensor) -> None:
    """One launch; imports Triton at the first."""
    from riesz.backends.triton.launch import launch_many

    launch_many(table, addresses, numbers)


def is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def is_trusted(kernel: Kernel, dtype: torch.dtype, tile: Tile, device: torch.device, metric: Operator) -> bool:
    """Whether this tile of the kernel agrees with eager here; compared at first use."""
    sample = type(metric)()  # numbers of its own: those of the metric may be extreme, where eager has fewer digits

    def run(memory: Tensor, geometry: Geometry) -> None:
        table = Table.of(kernel, dtype, [(geometry, memory.data_ptr())], device)
        if table.tiles != (tile,):
            raise AssertionError(f"expected a sample of {tile}, got {table.tiles}")
        addresses = upload([memory.data_ptr()], torch.int64, device)
        launch(table, addresses, upload(numbers_of(sample), torch.float64, device))

    def check(memory: Tensor, geometry: Geometry) -> None:
        sizes = (geometry.outer, geometry.n, geometry.inner)
        strides = (geometry.stride_outer, geometry.stride_row, geometry.stride_inner)
        columns_ONI = memory.as_strided(sizes, strides, memory.storage_offset())
        EAGER.direct_([ColumnView(columns_ONI, *sizes)], sample)

    return verify.is_trusted(kernel, dtype, tile, device, run, check, may_wait=not is_capturing(device))
