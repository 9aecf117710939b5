"""Gradient Centralization: a projection that users compare with, an operator but no metric."""

from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from riesz.layout.axis import Axis
from riesz.metrics.operator import Operator


@dataclass(frozen=True, repr=False)
class Centralization(Operator):
    """`g = f - mean(f over every axis but dim)`: each output filter loses its mean.

    A projection: it has no kernel along one axis and no inverse, so `kernel`, `symbol` and `inner` raise, and it is a
    descent direction only weakly. Grouped weights are centred per group and output. Complex gradients lose their
    complex mean: real and imaginary parts are centred each by itself.

    Example:
        >>> import riesz, torch
        >>> riesz.Centralization().gradient(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
        tensor([[-1.,  1.],
                [ 0.,  0.]])
    """

    mixes_columns = True
    native_kind = 5

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        outer, n, inner = columns_ONI.shape
        split_BONI = columns_ONI.reshape(blocks, outer // blocks, n, inner)
        return (split_BONI - split_BONI.mean((1, 3), keepdim=True)).flatten(0, 1)

    def check(self, shape: tuple[int, ...], axis: Axis) -> None:
        if axis.fan_in:
            raise ValueError(f"Centralization: {self.skip_reason(shape, axis)}")
        if self.skip_reason(shape, axis):
            raise ValueError(
                f"Centralization: expected a gradient of two or more dims to average over the others, got shape {shape}"
            )

    def skip_reason(self, shape: tuple[int, ...], axis: Axis) -> str | None:
        if axis.fan_in:
            return "it averages over the fan-in of each output: its direction is 'output'"
        if axis.columns(shape) == axis.groups:
            return "no axis to average over besides the directed one"
        return None

    def symbol(self, n: int) -> NoReturn:
        raise _undefined("symbol")

    def kernel(self, n: int) -> NoReturn:
        raise _undefined("kernel")

    def inner(self, a: Tensor, b: Tensor, dim: int = 0) -> NoReturn:
        raise _undefined("inner product")


def _undefined(what: str) -> TypeError:
    return TypeError(f"Centralization has no {what}: it is a projection, not the gradient under a metric")
