"""Whether tensors are what they were at an earlier step: same kind, dtype, device, shape and strides.

At 55 small layers this check costs as much as the kernels if it is written in Python, so torch's own C++ comparison,
made for the guards of its compiler, is used where this torch has it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from riesz.private_torch import compiled_guard


class TensorGuard:
    """Recognises lists of tensors like the plain tensors it is made from; a list with a None is not like them."""

    def __init__(self, tensors: Sequence[Tensor]):
        self._count = len(tensors)
        self._check = compiled_guard(tensors) or _python_check(tensors)

    def matches(self, tensors: Sequence[Any]) -> bool:
        return len(tensors) == self._count and self._check(*tensors)


_stride, _is_neg, _is_inference = Tensor.stride, Tensor.is_neg, Tensor.is_inference


def _python_check(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    shapes = [tensor.shape for tensor in tensors]
    strides = [tensor.stride() for tensor in tensors]
    dtypes = [tensor.dtype for tensor in tensors]
    devices = [tensor.device for tensor in tensors]

    def check(*others: Any) -> bool:
        # One list at a time, so that building and comparing it mostly runs in C.
        plain = [other for other in others if type(other) is Tensor]
        return (
            [other.dtype for other in plain] == dtypes
            and [other.device for other in plain] == devices
            and [other.shape for other in plain] == shapes
            and list(map(_stride, plain)) == strides
            and not any(map(_is_neg, plain))
            and not any(map(_is_inference, plain))
        )

    return check
