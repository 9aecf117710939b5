"""The transform itself, in place, on any collection of gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from riesz.backends import Backend, Planned, check_name, choose
from riesz.layout.axis import Axis, ColumnView, check_gradient, is_dtensor, overlaps
from riesz.metrics import Operator

Grads = TypeVar("Grads", bound=Sequence[Tensor])


@overload
def precondition_(grads: Tensor, metric: Operator, dim: int = 0, backend: str = "auto") -> Tensor: ...


@overload
def precondition_(grads: Grads, metric: Operator, dim: int = 0, backend: str = "auto") -> Grads: ...


def precondition_(grads: Any, metric: Operator, dim: int = 0, backend: str = "auto") -> Any:
    """Replace gradients by their gradients under `metric`, in place.

    `f <- A f` along `dim`, column by column. Shapes, dtypes, devices and memory formats may be mixed; equal ones are
    computed together. Either all gradients are fit and are directed, or none is touched. DTensors are directed as the
    whole tensors they stand for: then every rank must make the same call.

    Args:
        grads: a tensor, or a list or tuple of tensors.
        metric: the inner product.
        dim: the directed axis of each gradient.
        backend: "auto", or a name from `riesz.backends()`.

    Returns:
        `grads`, as given.

    Example:
        >>> import riesz, torch
        >>> f = torch.tensor([[1.0], [3.0]])
        >>> riesz.precondition_(f, riesz.ReweightedL2(lam=1.0))
        tensor([[3.],
                [5.]])
    """
    check_metric(metric)
    check_name(backend)
    if not isinstance(grads, (Tensor, list, tuple)):
        raise TypeError(
            f"precondition_: grads must be a tensor, or a list or tuple of tensors, got {type(grads).__name__}"
        )
    single = isinstance(grads, Tensor)
    gradients = [grads] if isinstance(grads, Tensor) else grads
    key = (dim, backend, len(gradients), getattr(gradients[0], "shape", None) if gradients else None)
    tracing = torch.compiler.is_compiling()
    if type(dim) is int and not tracing and key in _planned and _planned[key].direct_(gradients, metric):
        return grads
    first_place: dict[int, int] = {}
    jobs, sharded = [], []
    for index, grad in enumerate(gradients):
        what = "precondition_: grads" if single else f"precondition_: grads[{index}]"
        check_gradient(grad, what)
        axis = Axis.checked(dim, grad)
        check_writable(grad, what, axis)
        if not tracing and (first := first_place.setdefault(id(grad), index)) != index:
            raise ValueError(f"{what} is the same tensor as grads[{first}]: it would be directed twice")
        metric.check(tuple(grad.shape), axis)
        if is_dtensor(grad):
            sharded.append((what, grad, axis))
        else:
            jobs.append(ColumnView.open(grad, axis))
    direct_(jobs, metric, backend)
    if sharded:
        _direct_sharded_(sharded, metric, backend)
    elif not tracing:
        if len(_planned) >= MAX_PLANNED:
            _planned.clear()
        _planned[key] = Planned()
        _planned[key].learn(backend, gradients, jobs)
    return grads


_planned: dict[object, Planned] = {}
"""How lists of gradients were served last, by what tells one list from another at a glance; the plan looks closer."""

MAX_PLANNED = 64


@torch.no_grad()
def direct_(jobs: Sequence[ColumnView], metric: Operator, backend: str) -> None:
    """Direct gradients that were checked and opened, each with the backend that serves it."""
    served: defaultdict[Backend, list[ColumnView]] = defaultdict(list)
    for job in jobs:
        if job.view.numel() > 0:
            served[choose(backend, job.view)].append(job)
    for chosen, its_jobs in served.items():
        chosen.direct_(its_jobs, metric)


def _direct_sharded_(gradients: Sequence[tuple[str, Any, Axis]], metric: Operator, backend: str) -> None:
    from riesz import untraced
    from riesz.sharded import Item
    from riesz.sharded import direct_ as direct_sharded_

    items = [Item(what, gradient, gradient, axis, metric) for what, gradient, axis in gradients]
    untraced.run(lambda: direct_sharded_(items, backend))


def check_metric(metric: object) -> None:
    if not isinstance(metric, Operator):
        hint = (
            f"; did you mean {metric.__name__}()?" if isinstance(metric, type) and issubclass(metric, Operator) else ""
        )
        hint = f"; did you mean riesz.metric({metric!r})?" if isinstance(metric, str) else hint
        raise TypeError(f"metric must be a riesz metric such as riesz.SobolevTilde(), got {metric!r}{hint}")


def check_writable(grad: object, what: str, axis: Axis) -> None:
    """Refuse what cannot be computed on along this axis, or not be written in place."""
    check_gradient(grad, what)
    assert isinstance(grad, Tensor)
    if is_dtensor(grad):
        from riesz import sharded

        sharded.check(grad, axis, what)
        grad = sharded.local_of(grad)
    if overlaps(tuple(grad.shape), grad.stride()):
        raise ValueError(
            f"{what} of shape {tuple(grad.shape)} is expanded or overlaps itself (strides {grad.stride()}): several "
            "entries share one place in memory, so it cannot be written in place; pass grad.contiguous()"
        )
    if not torch.compiler.is_compiling() and grad.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{what} is an inference tensor and cannot be written in place here; clone it first")
