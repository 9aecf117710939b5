"""How a step changed each gradient: its length and its angle.

While `recording`, a step keeps the norms and products of original and directed gradient: exact, at the price of a copy.
Otherwise the original is worked out from the directed gradient, which is still in `.grad`, by inverting A. That is
refused where it would lose too many digits, and where `.grad` is no longer what the step left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor

from riesz.control import Control, permutation
from riesz.hook.plan import Target
from riesz.hook.report import Diagnoses, Diagnosis
from riesz.layout.axis import Axis, ColumnView, is_dtensor
from riesz.metrics import Metric, Operator

MOST_ERROR = 0.02
"""The largest relative error of a recovered gradient that is still told."""

_version = attrgetter("_version")


def _written(gradient: Tensor) -> int:
    """How often a gradient was written to. A DTensor is written through its local part."""
    if not is_dtensor(gradient):
        return gradient._version
    from riesz import sharded

    return sharded.local_of(gradient)._version


@dataclass(frozen=True)
class Trace:
    """What a step left behind: enough to know its gradients again, nothing that keeps them alive."""

    targets: Sequence[Target]
    identities: Sequence[int]
    versions: Sequence[int]
    products: Sequence[Tensor] | None

    def left(self, gradient: Tensor) -> bool:
        """Whether the gradient is one that the step directed, and no one wrote to it since."""
        return (id(gradient), _written(gradient)) in zip(self.identities, self.versions, strict=True)

    @classmethod
    def of_plain(cls, targets: Sequence[Target], directed: Sequence[Tensor]) -> Trace:
        """The trace of plain tensors, at the price of two lists."""
        return cls(targets, list(map(id, directed)), list(map(_version, directed)), None)

    @classmethod
    def of(cls, targets: Sequence[Target], directed: Sequence[Tensor], recorded: Sequence[Tensor] | None) -> Trace:
        return cls(targets, list(map(id, directed)), list(map(_written, directed)), recorded)


def diagnose(trace: Trace, live: Operator, metric: Operator, control: Control) -> Diagnoses:
    """The diagnoses of a step; parameters that cannot be told any more are named in notes.

    Args:
        trace: what the step left behind.
        live, metric: the attachment's metric as it is driven, and its value; groups may have metrics of their own.
        control: the control in force.
    """
    told, notes = [], []
    for index, target in enumerate(trace.targets):
        products: Tensor | str
        if trace.products is not None:
            products = trace.products[index]
        else:
            seen = (trace.identities[index], trace.versions[index])
            products = _recovered(target, metric if target.metric is live else target.metric, seen, control)
        if isinstance(products, str):
            notes.append(f"{target.name}: {products}")
            continue
        ff, gg, fg = products.tolist()
        told.append(Diagnosis(target.name, (gg / ff) ** 0.5 if ff else 1.0, fg / (ff * gg) ** 0.5 if ff * gg else 1.0))
    if not told:
        reasons = "\n".join(notes) or "no parameter had a gradient"
        raise RuntimeError(
            f"diagnostics: nothing can be told of the last step; set attachment.recording = True before it\n{reasons}"
        )
    return Diagnoses(told, tuple(notes))


def products_of(f: Tensor, g: Tensor) -> Tensor:
    """|f|^2, |g|^2 and <f, g>, left on the device."""
    wide = torch.complex128 if g.is_complex() else torch.float64
    flat_f, flat_g = f.to(wide).flatten(), g.to(wide).flatten()
    return torch.stack([torch.vdot(a, b).real for a, b in ((flat_f, flat_f), (flat_g, flat_g), (flat_f, flat_g))])


def _recovered(target: Target, metric: Operator, seen: tuple[int, int], control: Control) -> Tensor | str:
    g = target.parameter.grad
    if g is None:
        return "its gradient is gone (zero_grad)"
    if (id(g), _written(g)) != seen:
        return "its gradient was changed after the step directed it"
    if is_dtensor(g):
        return "it is a DTensor, and what other ranks hold of it is not asked for here"
    if not isinstance(metric, Metric):
        return "a projection cannot be undone"
    symbol_F = metric.symbol(target.axis.length(tuple(g.shape)))
    if float(symbol_F.max() / symbol_F.min()) * torch.finfo(g.dtype).eps > MOST_ERROR:
        return f"{metric!r} smooths it too strongly to tell the original from a {g.dtype} result"
    wide = g.to(torch.complex128 if g.is_complex() else torch.float64)
    f = _undirected(wide, target.name, target.axis, metric, shuffled=control == "permuted")
    if control == "norm":
        f *= wide.norm() / f.norm()
    return products_of(f, wide)


def _undirected(g: Tensor, name: str, axis: Axis, metric: Metric, shuffled: bool) -> Tensor:
    job = ColumnView.open(g, axis)
    columns_ONI = job.read()
    order = permutation(name, job.length, g.device)
    if shuffled:
        columns_ONI = columns_ONI.index_select(1, order)
    columns_ONI = metric.apply_inverse(columns_ONI)
    if shuffled:
        columns_ONI = columns_ONI[:, order.argsort()]
    f = torch.empty_like(g)
    ColumnView.open(f, axis).write(columns_ONI)
    return f
