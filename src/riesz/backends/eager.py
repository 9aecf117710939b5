"""The backend for every device and dtype: plain torch, weights of one shape batched into one computation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from riesz.backends.registry import Backend
from riesz.layout.axis import ColumnView, compute_dtype
from riesz.metrics import Operator
from riesz.metrics import circulant as solvers

MAX_BATCH_NUMEL = 1 << 22
"""Batching saves launches, which only small weights notice; stacking large ones would only cost memory."""


def _direct_(jobs: Sequence[ColumnView], metric: Operator) -> None:
    alike: defaultdict[object, list[ColumnView]] = defaultdict(list)
    for job in jobs:
        alike[job.shape, job.blocks, job.view.dtype, job.view.device].append(job)
    for group in alike.values():
        at_once = max(1, MAX_BATCH_NUMEL // group[0].view.numel())
        for start in range(0, len(group), at_once):
            _direct_batch_(group[start : start + at_once], metric)


def _direct_batch_(jobs: Sequence[ColumnView], metric: Operator) -> None:
    first = jobs[0]
    dtype = compute_dtype(first.view.dtype)
    columns_ONI = torch.cat([job.read() for job in jobs]) if len(jobs) > 1 else first.read()
    with solvers.full_precision(columns_ONI.device):
        result_ONI = metric.direct(columns_ONI.to(dtype), first.blocks * len(jobs))
    pieces = result_ONI.chunk(len(jobs))
    if any(job.view.is_neg() for job in jobs):  # lazily negated views: the batched copy does not know them
        for job, piece in zip(jobs, pieces, strict=True):
            job.write(piece)
        return
    # A half-precision result is rounded by the copy itself: one rounding in all.
    torch._foreach_copy_(
        [job.view for job in jobs], [p.view(job.view.shape) for p, job in zip(pieces, jobs, strict=True)]
    )


def _refuses(gradient: Tensor) -> str | None:
    return None


EAGER = Backend(
    name="eager",
    summary="plain torch on any device and dtype",
    rank=100,
    missing=lambda: None,
    refuses=_refuses,
    direct_=_direct_,
)
