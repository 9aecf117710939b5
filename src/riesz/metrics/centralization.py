"""Gradient Centralization: a neighbour to compare with, no metric of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from torch import Tensor

from riesz.layout.axis import Axis
from riesz.metrics.base import Metric


@dataclass(frozen=True, repr=False)
class Centralization(Metric):
    """`g = f - mean(f over every axis but dim)`: each output filter loses its mean.

    A projection: it has no kernel along one axis and no inverse, so `kernel`, `symbol` and `inner` raise, and it is a
    descent direction only weakly. Grouped weights are centred per group and output.

    Example:
        >>> import riesz, torch
        >>> riesz.Centralization().gradient(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
        tensor([[-1.,  1.],
                [ 0.,  0.]])
    """

    # A projection times a number, or mixed with f, is no longer Gradient Centralization: neither may be set.
    scale: float = field(default=1.0, init=False)
    blend: float = field(default=0.0, init=False)

    tunable_fields: ClassVar[tuple[str, ...]] = ()

    def direct(self, columns_ONI: Tensor, blocks: int = 1) -> Tensor:
        outer, n, inner = columns_ONI.shape
        split_BONI = columns_ONI.reshape(blocks, outer // blocks, n, inner)
        return (split_BONI - split_BONI.mean((1, 3), keepdim=True)).flatten(0, 1)

    def check(self, shape: tuple[int, ...], axis: Axis) -> None:
        if self.skip_reason(shape, axis):
            raise ValueError(
                f"Centralization averages over the axes other than the directed one, and a gradient of shape {shape} "
                "has none; leave it out, or give a gradient of two or more dims"
            )

    def skip_reason(self, shape: tuple[int, ...], axis: Axis) -> str | None:
        if axis.columns(shape) == axis.groups:
            return "no axis to average over besides the directed one"
        return None

    def symbol(self, n: int) -> NoReturn:
        raise self._no("symbol")

    def kernel(self, n: int) -> NoReturn:
        raise self._no("kernel")

    def inner(self, a: Tensor, b: Tensor, dim: int = 0) -> NoReturn:
        raise self._no("inner product")

    def apply_inverse(self, columns_ONI: Tensor) -> NoReturn:
        raise self._no("inverse")

    def _no(self, what: str) -> TypeError:
        return TypeError(f"Centralization has no {what}: it is a projection, not the gradient under a metric")
