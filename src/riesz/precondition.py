"""The transform itself, in place, on any collection of gradients."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from riesz import backends
from riesz.axis import Axis, Job, check_gradient
from riesz.metrics import Metric


def precondition_(
    grads: Tensor | Sequence[Tensor], metric: Metric, dim: int = 0, backend: str = "auto"
) -> Tensor | Sequence[Tensor]:
    """Replace gradients by their gradients under `metric`, in place.

    `f <- A f` along `dim`, column by column. Shapes, dtypes, devices and memory formats may be mixed; equal ones are
    computed together. Either all gradients are fit and are directed, or none is touched.

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
    backends.check_name(backend)
    if _again(grads, metric, dim, backend):
        return grads
    if isinstance(grads, Tensor):
        check_writable(grads, "precondition_: grads")
        job = Job.open(grads, Axis.checked(dim, grads))
        direct_([job], metric, backend)
        _remember([grads], [job], dim, backend)
        return grads
    if not isinstance(grads, (list, tuple)):
        raise TypeError(
            f"precondition_: grads must be a tensor, or a list or tuple of tensors, got {type(grads).__name__}"
        )
    for index, grad in enumerate(grads):
        check_writable(grad, f"precondition_: grads[{index}]")
    jobs = [Job.open(grad, Axis.checked(dim, grad)) for grad in grads]
    direct_(jobs, metric, backend)
    _remember(grads, jobs, dim, backend)
    return grads


_planned: dict[object, backends.Planned] = {}
"""How lists of gradients were served last, by what tells one list from another at a glance; the plan looks closer."""

MAX_PLANNED = 64


def _glance(gradients: Sequence[Tensor], dim: int, backend: str) -> object:
    return dim, backend, len(gradients), gradients[0].shape


def _again(grads: object, metric: Metric, dim: object, backend: str) -> bool:
    """Whether the gradients were alike those of an earlier call and are directed, the short way."""
    if type(dim) is not int or torch.compiler.is_compiling():
        return False
    gradients = [grads] if isinstance(grads, Tensor) else grads
    if not isinstance(gradients, (list, tuple)) or not gradients or not isinstance(gradients[0], Tensor):
        return False
    planned = _planned.get(_glance(gradients, dim, backend))
    return planned is not None and planned.direct_(gradients, metric)


def _remember(gradients: Sequence[Tensor], jobs: Sequence[Job], dim: int, backend: str) -> None:
    if torch.compiler.is_compiling() or not gradients:
        return
    if len(_planned) >= MAX_PLANNED:
        _planned.clear()
    planned = backends.Planned()
    planned.learn(backend, gradients, jobs)
    _planned[_glance(gradients, dim, backend)] = planned


@torch.no_grad()
def direct_(jobs: Sequence[Job], metric: Metric, backend: str) -> None:
    """Direct gradients that were checked and opened, each with the backend that serves it."""
    served: defaultdict[backends.Backend, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.view.numel() > 0:
            served[backends.choose(backend, job.view)].append(job)
    for chosen, its_jobs in served.items():
        chosen.direct_(its_jobs, metric)


def check_metric(metric: object) -> None:
    if not isinstance(metric, Metric):
        hint = f"; did you mean {metric.__name__}()?" if isinstance(metric, type) and issubclass(metric, Metric) else ""
        raise TypeError(f"metric must be a riesz metric such as riesz.SobolevTilde(), got {metric!r}{hint}")


def check_writable(grad: object, what: str) -> None:
    """Refuse what cannot be computed on or written in place."""
    check_gradient(grad, what)
    assert isinstance(grad, Tensor)
    for size, stride in zip(grad.shape, grad.stride(), strict=True):
        if stride == 0 and size > 1:
            raise ValueError(
                f"{what} of shape {tuple(grad.shape)} is expanded (strides {grad.stride()}): several entries share one "
                "place in memory, so it cannot be written in place; pass grad.contiguous()"
            )
    if not torch.compiler.is_compiling() and grad.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{what} is an inference tensor and cannot be written in place; clone it first")
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(grad, distributed.DTensor):
        raise TypeError(
            f"{what} is a DTensor with placements {grad.placements}: sharded gradients are not supported; direct "
            "grad.to_local() where the directed axis is not sharded"
        )
