"""The backend for gradients on CUDA and HIP devices: all of a step in one launch per dtype.

Requirements it meets:
- Triton is imported when the first gradient is served, not with riesz;
- gradients are written where they lie; only what three strides do not describe is copied and put back;
- nothing waits for the device: tables and numbers are copied from pinned memory, and only when they change;
- a kernel is used on a device after it agreed with eager there (`verify`); where it did not, and for columns too long
  for one program, eager serves, which is logged once;
- a CUDA graph that is captured holds launches by address alone: like everything else in the graph they write the
  gradients that were there at the capture, wherever others have moved since;
- a dispatch mode or a compiler sees one opaque in-place operator, `riesz::direct_`.

With TRITON_INTERPRET=1 set before the first use, the kernels run in Triton's interpreter on tensors of the CPU.
"""

from __future__ import annotations

import importlib.util
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.eager import EAGER
from riesz.backends.registry import Backend, announce
from riesz.backends.tensor_guard import TensorGuard
from riesz.backends.triton import launch, verify
from riesz.backends.triton.launch import (
    DTYPES,
    Geometry,
    Kernel,
    Table,
    Tile,
    geometry_of,
    kept_table,
    stream_of,
    upload,
)
from riesz.layout.axis import ColumnView
from riesz.layout.memoize import memoized
from riesz.metrics import Operator
from riesz.metrics.text import KINDS

# -- which gradients --------------------------------------------------------------------------------------------------


def _is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@memoized
def _why_missing(interpreted: bool) -> str | None:
    if not interpreted and torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built without CUDA and HIP"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; install riesz[gpu]"
    if not interpreted and not torch.cuda.is_available():
        return "no CUDA or HIP device is available"
    return None


def _missing_reason() -> str | None:
    return _why_missing(_is_interpreted())


def _refusal_reason(gradient: Tensor) -> str | None:
    if not gradient.is_cuda and not (_is_interpreted() and gradient.is_cpu):
        return f"it is on {gradient.device}"
    if gradient.dtype not in DTYPES:
        return f"its dtype is {gradient.dtype}"
    return opaque_operator.why_unreadable(gradient)


LONGEST_COLUMN = 1 << 14
"""Rows that one program walks. Longer columns are those of rasterized weights: few, and eager spreads them out."""

IDENTITY, SOBOLEV, SOBOLEV_TILDE = 0, 2, 3
STEMS: dict[int | None, str] = {
    IDENTITY: "identity",
    1: "reweighted_l2",
    SOBOLEV: "laplacian_smoothing",
    SOBOLEV_TILDE: "sobolev_tilde",
    4: "laplacian_smoothing",
    5: "centralization",
}
"""The kernels by `native_kind`; an operator that is not among them goes to eager."""

Numbers = tuple[float, ...]


def kernel_of(metric: Operator) -> Kernel | None:
    return launch.kernels()[STEMS[metric.native_kind]] if metric.native_kind in STEMS else None


def numbers_of(metric: Operator) -> Numbers:
    """Strength, scale, blend and a flag: the Riemann form of SobolevTilde, or that strength counts in n^2 (Sobolev)."""
    flag = metric.native_riemann if metric.native_kind == SOBOLEV_TILDE else metric.native_kind == SOBOLEV
    return (*map(float, metric.native_numbers()), float(flag))


def serves(columns: ColumnView, metric: Operator) -> bool:
    """Whether there is a kernel for these columns."""
    if metric.native_kind not in STEMS:
        announce(f"backend 'triton' has no kernel for the metric {type(metric).__name__}; eager serves in its place")
        return False
    if metric.mixes_columns:
        return not (columns.outer == columns.blocks and columns.inner == 1)  # nothing to average over
    if columns.length > LONGEST_COLUMN and metric.native_kind != IDENTITY:
        announce(
            f"backend 'triton' takes columns of at most {LONGEST_COLUMN} rows; eager serves longer ones, such as "
            "rasterized weights"
        )
        return False
    return True


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
    strength, scale, blend = numbers.tolist()
    metric = _with_numbers(kind, strength, scale, blend, riemann)
    quads = zip(views, *[iter(geometry)] * 4, strict=True)
    direct_([ColumnView(view, *numbers) for view, *numbers in quads], metric)


def _with_numbers(native_kind: int | None, strength: float, scale: float, blend: float, riemann: bool) -> Operator:
    """The operator of the library that a kernel computes, with those of the settings that it has."""
    (kind,) = (kind for kind in KINDS.values() if kind.native_kind == native_kind)
    settings: dict[str | None, Any] = {kind.strength_field: strength, "scale": scale, "blend": blend}
    settings["riemann"] = riemann
    return kind(**{field.name: settings[field.name] for field in kind.settings()})


def _sample_of(native_kind: int | None) -> Operator:
    """An operator to compare a kernel by: each of its numbers changes a sample by more than half types round.

    Not the numbers in use: they may be extreme, where eager has fewer digits, or hide a number by being 0 or 1.
    """
    strength = 0.01 if native_kind in (SOBOLEV, SOBOLEV_TILDE) else 2.0
    return _with_numbers(native_kind, strength, scale=0.75, blend=0.5, riemann=True)


def _direct_group_(columns: Sequence[ColumnView], metric: Operator) -> None:
    """Columns of one device and dtype."""
    kernel = kernel_of(metric)
    assert kernel is not None
    device, dtype = columns[0].view.device, columns[0].view.dtype
    opened = [(*_open(one), one) for one in columns]
    if is_capturing(device):
        # A captured copy of a table would be repeated at every replay, from memory that may have changed by then.
        _direct_one_by_one_(opened, kernel, metric)
        return
    addresses = [memory.data_ptr() for memory, _, _ in opened]
    gradients = tuple((geometry, memory.data_ptr() % 16 == 0) for memory, geometry, _ in opened)
    table = kept_table(kernel.stem, dtype, gradients, device, stream_of(device))
    if not is_trusted(kernel, dtype, table.tiles, device, metric):
        EAGER.direct_(columns, metric)
    elif table.accepts(addresses):
        numbers = upload(numbers_of(metric), torch.float64, device)
        launch.launch_many(table, upload(addresses, torch.int64, device), numbers)
        _finish(opened)
    else:
        # They share memory, and one after the other is what a loop over them would do.
        _direct_one_by_one_(opened, kernel, metric)


Opened = tuple[Tensor, Geometry, ColumnView]


def _direct_one_by_one_(opened: Sequence[Opened], kernel: Kernel, metric: Operator) -> None:
    """Every gradient in a launch of its own, with nothing copied from the host."""
    device = opened[0][0].device
    numbers = by_value(numbers_of(metric), device)
    for memory, geometry, columns in opened:
        tile = kernel.tile_of(geometry, memory.dtype, memory.data_ptr() % 16 == 0)
        if is_single_trusted(kernel, memory.dtype, tile, device, metric):
            launch.launch_single(kernel, memory, geometry, tile, numbers)
            _finish([(memory, geometry, columns)])
        else:
            EAGER.direct_([columns], metric)


def _finish(opened: Sequence[Opened]) -> None:
    for memory, _, columns in opened:
        if memory is not columns.view:
            columns.view.copy_(memory)
    opaque_operator.count_writes([columns.view for _, _, columns in opened])


def _open(columns: ColumnView) -> tuple[Tensor, Geometry]:
    """The memory to write and its geometry: the view's own, or that of a dense copy."""
    if (geometry := geometry_of(columns)) is not None:
        return columns.view, geometry
    outer, n, inner = columns.shape
    return columns.view.contiguous(), Geometry(n, outer, inner, n * inner, inner, 1, columns.blocks)


def by_value(numbers: Numbers, device: torch.device) -> Tensor:
    """Numbers on the device as arguments of launches: a copy from the host would be repeated by a captured graph."""
    on_device = torch.empty(len(numbers), dtype=torch.float64, device=device)
    for index, number in enumerate(numbers):
        on_device[index].fill_(number)
    return on_device


def is_capturing(device: torch.device) -> bool:
    """Whether the stream that a launch on this device goes to is being captured; torch asks the current device's."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_current_stream_capturing())


def precedes_capture(device: torch.device) -> bool:
    """Whether this may be a step before a capture: torch asks for some on a stream that is not the default one."""
    return device.type == "cuda" and torch.cuda.current_stream(device) != torch.cuda.default_stream(device)


def is_trusted(
    kernel: Kernel, dtype: torch.dtype, tiles: tuple[Tile, ...], device: torch.device, metric: Operator
) -> bool:
    """Whether a launch with these tiles agrees with eager here; compared at first use."""
    sample = _sample_of(metric.native_kind)

    def run(samples: Sequence[Tensor], geometries: Sequence[Geometry]) -> None:
        table = Table.of(kernel, dtype, [(geometry, True) for geometry in geometries], device)
        if table.tiles != tiles:
            raise AssertionError(f"expected samples of {tiles}, got {table.tiles}")
        addresses = upload([memory.data_ptr() for memory in samples], torch.int64, device)
        launch.launch_many(table, addresses, upload(numbers_of(sample), torch.float64, device))

    if precedes_capture(device):
        for tile in tiles:
            is_single_trusted(kernel, dtype, tile, device, metric)
    check = partial(_direct_sample_, metric=sample)
    return verify.is_trusted(kernel, "many", dtype, tiles, device, run, check)


def is_single_trusted(kernel: Kernel, dtype: torch.dtype, tile: Tile, device: torch.device, metric: Operator) -> bool:
    """Whether a launch of a single gradient agrees with eager here; not if it was not compared before a capture."""
    sample = _sample_of(metric.native_kind)

    def run(samples: Sequence[Tensor], geometries: Sequence[Geometry]) -> None:
        for memory, geometry in zip(samples, geometries, strict=True):
            launch.launch_single(kernel, memory, geometry, tile, by_value(numbers_of(sample), device))

    check = partial(_direct_sample_, metric=sample)
    may_wait = not is_capturing(device)
    return verify.is_trusted(kernel, "single", dtype, (tile,), device, run, check, may_wait)


def _direct_sample_(memory: Tensor, geometry: Geometry, metric: Operator) -> None:
    sizes = (geometry.outer, geometry.n, geometry.inner)
    strides = (geometry.stride_outer, geometry.stride_row, geometry.stride_inner)
    columns_ONI = memory.as_strided(sizes, strides, memory.storage_offset())
    EAGER.direct_([ColumnView(columns_ONI, *sizes, geometry.blocks)], metric)


# -- a list of gradients like the one before --------------------------------------------------------------------------


class _Launch:
    """The gradients of one dtype on one stream, their table, and what was uploaded last."""

    def __init__(self, indices: Sequence[int], table: Table, device: torch.device):
        self._indices = indices
        self._table = table
        self._device = device
        self._last: tuple[list[int], Numbers, Tensor, Tensor] = ([], (), torch.empty(0), torch.empty(0))

    def prepare(self, pointers: Sequence[int], values: Numbers) -> Callable[[], None] | None:
        """Upload what changed; what is left is the launch, or None if the table does not hold for these addresses."""
        own = [pointers[index] for index in self._indices]
        known, last_values, addresses, numbers = self._last
        if own != known:
            if not self._table.accepts(own):
                return None
            # A new tensor, not the old one written again: another thread may be about to launch with that.
            addresses = upload(own, torch.int64, self._device)
        if values != last_values:
            numbers = upload(values, torch.float64, self._device)
        if own != known or values != last_values:
            self._last = own, values, addresses, numbers
        return partial(launch.launch_many, self._table, addresses, numbers)


class TritonFastPath:
    """One launch per dtype on a list of gradients like the one it is made from.

    Addresses are read at every call; shape, strides, dtype, device and kind of every tensor are compared. If anything
    differs, nothing is touched and the call returns no addresses.
    """

    def __init__(self, gradients: Sequence[Tensor], columns: Sequence[ColumnView], geometries: Sequence[Geometry]):
        # Columns without their memory: what a kernel serves depends on sizes alone.
        self._shapes = [ColumnView(torch.empty(0), *opened.shape, opened.blocks) for opened in columns]
        self._geometries = geometries
        self._dtypes = [gradient.dtype for gradient in gradients]
        self._first_pointers = [gradient.data_ptr() for gradient in gradients]
        self._device = gradients[0].device
        self._matches = TensorGuard(gradients).matches
        self._launches: dict[tuple[type[Operator], int], list[_Launch] | None] = {}
        self._numbers: tuple[Operator, Numbers] | None = None

    @classmethod
    def of(cls, gradients: Sequence[Tensor], columns: Sequence[ColumnView]) -> TritonFastPath | None:
        """None where a gradient needs more than its address."""
        geometries = []
        for gradient, opened in zip(gradients, columns, strict=True):
            plain = type(gradient) is Tensor and not gradient.is_inference() and not gradient.is_neg()
            geometry = geometry_of(opened) if plain and gradient.dtype in DTYPES else None
            if geometry is None or not opened.view.data_ptr() == gradient.data_ptr() != 0:
                return None
            if gradient.device != gradients[0].device:
                return None
            geometries.append(geometry)
        return cls(gradients, columns, geometries)

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> Sequence[int]:
        if opaque_operator.is_watched() or is_capturing(self._device):
            return ()
        # One set of tables per stream, see `kept_table`.
        key = type(metric), stream_of(self._device)
        if key not in self._launches:
            self._launches[key] = self._build(metric, key[1])
        launches = self._launches[key]
        if launches is None or not self._matches(gradients):
            return ()
        tensors: list[Any] = list(gradients)
        pointers = list(map(Tensor.data_ptr, tensors))
        known = self._numbers
        if known is None or known[0] is not metric:
            known = (metric, numbers_of(metric))
            # Numbers that are tensors change in place: those are read every time. One assignment of a pair, since
            # threads that share this path must never take one metric's numbers for another's.
            self._numbers = known if all(isinstance(number, float) for number in metric.native_numbers()) else None
        if 0 in pointers:
            return ()
        prepared = [launch.prepare(pointers, known[1]) for launch in launches]
        if None in prepared:
            return ()
        for start in prepared:
            assert start is not None
            start()
        opaque_operator.count_writes(tensors)
        return pointers

    def _build(self, metric: Operator, stream: int) -> list[_Launch] | None:
        kernel = kernel_of(metric)
        if kernel is None or not all(serves(shape, metric) for shape in self._shapes):
            return None
        launches = []
        for dtype in dict.fromkeys(self._dtypes):
            indices = [index for index, other in enumerate(self._dtypes) if other == dtype]
            gradients = tuple((self._geometries[index], self._first_pointers[index] % 16 == 0) for index in indices)
            table = kept_table(kernel.stem, dtype, gradients, self._device, stream)
            if not is_trusted(kernel, dtype, table.tiles, self._device, metric):
                return None
            launches.append(_Launch(indices, table, self._device))
        return launches


opaque_operator.implement("CUDA", implementation)

TRITON = Backend(
    name="triton",
    summary="Triton kernels on CUDA and HIP devices",
    auto_order=20,
    missing_reason=_missing_reason,
    refusal_reason=_refusal_reason,
    direct_=direct_,
    fast_path=TritonFastPath.of,
    note=verify.note,
)
