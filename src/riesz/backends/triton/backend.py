"""The backend for gradients on CUDA and HIP devices: all of a step in one launch per dtype.

Requirements it meets:
- Triton is imported when the first gradient is served, not with riesz;
- gradients are written where they lie; only what three strides do not describe is copied and put back;
- nothing waits for the device: tables and numbers are copied from pinned memory, and only when they change;
- a kernel is used on a device after it agreed with eager there (`verify`); what is not trusted, and columns too long for
  one program, eager serves, which is logged once;
- a CUDA graph that is captured holds launches by pointer alone: it is right wherever the gradients it captured stay;
- a dispatch mode or a compiler sees one opaque in-place operator, `riesz::direct_`.

With TRITON_INTERPRET=1 set before the first use, the kernels run in Triton's interpreter on tensors of the CPU.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from riesz.backends.eager import EAGER
from riesz.backends.registry import Backend
from riesz.backends.tensor_guard import alike
from riesz.backends.triton import verify
from riesz.backends.triton.kernels import DTYPES, KERNELS, Kernel
from riesz.backends.triton.table import Table, geometry_of, upload
from riesz.backends.triton.tiles import Geometry, Tile
from riesz.layout.axis import ColumnView
from riesz.metrics import (
    Centralization,
    Identity,
    LaplacianSmoothing,
    Metric,
    ReweightedL2,
    Sobolev,
    SobolevTilde,
)

STEMS: dict[type[Metric], str] = {
    Identity: "identity",
    ReweightedL2: "reweighted_l2",
    Sobolev: "laplacian_smoothing",
    SobolevTilde: "sobolev_tilde",
    LaplacianSmoothing: "laplacian_smoothing",
    Centralization: "centralization",
}

LONGEST_COLUMN = 1 << 14
"""Rows one program walks. Longer columns come from rasterized weights: few, and faster where eager spreads them out."""

Numbers = tuple[float, float, float, float]


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache(maxsize=2)
def _why_missing(interpreted: bool) -> str | None:
    if not interpreted and torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built without CUDA and HIP"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'riesz[gpu]'"
    if not interpreted and not torch.cuda.is_available():
        return "no CUDA or HIP device is available"
    return None


def _missing() -> str | None:
    return _why_missing(_interpreted())


def _refuses(gradient: Tensor) -> str | None:
    if not gradient.is_cuda and not (_interpreted() and gradient.is_cpu):
        return f"it is on {gradient.device}"
    if type(gradient) is not Tensor and type(gradient) is not torch.nn.Parameter:
        return f"it is a {type(gradient).__name__}, whose memory is not its own to read"
    if gradient.dtype not in DTYPES:
        return f"its dtype is {gradient.dtype}"
    if torch.compiler.is_compiling():
        return None
    if gradient._is_zerotensor():
        return "it is a lazy zero without memory"
    if torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        return "it is inside a functorch transform"
    return None


def numbers_of(metric: Metric) -> Numbers:
    """Strength, scale, blend and a flag: the Riemann form of SobolevTilde, or a strength counted in n^2 (Sobolev)."""
    strength: Any = getattr(metric, "lam", getattr(metric, "sigma", 1.0))
    flag = metric.riemann if isinstance(metric, SobolevTilde) else isinstance(metric, Sobolev)
    return float(strength), float(metric.scale), float(metric.blend), float(flag)


def _direct_(jobs: Sequence[ColumnView], metric: Metric) -> None:
    served = [job for job in jobs if _serves(job, metric)]
    if left := [job for job in jobs if not _serves(job, metric)]:
        EAGER.direct_(left, metric)
    alike_jobs: defaultdict[tuple[torch.device, torch.dtype], list[ColumnView]] = defaultdict(list)
    for job in served:
        alike_jobs[job.view.device, job.view.dtype].append(job)
    for group in alike_jobs.values():
        _direct_group_(group, metric)


def _serves(job: ColumnView, metric: Metric) -> bool:
    if type(metric) not in STEMS:
        return False
    if type(metric) is Centralization:
        return not (job.outer == job.blocks and job.inner == 1)  # nothing to average over: eager has the error for it
    if job.length > LONGEST_COLUMN and type(metric) is not Identity:
        _announce_long(job.length)
        return False
    return True


@lru_cache(maxsize=1)
def _announce_once(text: str) -> None:
    logging.getLogger("riesz").warning(text)


def _announce_long(length: int) -> None:
    _announce_once(
        f"backend 'triton' takes columns of at most {LONGEST_COLUMN} rows; eager serves longer ones, such as rasterized "
        "weights"
    )


def _direct_group_(jobs: Sequence[ColumnView], metric: Metric) -> None:
    """Jobs of one device and dtype."""
    kernel = KERNELS[STEMS[type(metric)]]
    opened = [_open(job) for job in jobs]
    device, dtype = jobs[0].view.device, jobs[0].view.dtype
    trusted, left = [], []
    for job, (memory, geometry) in zip(jobs, opened, strict=True):
        tile = kernel.tile_of(geometry, dtype, memory.data_ptr() % 16 == 0)
        good = _is_trusted(kernel, dtype, tile, device, metric)
        (trusted if good else left).append((job, memory, geometry))
    if left:
        EAGER.direct_([job for job, _, _ in left], metric)
    if not trusted:
        return
    addresses = [memory.data_ptr() for _, memory, _ in trusted]
    table = Table.of(kernel, dtype, [(g, a) for (_, _, g), a in zip(trusted, addresses, strict=True)], device)
    numbers = numbers_of(metric)
    if table.accepts(addresses) and not _is_capturing(device):
        _launch(table, upload(addresses, torch.int64, device), upload(numbers, torch.float64, device))
    else:
        # They share memory, and one after the other is what a loop over them would do; or a graph is being captured,
        # which would copy the table again at every replay, from memory that may have changed by then.
        for _, memory, geometry in trusted:
            direct_single_(kernel, memory, geometry, numbers)
    for job, memory, _ in trusted:
        if memory is not job.view:
            job.view.copy_(memory)
    if not torch.is_inference_mode_enabled():
        torch.autograd.graph.increment_version([job.view for job, _, _ in trusted])


def _open(job: ColumnView) -> tuple[Tensor, Geometry]:
    """The memory to write and its geometry: the view's own, or that of a dense copy."""
    if (geometry := geometry_of(job)) is not None:
        return job.view, geometry
    outer, n, inner = job.shape
    return job.view.contiguous(), Geometry(n, outer, inner, n * inner, inner, 1, job.blocks)


def direct_single_(kernel: Kernel, memory: Tensor, geometry: Geometry, numbers: Numbers) -> None:
    """The single-tensor entry point: one gradient in a launch of its own."""
    from riesz.backends.triton.launch import launch_single

    tile = kernel.tile_of(geometry, memory.dtype, memory.data_ptr() % 16 == 0)
    on_device = torch.empty(4, dtype=torch.float64, device=memory.device)
    for index, number in enumerate(numbers):
        on_device[index].fill_(number)  # by value: a copy from the host would be repeated by a captured graph
    launch_single(kernel, memory, geometry, tile, on_device)


def _launch(table: Table, addresses: Tensor, numbers: Tensor) -> None:
    from riesz.backends.triton.launch import launch

    launch(table, addresses, numbers)


def _is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _is_trusted(kernel: Kernel, dtype: torch.dtype, tile: Tile, device: torch.device, metric: Metric) -> bool:
    # The sample has numbers of its own: those of the metric may be extreme, where eager in float32 has fewer digits.
    sample: Metric = type(metric)()

    def run(memory: Tensor, geometry: Geometry) -> None:
        table = Table.of(kernel, dtype, [(geometry, memory.data_ptr())], device)
        if table.tiles != (tile,):
            raise AssertionError(f"expected a sample of {tile}, got {table.tiles}")
        addresses = upload([memory.data_ptr()], torch.int64, device)
        _launch(table, addresses, upload(numbers_of(sample), torch.float64, device))

    def check(memory: Tensor, geometry: Geometry) -> None:
        strides = (geometry.stride_outer, geometry.stride_row, geometry.stride_inner)
        columns_ONI = memory.as_strided((geometry.outer, geometry.n, geometry.inner), strides, memory.storage_offset())
        EAGER.direct_([ColumnView(columns_ONI, geometry.outer, geometry.n, geometry.inner)], sample)

    return verify.is_trusted(kernel, dtype, tile, device, run, check)


# -- the same list again ---------------------------------------------------------------------------------------------

_data_ptr = Tensor.data_ptr


class _Launch:
    """The gradients of one dtype, their table, and what was uploaded last."""

    def __init__(self, indices: Sequence[int], table: Table, device: torch.device):
        self._indices = indices
        self._whole = False
        self._table = table
        self._device = device
        self._pointers: list[int] = []
        self._stream: int | None = None
        self._addresses = table.geometry
        self._values: Numbers | None = None
        self._numbers = table.geometry

    def prepare(self, pointers: Sequence[int], values: Numbers) -> bool:
        """Upload what changed; False if the table does not hold for these addresses."""
        own = [pointers[index] for index in self._indices]
        stream = _stream_of(self._device)
        if own != self._pointers or stream != self._stream:
            if not self._table.accepts(own):
                return False
            self._addresses = upload(own, torch.int64, self._device)
            self._pointers = own
        if values != self._values or stream != self._stream:
            self._numbers = upload(values, torch.float64, self._device)
            self._values = values
        self._stream = stream
        return True

    def start(self) -> None:
        _launch(self._table, self._addresses, self._numbers)


def _stream_of(device: torch.device) -> int:
    return 0 if device.type == "cpu" else int(torch.cuda.current_stream(device).cuda_stream)


class Plan:
    """What was learnt about a list of gradients, and the check that it still holds.

    Addresses are read anew at every call; shape, strides, dtype, device and kind of every tensor are compared. Whatever
    differs, the call returns False with nothing touched, and the long way learns again.
    """

    def __init__(self, gradients: Sequence[Tensor], geometries: Sequence[Geometry]):
        self._geometries = geometries
        self._dtypes = [gradient.dtype for gradient in gradients]
        self._pointers = [gradient.data_ptr() for gradient in gradients]
        self._device = gradients[0].device
        self._alike = alike(gradients)
        self._lone = any(g.outer == g.blocks and g.inner == 1 for g in geometries)
        self._longest = max(g.n for g in geometries)
        self._launches: dict[type[Metric], list[_Launch] | None] = {}

    @classmethod
    def of(cls, gradients: Sequence[Tensor], jobs: Sequence[ColumnView]) -> Plan | None:
        """A plan, or None where a gradient needs more than its address."""
        geometries = []
        for gradient, job in zip(gradients, jobs, strict=True):
            plain = type(gradient) is Tensor and not gradient.is_inference() and not gradient.is_neg()
            geometry = geometry_of(job) if plain and gradient.dtype in DTYPES else None
            if geometry is None or not job.view.data_ptr() == gradient.data_ptr() != 0:
                return None
            if gradient.device != gradients[0].device:
                return None
            geometries.append(geometry)
        return cls(gradients, geometries)

    def __call__(self, gradients: Sequence[Tensor | None], metric: Metric) -> bool:
        kind = type(metric)
        if kind not in self._launches:
            self._launches[kind] = self._build(metric)
        launches = self._launches[kind]
        if launches is None or _is_watched() or _is_capturing(self._device) or not self._alike(gradients):
            return False
        known: list[Any] = list(gradients)
        pointers = list(map(_data_ptr, known))
        values = numbers_of(metric)
        if 0 in pointers or not all(launch.prepare(pointers, values) for launch in launches):
            return False
        for launch in launches:
            launch.start()
        if not torch.is_inference_mode_enabled():
            torch.autograd.graph.increment_version(known)
        return True

    def _build(self, metric: Metric) -> list[_Launch] | None:
        if type(metric) not in STEMS or (self._lone and type(metric) is Centralization):
            return None
        if self._longest > LONGEST_COLUMN:
            return None
        kernel = KERNELS[STEMS[type(metric)]]
        launches = []
        for dtype in dict.fromkeys(self._dtypes):
            indices = [index for index, other in enumerate(self._dtypes) if other == dtype]
            table = Table.of(
                kernel, dtype, [(self._geometries[i], self._pointers[i]) for i in indices], self._device
            )
            if not all(_is_trusted(kernel, dtype, tile, self._device, metric) for tile in table.tiles):
                return None
            launches.append(_Launch(indices, table, self._device))
        return launches


def _is_watched() -> bool:
    """Whether a compiler or a dispatch mode must see what is done."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


TRITON = Backend(
    name="triton",
    summary="Triton kernels on CUDA and HIP devices",
    rank=20,
    missing=_missing,
    refuses=_refuses,
    direct_=_direct_,
    device="cuda",
    plan=Plan.of,
)
