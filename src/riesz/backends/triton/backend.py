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

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.registry import Backend
from riesz.backends.triton import verify
from riesz.backends.triton.direct import direct_, implementation
from riesz.backends.triton.fast_path import TritonFastPath
from riesz.backends.triton.kernels import DTYPES
from riesz.layout.memoize import memoized


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
