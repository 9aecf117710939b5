"""Check, choose, run: from gradients to directed gradients, in place, local or sharded."""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from riesz.backends import FastPathCache, check_name, direct_
from riesz.layout.axis import Axis, ColumnView, check_gradient, is_dtensor, overlaps
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric

Grads = TypeVar("Grads", bound=Sequence[Tensor])


@overload
def precondition_(grads: Tensor, metric: Operator | str, dim: int = 0, backend: str = "auto") -> Tensor: ...


@overload
def precondition_(grads: Grads, metric: Operator | str, dim: int = 0, backend: str = "auto") -> Grads: ...


def precondition_(grads: Any, metric: Operator | str, dim: int = 0, backend: str = "auto") -> Any:
    """Replace gradients by their gradients under `metric`, in place.

    `f <- A f` along `dim`, column by column. Shapes, dtypes, devices and memory formats may be mixed; equal ones are
    computed together. Either all gradients are valid and are directed, or none is touched. DTensors are directed as the
    whole tensors they stand for: then every rank must make the same call.

    Args:
        grads: a tensor, or a list or tuple of tensors: `[p.grad for p in model.parameters()]`, not the parameters.
        metric: the inner product, or its text: "sobolev-tilde(lam=0.5)".
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
    metric = parse_metric(metric)
    check_name(backend)
    if not isinstance(grads, (Tensor, list, tuple)):
        raise TypeError(
            f"precondition_: grads: expected a tensor, or a list or tuple of tensors, got {type(grads).__name__}"
        )
    single = isinstance(grads, Tensor)
    gradients = [grads] if isinstance(grads, Tensor) else grads
    key = (dim, backend, len(gradients), getattr(gradients[0], "shape", None) if gradients else None)
    tracing = torch.compiler.is_compiling()
    if type(dim) is int and not tracing:
        fast_path = _fast_paths.get(key)
        if fast_path is not None and fast_path.direct_(gradients, metric):
            return grads
    first_index: dict[int, int] = {}
    columns, sharded = [], []
    for index, grad in enumerate(gradients):
        what = "precondition_: grads" if single else f"precondition_: grads[{index}]"
        check_gradient(grad, what)
        if isinstance(grad, torch.nn.Parameter):
            raise TypeError(f"{what}: expected a gradient, got an nn.Parameter, a weight; pass its .grad")
        axis = Axis.checked(dim, grad)
        check_writable(grad, what, axis)
        if not tracing and (first := first_index.setdefault(id(grad), index)) != index:
            raise ValueError(f"{what} is the same tensor as grads[{first}]: it would be directed twice")
        metric.check(tuple(grad.shape), axis)
        if is_dtensor(grad):
            sharded.append((what, grad, axis))
        else:
            columns.append(ColumnView.open(grad, axis, metric.mixes_columns))
    direct_(columns, metric, backend)
    if sharded:
        _direct_sharded_(sharded, metric, backend)
    elif not tracing:
        learnt = FastPathCache()
        learnt.learn(backend, gradients, columns)
        if len(_fast_paths) >= MAX_FAST_PATHS:
            _fast_paths.clear()
        _fast_paths[key] = learnt
    return grads


_fast_paths: dict[object, FastPathCache] = {}
"""Fast paths by a cheap key; each compares every gradient before it is used. Other threads may clear it at any time."""

MAX_FAST_PATHS = 64


def _direct_sharded_(gradients: Sequence[tuple[str, Any, Axis]], metric: Operator, backend: str) -> None:
    from riesz import sharded, untraced

    items = [sharded.ShardedGradient(what, gradient, gradient, axis, metric) for what, gradient, axis in gradients]
    untraced.run(lambda: sharded.direct_(items, backend))


def check_writable(grad: object, what: str, axis: Axis) -> None:
    """Refuse a gradient that cannot be computed on along this axis, or not be written in place."""
    check_gradient(grad, what)
    assert isinstance(grad, Tensor)
    if is_dtensor(grad):
        from riesz import sharded

        sharded.check(grad, axis, what)
        grad = sharded.local_of(grad)
    if overlaps(tuple(grad.shape), grad.stride()):
        raise ValueError(
            f"{what}: expected entries with memory of their own, got shape {tuple(grad.shape)} with strides "
            f"{grad.stride()}: it is expanded or overlaps itself and cannot be written in place; pass grad.contiguous()"
        )
    if not torch.compiler.is_compiling() and grad.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(f"{what}: expected a tensor that can be written here, got an inference tensor; clone it first")
