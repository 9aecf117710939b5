"""How a step changed each gradient: its length and its angle.

While `recording`, a step keeps the norms and products of original and directed gradient: exact, at the price of a copy.
Otherwise the original is worked out from the directed gradient, which is still in `.grad`, by inverting A. That is
refused where it would lose too many digits, and where `.grad` is no longer what the step left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riesz.axis import Axis, Job
from riesz.control import Control, permutation
from riesz.metrics import Centralization, Metric
from riesz.report import Diagnoses, Diagnosis

MOST_ERROR = 0.02
"""The largest relative error of a recovered gradient that is still told."""


@dataclass(frozen=True)
class Trace:
    """What a step left behind of one parameter: enough to know its gradient again, nothing that keeps it alive."""

    name: str
    parameter: Tensor
    axis: Axis
    metric: Metric
    identity: tuple[int, int, int]
    products: Tensor | None

    @classmethod
    def of(cls, name: str, parameter: Tensor, axis: Axis, metric: Metric, g: Tensor, f: Tensor | None) -> Trace:
        return cls(name, parameter, axis, metric, _identity(g), None if f is None else _products(f, g))


def diagnose(traces: Sequence[Trace], control: Control) -> Diagnoses:
    """The diagnoses of a step; parameters that cannot be told any more are named in notes."""
    told, notes = [], []
    for trace in traces:
        products = trace.products if trace.products is not None else _recovered_products(trace, control)
        if isinstance(products, str):
            notes.append(f"{trace.name}: {products}")
            continue
        ff, gg, fg = products.tolist()
        told.append(Diagnosis(trace.name, (gg / ff) ** 0.5 if ff else 1.0, fg / (ff * gg) ** 0.5 if ff * gg else 1.0))
    if not told:
        raise RuntimeError(
            "diagnostics: nothing can be told of the last step; set attachment.recording = True before it\n"
            + "\n".join(notes)
        )
    return Diagnoses(told, tuple(notes))


def _identity(g: Tensor) -> tuple[int, int, int]:
    """Changes when the gradient is replaced or written to, by anyone."""
    return id(g), g.data_ptr(), g._version


def _products(f: Tensor, g: Tensor) -> Tensor:
    """|f|^2, |g|^2 and <f, g>, left on the device."""
    wide = torch.complex128 if g.is_complex() else torch.float64
    flat_f, flat_g = f.to(wide).flatten(), g.to(wide).flatten()
    return torch.stack([torch.vdot(a, b).real for a, b in ((flat_f, flat_f), (flat_g, flat_g), (flat_f, flat_g))])


def _recovered_products(trace: Trace, control: Control) -> Tensor | str:
    g = trace.parameter.grad
    if g is None:
        return "its gradient is gone (zero_grad)"
    if _identity(g) != trace.identity:
        return "its gradient was changed after the step directed it"
    if isinstance(trace.metric, Centralization):
        return "a projection cannot be undone"
    symbol_F = trace.metric.symbol(trace.axis.length(tuple(g.shape)))
    if float(symbol_F.max() / symbol_F.min()) * torch.finfo(g.dtype).eps > MOST_ERROR:
        return f"{trace.metric!r} smooths it too strongly to tell the original from a {g.dtype} result"
    wide = g.to(torch.complex128 if g.is_complex() else torch.float64)
    job = Job.open(wide, trace.axis)
    columns_ONI = job.read()
    order = permutation(trace.name, job.length, g.device)
    if control == "permuted":
        columns_ONI = columns_ONI.index_select(1, order)
    columns_ONI = trace.metric.undirect(columns_ONI)
    if control == "permuted":
        columns_ONI = columns_ONI[:, order.argsort()]
    f = torch.empty_like(wide)
    Job.open(f, trace.axis).write(columns_ONI)
    if control == "norm":
        f *= wide.norm() / f.norm()
    return _products(f, wide)
