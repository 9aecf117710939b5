"""Whether tensors are what they were at an earlier step: same kind, dtype, device, shape and strides.

At 55 small layers the check costs as much as the kernels if it is spelled out in Python, so torch's own C++ comparison,
made for the guards of its compiler, is used where this torch has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Alike = Callable[[Sequence[Any]], bool]


def alike(gradients: Sequence[Tensor]) -> Alike:
    """A function that tells whether other tensors are alike these plain ones on the CPU; None among them is not."""
    return _by_guards(gradients) or _spelled_out(gradients)


def _by_guards(gradients: Sequence[Tensor]) -> Alike | None:
    try:
        made: Any = torch._C._dynamo.guards.TensorGuards
        guards = made(
            *gradients,
            dynamic_dims_sizes=[list(gradient.shape) for gradient in gradients],
            dynamic_dims_strides=[list(gradient.stride()) for gradient in gradients],
        )
        check, count = guards.check, len(gradients)
        if not check(*gradients):
            return None
    except Exception:  # not a public interface: whatever it raises, there is another way
        return None
    return lambda others: len(others) == count and bool(check(*others))


_stride, _is_neg, _is_inference = Tensor.stride, Tensor.is_neg, Tensor.is_inference


def _spelled_out(gradients: Sequence[Tensor]) -> Alike:
    shapes = [gradient.shape for gradient in gradients]
    strides = [gradient.stride() for gradient in gradients]
    dtypes = [gradient.dtype for gradient in gradients]

    def check(others: Sequence[Any]) -> bool:
        # One list at a time: going through it and comparing it then mostly runs in C.
        known = [other for other in others if type(other) is Tensor and other.is_cpu]
        return (
            [other.dtype for other in known] == dtypes
            and [other.shape for other in known] == shapes
            and list(map(_stride, known)) == strides
            and len(known) == len(others)
            and not any(map(_is_neg, known))
            and not any(map(_is_inference, known))
        )

    return check
