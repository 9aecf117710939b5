"""Which axis of a weight is directed, and how the weight folds around it.

A weight of any layout becomes columns of shape (outer, n, inner): n the directed axis, the others batch axes, kept in
the order in which they lie in memory, so that channels_last weights are processed where they are.
"""

import math
import operator
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from riesz.layout.memoize import memoized


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half types accumulate in float32: a float16 running sum overflows at a few thousand channels."""
    return {torch.float64: torch.float64, torch.complex128: torch.float64}.get(dtype, torch.float32)


def check_gradient(value: object, what: str) -> None:
    """Refuse what no backend can compute on."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{what}: expected a torch.Tensor, got {value!r} of type {type(value).__name__}")
    if value.layout != torch.strided or value.is_nested:
        kind = "a nested tensor" if value.is_nested else f"layout {value.layout}"
        raise TypeError(f"{what}: expected a dense (strided) tensor, got {kind}; densify it first")
    if value.is_meta:
        raise TypeError(f"{what}: expected a tensor with values, got one on the meta device")
    if not (value.is_floating_point() or value.is_complex()):
        raise TypeError(f"{what}: expected floating point or complex, got dtype {value.dtype}")
    if value.itemsize < 2:
        raise TypeError(f"{what}: expected float16 or wider, got dtype {value.dtype}")
    if value.dim() == 0:
        raise ValueError(f"{what}: expected one dim or more, got a 0-d tensor, which has no axis to direct")


def is_dtensor(tensor: object) -> bool:
    """Whether it is a DTensor, whose values may be on several ranks: `riesz.sharded` is for those."""
    distributed = sys.modules.get("torch.distributed.tensor")  # a DTensor exists only once it is imported
    return distributed is not None and isinstance(tensor, distributed.DTensor)


@memoized
def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether several entries of a tensor may share one address, so that it cannot be written in place."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


@dataclass(frozen=True)
class Axis:
    """The directed axis of a weight."""

    dim: int | None  # the dimension, or None for all of them in logical row-major order ("rasterized")
    groups: int = 1  # blocks of dimension 0 that are independent: filters of different groups see different inputs
    fan_in: bool = False  # directed along all dimensions but `dim`, the output one, in logical row-major order

    @classmethod
    def checked(cls, dim: object, tensor: Tensor) -> "Axis":
        """The axis a user named, counted from the front."""
        if isinstance(dim, bool) or not hasattr(dim, "__index__") or isinstance(dim, Tensor):
            raise TypeError(f"dim: expected an int, got {dim!r} of type {type(dim).__name__}")
        dim, dims = operator.index(dim), tensor.dim()
        if not -dims <= dim < dims:
            raise IndexError(
                f"dim: expected {-dims}..{dims - 1} for a gradient of shape {tuple(tensor.shape)}, got {dim}"
            )
        return cls(dim % dims)

    def dims(self, count: int) -> tuple[int, ...]:
        """The dimensions it runs along, of `count`: the last varies fastest."""
        if self.dim is None:
            return tuple(range(count))
        return tuple(d for d in range(count) if d != self.dim) if self.fan_in else (self.dim,)

    def length(self, shape: tuple[int, ...]) -> int:
        """How many entries are smoothed together: n."""
        if self.dim is None:
            return math.prod(shape)
        dims = self.dims(len(shape))
        return math.prod(shape[d] for d in dims) // (self.groups if 0 in dims else 1)

    def columns(self, shape: tuple[int, ...]) -> int:
        """How many independent columns there are: M."""
        return math.prod(shape) // max(self.length(shape), 1)

    def __str__(self) -> str:
        if self.dim is None:
            return "rasterized"
        if self.fan_in:
            return f"fan-in of {self.dim}" + (f" in {self.groups} groups" if self.groups > 1 else "")
        return f"{self.dim} in {self.groups} groups" if self.groups > 1 else str(self.dim)


@memoized
def _fold(
    shape: tuple[int, ...], strides: tuple[int, ...], dim: int, groups: int, apart: bool, along: int = 0
) -> tuple[tuple[int, ...] | None, tuple[int, int, int]]:
    """The order of dims and the shape by which a real tensor becomes columns: the same every step, so cached.

    Args:
        shape, strides: of the tensor.
        dim, groups: of its axis.
        apart: whether the last dim holds the parts of complex numbers, and stays in front.
        along: how many dims the fan-in of the outputs in `dim` has; 0 if `dim` itself is the axis.
    """
    first: tuple[int, ...] = ()
    if groups > 1:
        # Groups become a dimension of their own and stay in front, since each is a block.
        shape = (groups, shape[0] // groups, *shape[1:])
        strides = (strides[0] * shape[1], *strides)
        dim += 1
        first = (0,)
    if apart:
        first = (*first, len(shape) - 1)
    if along:
        # In logical order: that of memory may be another one, as in channels_last.
        within = tuple(d for d in range(len(first), len(first) + along + 1) if d != dim)
        order = (*first, dim, *within, *range(len(first) + along + 1, len(shape)))
        sizes = [shape[d] for d in order]
        start = len(first) + 1
        fan_in = math.prod(sizes[start : start + along])
        columns = math.prod(sizes[:start]), fan_in, math.prod(sizes[start + along :])
        return None if order == tuple(range(len(shape))) else order, columns
    # The largest stride first is the order in memory.
    rest = sorted((d for d in range(len(shape)) if d not in first), key=lambda d: -strides[d])
    order = (*first, *rest)
    position = order.index(dim)
    sizes = [shape[d] for d in order]
    columns = math.prod(sizes[:position]), sizes[position], math.prod(sizes[position + 1 :])
    return None if order == tuple(range(len(shape))) else order, columns


@dataclass(frozen=True)
class ColumnView:
    """One gradient, opened along its directed axis: what a backend works on."""

    view: Tensor  # a real view of the gradient; writing to it writes the gradient
    outer: int  # its shape as columns: `view.reshape(outer, length, inner)` reads them
    length: int
    inner: int
    blocks: int = 1  # how many independent groups, or parts of complex ones, the outer axis is made of
    order: tuple[int, ...] | None = None  # the permutation of dims that led to `view`, None where there was none

    @classmethod
    def open(cls, gradient: Tensor, axis: Axis, mixes_columns: bool = False) -> "ColumnView":
        """Open a gradient that passed `check_gradient`, without copying it.

        Real and imaginary parts are columns like others, but to an operator that mixes columns they are blocks: the
        mean of complex numbers is that of each part.
        """
        view, parts = gradient, 1
        if gradient.is_complex():
            # The operator is real, so A conj(f) = conj(A f): a lazily conjugated tensor is opened as what it stores.
            view, parts = torch.view_as_real(gradient.conj() if gradient.is_conj() else gradient), 2
        if axis.dim is None:
            return cls(view, 1, gradient.numel(), parts)
        apart = mixes_columns and parts > 1
        along = gradient.dim() - 1 if axis.fan_in else 0
        order, columns = _fold(tuple(view.shape), view.stride(), axis.dim, axis.groups, apart, along)
        if axis.groups > 1:
            view = view.view(axis.groups, -1, *view.shape[1:])
        if order is not None:
            view = view.permute(order)
        blocks = axis.groups * (parts if apart else 1)
        return cls(view, *columns, blocks, order)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.outer, self.length, self.inner

    def read(self) -> Tensor:
        """The columns; a view wherever memory allows, so never write to it."""
        return self.view.reshape(self.shape)

    def write(self, columns_ONI: Tensor) -> None:
        """Write the columns back where they were read."""
        self.view.copy_(columns_ONI.view(self.view.shape))

    def unfold(self, columns_ONI: Tensor, like: Tensor) -> Tensor:
        """The columns as a new tensor with the shape, dtype and order in memory of `like`, the gradient opened here."""
        # An inverse FFT returns columns in another order in memory.
        result = columns_ONI.to(self.view.dtype).contiguous().view(self.view.shape)
        if self.order is not None:
            result = result.permute([self.order.index(d) for d in range(len(self.order))])
        if result.dim() > like.dim() + like.is_complex():  # groups have a dimension of their own
            result = result.flatten(0, 1)
        if like.is_complex():
            beside = result.stride(-1) == 1  # else the parts are blocks
            result = torch.view_as_complex(result) if beside else torch.complex(*result.unbind(-1))
            result = result.conj() if like.is_conj() else result
        return result
