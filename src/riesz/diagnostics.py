"""How a step changed each gradient: its length and its angle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from riesz import solvers
from riesz.axis import Axis, Job
from riesz.control import permutation
from riesz.metrics import Centralization, Metric
from riesz.report import Diagnoses, Diagnosis

MOST_ERROR = 0.02
"""The largest relative error of a recovered gradient that is still told."""


def compare(names: Sequence[str], originals: Sequence[Tensor], directed: Sequence[Tensor]) -> Diagnoses:
    """The diagnoses of gradients whose originals were kept."""
    return Diagnoses(_diagnosis(name, f, g) for name, f, g in zip(names, originals, directed, strict=True))


def from_directed(directed: Sequence[tuple[str, Tensor, Axis, Metric]], control: str | None) -> Diagnoses:
    """The diagnoses of gradients of which only the directed form is left: A is inverted."""
    if not directed:
        raise RuntimeError(
            "diagnostics: no gradient is left to look at; call it before zero_grad(), or set "
            "attachment.recording = True before the step"
        )
    told = []
    for name, g, axis, metric in directed:
        diagnosis = _diagnosis(name, _recovered(name, g, axis, metric, shuffled=control == "permuted"), g)
        told.append(replace(diagnosis, ratio=1.0) if control == "norm" else diagnosis)
    return Diagnoses(told)


def _recovered(name: str, g: Tensor, axis: Axis, metric: Metric, shuffled: bool) -> Tensor:
    if isinstance(metric, Centralization):
        raise RuntimeError(
            "diagnostics: Centralization cannot be undone; set attachment.recording = True before the step"
        )
    symbol_F = metric.symbol(axis.length(tuple(g.shape)))
    error = float(symbol_F.max() / symbol_F.min()) * torch.finfo(g.dtype).eps
    if error > MOST_ERROR:
        raise RuntimeError(
            f"diagnostics: {metric!r} smooths {name!r} too strongly to tell its original gradient from a {g.dtype} "
            "directed one; set attachment.recording = True before the step"
        )
    wide = g.to(torch.complex128 if g.is_complex() else torch.float64)
    job = Job.open(wide, axis)
    columns_ONI = job.read()
    order = permutation(name, job.length, g.device)
    if shuffled:
        columns_ONI = columns_ONI.index_select(1, order)
    columns_ONI = solvers.by_fft(columns_ONI, symbol_F.reciprocal().to(g.device))
    if shuffled:
        columns_ONI = columns_ONI[:, order.argsort()]
    f = torch.empty_like(wide)
    Job.open(f, axis).write(columns_ONI)
    return f


def _diagnosis(name: str, f: Tensor, g: Tensor) -> Diagnosis:
    wide = torch.complex128 if g.is_complex() else torch.float64
    flat_f, flat_g = f.to(wide).flatten(), g.to(wide).flatten()
    norm_f, norm_g = flat_f.norm(), flat_g.norm()
    cosine = torch.vdot(flat_f, flat_g).real / (norm_f * norm_g)
    return Diagnosis(name, float(norm_g / norm_f), float(cosine))
