"""The operator that a compiler or a dispatch mode sees: `riesz::direct_`, opaque, in place, on every device.

Backends implement it for their device; its fake form serves tracing. Numbers are a tensor on the CPU, an input of the
compiled graph, so that changing them recompiles nothing and waits for no device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from riesz.layout.axis import ColumnView
from riesz.metrics import Operator
from riesz.private_torch import dispatch_mode_is_on, is_fake

Implementation = Callable[[list[Tensor], list[int], int, bool, Tensor], None]

# torch.compile(mode="reduce-overhead") must not record it in a CUDA graph: replays would keep the numbers of the
# recording. A torch without the tag records no graph that has a tensor on the CPU.
_TAGS = (torch.Tag.cudagraph_unsafe,) if hasattr(torch.Tag, "cudagraph_unsafe") else ()

_library: Any = torch.library.Library("riesz", "DEF")  # type: ignore[no-untyped-call]
_library.define(
    "direct_(Tensor(a!)[] views, SymInt[] geometry, int kind, bool riemann, Tensor numbers) -> ()", tags=_TAGS
)


def _fake(views: list[Tensor], geometry: list[int], kind: int, riemann: bool, numbers: Tensor) -> None:
    """Writes its arguments and returns nothing, so there are no shapes to infer."""


torch.library.register_fake("riesz::direct_", _fake, lib=_library)


def implement(device: str, implementation: Implementation) -> None:
    """Set what the operator runs on gradients of a device: "CPU", or "CUDA", which is HIP's name too."""
    _library.impl("direct_", implementation, device)


def call(columns: Sequence[ColumnView], metric: Operator) -> None:
    views = [opened.view for opened in columns]
    torch.ops.riesz.direct_(views, geometry(columns), metric.native_kind, metric.native_riemann, _stacked(metric))


def must_call(columns: Sequence[ColumnView]) -> bool:
    """Whether a compiler or a dispatch mode must see what is done to these gradients."""
    return is_watched() or any(is_fake(opened.view) for opened in columns)


def geometry(columns: Sequence[ColumnView]) -> list[int]:
    return [number for opened in columns for number in (*opened.shape, opened.blocks)]


def is_watched() -> bool:
    """Whether a compiler or a dispatch mode sees what is computed."""
    return torch.compiler.is_compiling() or dispatch_mode_is_on()


def why_unreadable(gradient: Tensor) -> str | None:
    """Why a kernel cannot read the memory of a gradient, or None."""
    if type(gradient) is not Tensor and type(gradient) is not torch.nn.Parameter and not is_fake(gradient):
        return f"it is a {type(gradient).__name__}, whose memory the kernels cannot read"
    if torch.compiler.is_compiling() or is_fake(gradient):
        return None
    # A lazy negative is served: the operator is linear, so what is stored may be directed in place of what is meant.
    try:
        address = gradient.data_ptr()
    except RuntimeError:
        address = 0
    return None if address or not gradient.numel() else "it has no memory: a lazy zero, or inside a functorch transform"


def count_writes(tensors: Sequence[Tensor]) -> None:
    """Move version counters, so that autograd notices what was written behind its back."""
    if not torch.is_inference_mode_enabled():
        torch.autograd.graph.increment_version(tensors)


def _stacked(metric: Operator) -> Tensor:
    """The metric's numbers as one tensor: a compiled step takes it as an input, so a change recompiles nothing.

    On the CPU whatever torch.set_default_device says: its device would take part in dispatch.
    """
    numbers = metric.native_numbers()
    if not torch.compiler.is_compiling():
        # A new tensor belongs to the mode it is made in; those of `as_tensors` do not.
        return torch.tensor([float(number) for number in numbers], dtype=torch.float64, device="cpu")
    return torch.stack([torch.as_tensor(number, dtype=torch.float64, device="cpu") for number in numbers])
