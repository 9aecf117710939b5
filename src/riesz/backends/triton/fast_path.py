"""A list of gradients like the one before: compare, read addresses, upload what changed, launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.tensor_guard import TensorGuard
from riesz.backends.triton.direct import Numbers, is_capturing, is_trusted, kernel_of, launch, numbers_of, serves
from riesz.backends.triton.kernels import DTYPES
from riesz.backends.triton.table import Table, geometry_of, kept_table, stream_of, upload
from riesz.backends.triton.tiles import Geometry
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator


class _Launch:
    """The gradients of one dtype on one stream, their table, and what was uploaded last."""

    def __init__(self, indices: Sequence[int], table: Table, device: torch.device):
        self._indices = indices
        self._table = table
        self._device = device
        self._last: tuple[list[int], Numbers, Tensor, Tensor] = ([], (), torch.empty(0), torch.empty(0))

    def prepare(self, pointers: Sequence[int], values: Numbers) -> Callable[[], None] | None:
        """Upload what changed; what is left is the launch, or None if the table does not hold for these addresses."""
        own = [pointers[index] for index in self._indices]
        known, last_values, addresses, numbers = self._last
        if own != known:
            if not self._table.accepts(own):
                return None
            # A new tensor, not the old one written again: another thread may be about to launch with that.
            addresses = upload(own, torch.int64, self._device)
        if values != last_values:
            numbers = upload(values, torch.float64, self._device)
        if own != known or values != last_values:
            self._last = own, values, addresses, numbers
        return partial(launch, self._table, addresses, numbers)


class TritonFastPath:
    """One launch per dtype on a list of gradients like the one it is made from.

    Addresses are read at every call; shape, strides, dtype, device and kind of every tensor are compared. If anything
    differs, nothing is touched and the call returns no addresses.
    """

    def __init__(self, gradients: Sequence[Tensor], columns: Sequence[ColumnView], geometries: Sequence[Geometry]):
        # Columns without their memory: what a kernel serves depends on sizes alone.
        self._shapes = [ColumnView(torch.empty(0), *opened.shape, opened.blocks) for opened in columns]
        self._geometries = geometries
        self._dtypes = [gradient.dtype for gradient in gradients]
        self._first_pointers = [gradient.data_ptr() for gradient in gradients]
        self._device = gradients[0].device
        self._matches = TensorGuard(gradients).matches
        self._launches: dict[tuple[type[Operator], int], list[_Launch] | None] = {}
        self._numbers: tuple[Operator, Numbers] | None = None

    @classmethod
    def of(cls, gradients: Sequence[Tensor], columns: Sequence[ColumnView]) -> TritonFastPath | None:
        """None where a gradient needs more than its address."""
        geometries = []
        for gradient, opened in zip(gradients, columns, strict=True):
            plain = type(gradient) is Tensor and not gradient.is_inference() and not gradient.is_neg()
            geometry = geometry_of(opened) if plain and gradient.dtype in DTYPES else None
            if geometry is None or not opened.view.data_ptr() == gradient.data_ptr() != 0:
                return None
            if gradient.device != gradients[0].device:
                return None
            geometries.append(geometry)
        return cls(gradients, columns, geometries)

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> Sequence[int]:
        if opaque_operator.is_watched() or is_capturing(self._device):
            return ()
        # One set of tables per stream, see `kept_table`.
        key = type(metric), stream_of(self._device)
        if key not in self._launches:
            self._launches[key] = self._build(metric, key[1])
        launches = self._launches[key]
        if launches is None or not self._matches(gradients):
            return ()
        tensors: list[Any] = list(gradients)
        pointers = list(map(Tensor.data_ptr, tensors))
        known = self._numbers
        if known is None or known[0] is not metric:
            known = (metric, numbers_of(metric))
            # Numbers that are tensors change in place: those are read every time. One assignment of a pair, since
            # threads that share this path must never take one metric's numbers for another's.
            self._numbers = known if all(isinstance(number, float) for number in metric.native_numbers()) else None
        if 0 in pointers:
            return ()
        prepared = [launch.prepare(pointers, known[1]) for launch in launches]
        if None in prepared:
            return ()
        for start in prepared:
            assert start is not None
            start()
        opaque_operator.count_writes(tensors)
        return pointers

    def _build(self, metric: Operator, stream: int) -> list[_Launch] | None:
        kernel = kernel_of(metric)
        if kernel is None or not all(serves(shape, metric) for shape in self._shapes):
            return None
        launches = []
        for dtype in dict.fromkeys(self._dtypes):
            indices = [index for index, other in enumerate(self._dtypes) if other == dtype]
            gradients = tuple((self._geometries[index], self._first_pointers[index] % 16 == 0) for index in indices)
            table = kept_table(kernel.stem, dtype, gradients, self._device, stream)
            if not is_trusted(kernel, dtype, table.tiles, self._device, metric):
                return None
            launches.append(_Launch(indices, table, self._device))
        return launches
