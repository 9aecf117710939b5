"""The backend for gradients on the CPU: compiled kernels at the speed of memory, on torch's own threads.

Requirements it meets:
- all gradients of a step in one call, written where they lie; only what is not dense in memory is copied and put back;
- nothing about a tensor is assumed from the step before without being checked (`CpuFastPath`);
- what the kernels cannot see through (subclasses, functorch) is refused, and another backend serves;
- a dispatch mode or a compiler sees one opaque in-place operator, `riesz::direct_`;
- in-place writes count as such: version counters move, so autograd still notices.
"""

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.eager import EAGER
from riesz.backends.native import DONE, DTYPES, OVERLAP, CJob, CMetric, Native, check, load, threads
from riesz.backends.registry import Backend
from riesz.backends.shards import CpuShardKernels
from riesz.backends.tensor_guard import TensorGuard
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator

LONGEST_STRIP = 1 << 20
"""Longest axis of a strip of columns. The scratch memory of one grows with it; a lone column has no such limit."""

_native: Native | str = load()

_data_ptr, _is_contiguous, _dtype = Tensor.data_ptr, Tensor.is_contiguous, attrgetter("dtype")


def _refusal_reason(gradient: Tensor) -> str | None:
    if not gradient.is_cpu:
        return f"it is on {gradient.device}"
    if gradient.dtype not in DTYPES:
        return f"its dtype is {gradient.dtype}"
    return opaque_operator.why_unreadable(gradient)


def _direct_(columns: Sequence[ColumnView], metric: Operator) -> None:
    native = [view for view in columns if _has_kernel(view, metric)]
    if left := [view for view in columns if not _has_kernel(view, metric)]:
        EAGER.direct_(left, metric)
    if not native:
        return
    if opaque_operator.must_call(native):
        opaque_operator.call(native, metric)
    else:
        views = [view.view for view in native]
        _run(views, _c_jobs(views, opaque_operator.geometry(native)), _c_metric(metric))


def _has_kernel(columns: ColumnView, metric: Operator) -> bool:
    if metric.native_kind is None:
        return False
    # Nothing to average over: eager has the error for it.
    return _fits(columns) and not (metric.mixes_columns and _is_lone(columns))


def _fits(columns: ColumnView) -> bool:
    return columns.length <= LONGEST_STRIP or (columns.outer == 1 and columns.inner == 1)


def _is_lone(columns: ColumnView) -> bool:
    return columns.outer == columns.blocks and columns.inner == 1


# -- from Python to C ----------------------------------------------------------------------------------------------


def _c_metric(metric: Operator) -> CMetric:
    return CMetric(metric.native_kind, metric.native_riemann, *metric.native_numbers())


def _c_jobs(views: Sequence[Tensor], geometry: Sequence[int]) -> ctypes.Array[CJob]:
    # A compiled step asks for the same ones each time, and nobody writes to them.
    return _kept_jobs(tuple(geometry), tuple(map(_dtype, views)))


@lru_cache(maxsize=256)
def _kept_jobs(geometry: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> ctypes.Array[CJob]:
    jobs = (CJob * len(dtypes))()
    for index, dtype in enumerate(dtypes):
        jobs[index] = CJob(*geometry[4 * index : 4 * index + 4], DTYPES[dtype])
    return jobs


def _run(views: Sequence[Tensor], jobs: ctypes.Array[CJob], metric: CMetric) -> None:
    all_dense = all(map(_is_contiguous, views))
    dense = views if all_dense else [view.contiguous() for view in views]
    if not _call(list(map(_data_ptr, dense)), jobs, metric):
        # Two of them share memory. One after the other is what a loop over them would do.
        for index, view in enumerate(views):
            _run([view], (CJob * 1)(jobs[index]), metric)
        return
    if not all_dense:
        for view, tensor in zip(views, dense, strict=True):
            if tensor is not view:
                view.copy_(tensor)
    opaque_operator.count_writes(views)


def _call(pointers: Sequence[int], jobs: ctypes.Array[CJob], metric: CMetric) -> bool:
    """Whether it was done; False, and nothing was touched, if some jobs share memory."""
    native = _native
    assert isinstance(native, Native)
    data = array("Q", pointers)
    result = native.direct(data.buffer_info()[0], jobs, len(pointers), metric, native.parallel_for, threads())
    if result not in (DONE, OVERLAP):
        check(result)
    return bool(result == DONE)


# -- the same list again ---------------------------------------------------------------------------------------------


class CpuFastPath:
    """One kernel call on a list of gradients like the one it is made from.

    Addresses are read at every call; shape, strides, dtype, device and kind of every tensor are compared. If anything
    differs, nothing is touched and the call returns no addresses.
    """

    def __init__(self, gradients: Sequence[Tensor], columns: Sequence[ColumnView]):
        self._jobs = _c_jobs(gradients, opaque_operator.geometry(columns))
        self._matches = TensorGuard(gradients).matches
        self._has_lone_column = any(map(_is_lone, columns))
        self._c_metric: tuple[Operator, CMetric] | None = None

    @classmethod
    def of(cls, gradients: Sequence[Tensor], columns: Sequence[ColumnView]) -> "CpuFastPath | None":
        """None where a gradient needs more than its address."""
        for gradient, opened in zip(gradients, columns, strict=True):
            plain = type(gradient) is Tensor and not gradient.is_inference() and not gradient.is_neg()
            dense = plain and gradient.dtype in DTYPES and opened.view.is_contiguous()
            if not (dense and _fits(opened) and opened.view.data_ptr() == gradient.data_ptr() != 0):
                return None
        return cls(gradients, columns)

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> Sequence[int]:
        if (
            metric.native_kind is None
            or (self._has_lone_column and metric.mixes_columns)
            or opaque_operator.is_watched()
            or not self._matches(gradients)
        ):
            return ()
        tensors: list[Any] = list(gradients)
        pointers = list(map(_data_ptr, tensors))
        cached = self._c_metric
        if cached is None or cached[0] is not metric:
            cached = (metric, _c_metric(metric))
            # Numbers that are tensors change in place: those are read every time. One assignment of a pair, since
            # threads that share this path must never take one metric's numbers for another's.
            self._c_metric = cached if all(isinstance(number, float) for number in metric.native_numbers()) else None
        if 0 in pointers or not _call(pointers, self._jobs, cached[1]):
            return ()
        opaque_operator.count_writes(tensors)
        return pointers


# -- the operator a compiler sees ------------------------------------------------------------------------------------


def _op(views: list[Tensor], geometry: list[int], kind: int, riemann: bool, numbers: Tensor) -> None:
    strength, scale, blend = numbers.tolist()
    _run(views, _c_jobs(views, geometry), CMetric(kind, riemann, strength, scale, blend))


opaque_operator.implement("CPU", _op)

CPU = Backend(
    name="cpu",
    summary="compiled kernels" + (f" ({_native.instructions})" if isinstance(_native, Native) else ""),
    auto_order=10,
    missing_reason=lambda: _native if isinstance(_native, str) else None,
    refusal_reason=_refusal_reason,
    direct_=_direct_,
    fast_path=CpuFastPath.of,
    shard_kernels=CpuShardKernels,
)
