"""The backend for every device and dtype: plain torch, weights of one shape batched into one computation."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from riesz.backends.registry import Backend
from riesz.layout.axis import ColumnView, compute_dtype
from riesz.metrics import Operator, circulant
from riesz.private_torch import copy_all_

MAX_BATCH_NUMEL = 1 << 22
MAX_BATCH_NUMEL_ON_CPU = 1 << 17
"""Batching saves launches, which only small weights notice; stacking large ones would only cost memory. On a CPU a
launch costs little, and a batch should stay in its cache."""


def _direct_(columns: Sequence[ColumnView], metric: Operator) -> None:
    by_shape: defaultdict[object, list[ColumnView]] = defaultdict(list)
    for opened in columns:
        by_shape[opened.shape, opened.blocks, opened.view.dtype, opened.view.device].append(opened)
    for group in by_shape.values():
        first = group[0].view
        at_once = max(1, (MAX_BATCH_NUMEL_ON_CPU if first.is_cpu else MAX_BATCH_NUMEL) // first.numel())
        for start in range(0, len(group), at_once):
            _direct_batch_(group[start : start + at_once], metric)


def _direct_batch_(batch: Sequence[ColumnView], metric: Operator) -> None:
    first = batch[0]
    dtype = compute_dtype(first.view.dtype)
    columns_ONI = torch.cat([opened.read() for opened in batch]) if len(batch) > 1 else first.read()
    with circulant.full_precision(columns_ONI.device):
        result_ONI = metric.direct(columns_ONI.to(dtype), first.blocks * len(batch))
    pieces = result_ONI.chunk(len(batch))
    # The batched copy does not know lazily negated views; a compiler has resolved them.
    if not torch.compiler.is_compiling() and any(opened.view.is_neg() for opened in batch):
        for opened, piece in zip(batch, pieces, strict=True):
            opened.write(piece)
        return
    # A half-precision result is rounded by the copy itself: one rounding in all.
    views = [opened.view for opened in batch]
    copy_all_(views, [piece.view(view.shape) for piece, view in zip(pieces, views, strict=True)])


EAGER = Backend(
    name="eager",
    summary="plain torch on any device and dtype",
    auto_order=100,
    missing_reason=lambda: None,
    refusal_reason=lambda gradient: None,
    direct_=_direct_,
)
