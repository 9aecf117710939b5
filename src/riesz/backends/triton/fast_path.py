"""A list of gradients like the one before: compare, read addresses, upload what changed, launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from riesz.backends import opaque_operator
from riesz.backends.tensor_guard import TensorGuard
from riesz.backends.triton.direct import Numbers, is_capturing, is_trusted, kernel_of, launch, numbers_of, serves
from riesz.backends.triton.kernels import DTYPES
from riesz.backends.triton.table import Table, geometry_of, upload
from riesz.backends.triton.tiles import Geometry
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator


class _Launch:
    """The gradients of one dtype, their table, and what was uploaded last."""

    def __init__(self, indices: Sequence[int], table: Table, device: torch.device):
        self._indices = indices
        self._table = table
        self._device = device
        self._stream: int | None = None
        self._pointers: list[int] = []
        self._values: Numbers = ()
        self._uploaded: tuple[Tensor, Tensor] | None = None

    def prepare(self, pointers: Sequence[int], values: Numbers) -> bool:
        """Upload what changed; False if the table does not hold for these addresses."""
        own = [pointers[index] for index in self._indices]
        stream = 0 if self._device.type == "cpu" else torch.cuda.current_stream(self._device).cuda_stream
        if own == self._pointers and values == self._values and stream == self._stream:
            return True
        if own != self._pointers and not self._table.accepts(own):
            return False
        # New tensors, not the old ones written again: a launch that is still to run on another stream reads those.
        addresses = upload(own, torch.int64, self._device)
        self._uploaded = addresses, upload(values, torch.float64, self._device)
        self._pointers, self._values, self._stream = own, values, stream
        return True

    def start(self) -> None:
        assert self._uploaded is not None
        launch(self._table, *self._uploaded)


class TritonFastPath:
    """One launch per dtype on a list of gradients like the one it is made from.

    Addresses are read at every call; shape, strides, dtype, device and kind of every tensor are compared. If anything
    differs, the call returns False with nothing touched.
    """

    def __init__(self, gradients: Sequence[Tensor], columns: Sequence[ColumnView], geometries: Sequence[Geometry]):
        # Columns without their memory: what a kernel serves depends on sizes alone.
        self._shapes = [ColumnView(torch.empty(0), *opened.shape, opened.blocks) for opened in columns]
        self._geometries = geometries
        self._dtypes = [gradient.dtype for gradient in gradients]
        self._first_pointers = [gradient.data_ptr() for gradient in gradients]
        self._device = gradients[0].device
        self._matches = TensorGuard(gradients).matches
        self._launches: dict[type[Operator], list[_Launch] | None] = {}
        self._metric: Operator | None = None
        self._values: Numbers = ()

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

    def __call__(self, gradients: Sequence[Tensor | None], metric: Operator) -> bool:
        if opaque_operator.is_watched() or is_capturing(self._device):
            return False
        kind = type(metric)
        if kind not in self._launches:
            self._launches[kind] = self._build(metric)
        launches = self._launches[kind]
        if launches is None or not self._matches(gradients):
            return False
        tensors: list[Any] = list(gradients)
        pointers = list(map(Tensor.data_ptr, tensors))
        if metric is not self._metric:
            # Numbers that are tensors change in place: those are read every time.
            fixed = all(isinstance(number, float) for number in metric.native_numbers())
            self._metric = metric if fixed else None
            self._values = numbers_of(metric)
        if 0 in pointers or not all(launch.prepare(pointers, self._values) for launch in launches):
            return False
        for prepared in launches:
            prepared.start()
        opaque_operator.count_writes(tensors)
        return True

    def _build(self, metric: Operator) -> list[_Launch] | None:
        kernel = kernel_of(metric)
        if kernel is None or not all(serves(shape, metric) for shape in self._shapes):
            return None
        launches = []
        for dtype in dict.fromkeys(self._dtypes):
            indices = [index for index, other in enumerate(self._dtypes) if other == dtype]
            gradients = [(self._geometries[index], self._first_pointers[index]) for index in indices]
            table = Table.of(kernel, dtype, gradients, self._device)
            if not all(is_trusted(kernel, dtype, tile, self._device, metric) for tile in table.tiles):
                return None
            launches.append(_Launch(indices, table, self._device))
        return launches
