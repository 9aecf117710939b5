"""The backend for gradients on the CPU: compiled kernels at the speed of memory, on torch's own threads.

Requirements it meets:
- all gradients of a step in one call, written where they lie; only what is not dense in memory is copied and put back;
- nothing about a tensor is assumed from the step before without being checked (`CpuFastPath`);
- what the kernels cannot see through (subclasses, functorch) is refused, and another backend serves;
- a dispatch mode or a compiler sees one opaque in-place operator, `riesz::direct_`;
- in-place writes count as such: version counters move, so autograd still notices.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from riesz.backends.eager import EAGER
from riesz.backends.native import DONE, DTYPES, NO_MEMORY, OVERLAP, CJob, CMetric, Native, load, threads
from riesz.backends.registry import Backend
from riesz.backends.tensor_guard import TensorGuard
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator

LONGEST_STRIP = 1 << 20
"""Longest axis of a strip of columns. The scratch memory of one grows with it; a lone column has no such limit."""

_native: Native | str = load()


def _missing() -> str | None:
    return _native if isinstance(_native, str) else None


def _refuses(gradient: Tensor) -> str | None:
    if not gradient.is_cpu:
        return f"it is on {gradient.device}"
    if type(gradient) is not Tensor and type(gradient) is not torch.nn.Parameter and not _is_fake(gradient):
        return f"it is a {type(gradient).__name__}, whose memory the kernels cannot read"
    if gradient.dtype not in DTYPES:
        return f"its dtype is {gradient.dtype}"
    if torch.compiler.is_compiling():
        return None
    # A lazy negative is served: the operator is linear, so what is stored may be directed in place of what is meant.
    if gradient._is_zerotensor():
        return "it is a lazy zero without memory"
    if torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        return "it is inside a functorch transform"
    return None


def _direct_(columns: Sequence[ColumnView], metric: Operator) -> None:
    native = [view for view in columns if _has_kernel(view, metric)]
    if left := [view for view in columns if not _has_kernel(view, metric)]:
        EAGER.direct_(left, metric)
    if not native:
        return
    views, geometry = [view.view for view in native], _geometry(native)
    if is_watched() or any(map(_is_fake, views)):
        torch.ops.riesz.direct_(views, geometry, metric.native_kind, metric.native_riemann, _stacked(metric))
    else:
        _run(views, _c_jobs(views, geometry), _c_metric(metric))


def _has_kernel(columns: ColumnView, metric: Operator) -> bool:
    if metric.native_kind is None:
        return False
    # Nothing to average over: eager has the error for it.
    return _fits(columns) and not (metric.mixes_columns and _is_lone(columns))


def _fits(columns: ColumnView) -> bool:
    return columns.length <= LONGEST_STRIP or (columns.outer == 1 and columns.inner == 1)


def _is_lone(columns: ColumnView) -> bool:
    return columns.outer == columns.blocks and columns.inner == 1


def _is_fake(gradient: Tensor) -> bool:
    """Whether it is one of torch's fake tensors, for which the operator has a fake implementation."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and type(gradient) is fakes.FakeTensor


def is_watched() -> bool:
    """Whether a compiler or a dispatch mode must see what is done."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


# -- from Python to C ----------------------------------------------------------------------------------------------


def _stacked(metric: Operator) -> Tensor:
    """The metric's numbers as one tensor: a compiled step takes it as an input, so a change recompiles nothing."""
    numbers = metric.native_numbers()
    if not torch.compiler.is_compiling():
        # A new tensor belongs to the mode it is made in; those of `as_tensors` do not.
        return torch.tensor([float(number) for number in numbers], dtype=torch.float64)
    return torch.stack([torch.as_tensor(number, dtype=torch.float64) for number in numbers])


def _c_metric(metric: Operator) -> CMetric:
    return CMetric(metric.native_kind, metric.native_riemann, *metric.native_numbers())


def _geometry(columns: Sequence[ColumnView]) -> list[int]:
    return [number for view in columns for number in (*view.shape, view.blocks)]


def _c_jobs(views: Sequence[Tensor], geometry: Sequence[int]) -> ctypes.Array[CJob]:
    jobs = (CJob * len(views))()
    for index, view in enumerate(views):
        jobs[index] = CJob(*geometry[4 * index : 4 * index + 4], DTYPES[view.dtype])
    return jobs


def _run(views: Sequence[Tensor], jobs: ctypes.Array[CJob], metric: CMetric) -> None:
    dense = [view.contiguous() for view in views]
    if not _call([tensor.data_ptr() for tensor in dense], jobs, metric):
        # Two of them share memory. One after the other is what a loop over them would do.
        for index, view in enumerate(views):
            _run([view], (CJob * 1)(jobs[index]), metric)
        return
    for view, tensor in zip(views, dense, strict=True):
        if tensor is not view:
            view.copy_(tensor)
    _count_writes(views)


def _call(pointers: Sequence[int], jobs: ctypes.Array[CJob], metric: CMetric) -> bool:
    """Whether it was done; False, and nothing was touched, if some jobs share memory."""
    native = _native
    assert isinstance(native, Native)
    data = array("Q", pointers)
    result = native.direct(data.buffer_info()[0], jobs, len(pointers), metric, native.parallel_for, threads())
    if result == NO_MEMORY:
        raise MemoryError("riesz: no memory for the scratch space of the cpu backend")
    if result not in (DONE, OVERLAP):
        raise RuntimeError(f"riesz: the cpu backend refused its arguments (code {result})")
    return bool(result == DONE)


def _count_writes(tensors: Sequence[Tensor]) -> None:
    if not torch.is_inference_mode_enabled():
        torch.autograd.graph.increment_version(tensors)


# -- the same list again ---------------------------------------------------------------------------------------------


_data_ptr = Tensor.data_ptr


class CpuFastPath:
    """One kernel call on a list of gradients like the one it is made from.

    Addresses are read at every call; shape, strides, dtype, device and kind of every tensor are compared. If anything
    differs, the call returns False with nothing touched.
    """

    def __init__(self, gradients: Sequence[Tensor], columns: Sequence[ColumnView]):
        self._jobs = _c_jobs(gradients, _geometry(columns))
        self._matches = TensorGuard(gradients).matches
        self._has_lone_column = any(map(_is_lone, columns))
        self._metric: Operator | None = None
        self._c_metric = CMetric()

    @classmethod
    def of(cls, gradients: Sequence[Tensor], columns: Sequence[ColumnView]) -> CpuFastPath | None:
        """None where a gradient needs more than its address."""
        for gradient, opened in zip(gradients, columns, strict=True):
            plain = type(gradient) is Tensor and not gradient.is_inference() and not gradient.is_neg()
            dense = plain and gradient.dtype in DTYPES and opened.view.is_contiguous()
            if not (dense and _fits(opened) and opened.view.data_ptr() == gradient.data_ptr() != 0):
                return None
        return cls(gradients, columns)

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> bool:
        if metric.native_kind is None or (self._has_lone_column and metric.mixes_columns) or is_watched():
            return False
        if not self._matches(gradients):
            return False
        tensors: list[Any] = list(gradients)
        pointers = list(map(_data_ptr, tensors))
        if metric is not self._metric:
            # Numbers that are tensors change in place: those are read every time.
            fixed = all(isinstance(number, float) for number in metric.native_numbers())
            self._metric = metric if fixed else None
            self._c_metric = _c_metric(metric)
        if 0 in pointers or not _call(pointers, self._jobs, self._c_metric):
            return False
        _count_writes(tensors)
        return True


# -- the operator a compiler sees ------------------------------------------------------------------------------------

_library: Any = torch.library.Library("riesz", "DEF")  # type: ignore[no-untyped-call]
_library.define("direct_(Tensor(a!)[] views, SymInt[] geometry, int kind, bool riemann, Tensor numbers) -> ()")


def _op(views: list[Tensor], geometry: list[int], kind: int, riemann: bool, numbers: Tensor) -> None:
    strength, scale, blend = numbers.tolist()
    _run(views, _c_jobs(views, geometry), CMetric(kind, riemann, strength, scale, blend))


def _fake_op(views: list[Tensor], geometry: list[int], kind: int, riemann: bool, numbers: Tensor) -> None:
    """Writes its arguments and returns nothing, so there are no shapes to infer."""


_library.impl("direct_", _op, "CPU")
torch.library.register_fake("riesz::direct_", _fake_op, lib=_library)

CPU = Backend(
    name="cpu",
    summary="compiled kernels" + (f" ({_native.instructions})" if isinstance(_native, Native) else ""),
    rank=10,
    missing=_missing,
    refuses=_refuses,
    direct_=_direct_,
    device="cpu",
    fast_path=CpuFastPath.of,
)
