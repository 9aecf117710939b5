"""Making an optimizer channel-directed."""

import warnings

import torch
from torch import nn

from riesz import control as controls
from riesz.backends import check_name
from riesz.hook.attachment import Attachment, attachment_of
from riesz.hook.plan import FROZEN
from riesz.layout.scope import UNKNOWN, Direction, Layers, Scope
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric
from riesz.private_torch import runs_step_hooks, why_not_hookable


def attach(
    optimizer: torch.optim.Optimizer,
    model: nn.Module | None = None,
    *,
    metric: Operator | str | tuple[Operator | str, Operator | str],
    direction: Direction = "output",
    layers: Layers = "conv",
    backend: str = "auto",
    control: controls.Control = None,
) -> Attachment:
    """Make an optimizer channel-directed: before each step, gradients become gradients under `metric`.

    After the step `.grad` holds the directed gradient, as it holds the clipped one after `clip_grad_norm_`. Clip before
    the step, and clipping acts on the ordinary gradient.

    Args:
        optimizer: any `torch.optim.Optimizer`; it gains four hooks and an instance `__getstate__`.
        model: the model it trains. With it, each weight's axis follows from its layer (transposed, grouped,
            parametrised). Without, every weight of three dims or more counts as a conv weight, with output axis 0.
        metric: the inner product, for example `riesz.SobolevTilde()`, or its text: "sobolev-tilde(lam=0.5)". A tuple of
            two is one for each of two directions.
        direction: "output", "input", "fan_in" (all inputs and positions of one filter), "rasterized" (all axes, in
            logical row-major order), or an int: that dim of every directed weight, regardless of groups. A tuple of
            two without a common axis, such as ("output", "fan_in"), or its text "output+fan_in", directs along both.
        layers: "conv", the weights of convolutions; "weights", these and those of linear layers, but nothing
            one-dimensional; "all", biases and scales of norms too, everything but embeddings; or a predicate
            `(name, module, parameter) -> bool`.
        backend: "auto", or a name from `riesz.backends()`.
        control: None; "norm" to give each directed gradient the norm of the original; "permuted" to smooth along a
            fixed random order of the channels; "signs" to flip a fixed random half of the channels before and after.

    Returns:
        An `Attachment`: `report()`, `diagnostics()`, `metric`, `enabled`, `detach()`.

    Example:
        >>> import riesz, torch
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
        >>> _ = model(torch.randn(1, 3, 4, 4))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> print(riesz.attach(optimizer, model, metric=riesz.SobolevTilde()).report())
        parameter  layer   shape    axis  n
        ---------  ------  -------  ----  -  -------------------------------------------------------------
        0.weight   Conv2d  8x3x3x3  0     8  applied
        0.bias     Conv2d  8        -     -  skipped: bias of a conv layer, not its weight (layers='conv')
        2.weight   Linear  2x32     -     -  skipped: not a conv weight (layers='conv')
        2.bias     Linear  2        -     -  skipped: not a conv weight (layers='conv')
        1 of 4 directed
    """
    _check_optimizer(optimizer)
    metric = parse_metric(metric)
    check_name(backend)
    controls.check_control(control)
    scope = Scope(model, direction, layers)
    if isinstance(optimizer, torch.optim.LBFGS):
        warnings.warn(
            "LBFGS searches along the directed gradient while it evaluates the loss itself: the direction is not the "
            "gradient of what it measures. It runs, but first-order optimizers are what riesz is for",
            stacklevel=2,
        )
    if (method := _own_copy_method(optimizer)) is not None:
        warnings.warn(
            f"{type(optimizer).__name__} defines its own {method}: a copy of it is not attached, and trains on plain "
            "gradients until riesz.attach is called on it",
            stacklevel=2,
        )
    attachment = Attachment(optimizer, scope, metric, backend, control)
    records = attachment.report()
    if not any(record.applied for record in records) and any(record.reason == FROZEN for record in records):
        warnings.warn(
            f"every parameter to direct is frozen (requires_grad=False): {type(optimizer).__name__} trains on plain "
            "gradients until one is not",
            stacklevel=2,
        )
    least_dims = 1 if layers == "all" else 3
    if left := [record.shape for record in records if record.reason == UNKNOWN and len(record.shape) >= least_dims]:
        warnings.warn(
            f"{type(optimizer).__name__} trains parameters that the model does not have, and these stay plain: "
            f"{len(left)} that might be directed, the first of shape {left[0]}. If it trains several models, pass "
            "nn.ModuleList([...]) of them",
            stacklevel=2,
        )
    return attachment


def _check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        order = "; the order is attach(optimizer, model)" if isinstance(optimizer, nn.Module) else ""
        raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}{order}")
    if (reason := why_not_hookable(optimizer)) is not None:
        raise RuntimeError(f"{type(optimizer).__name__} cannot be attached to: {reason}")
    if not runs_step_hooks(optimizer):
        inner = [name for name, value in vars(optimizer).items() if isinstance(value, torch.optim.Optimizer)]
        where = f"its `.{inner[0]}`" if inner else "the one inside"
        raise TypeError(
            f"{type(optimizer).__name__} wraps another optimizer and runs no step hooks of its own: attach to {where}"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError(
            f"{type(optimizer).__name__}(differentiable=True) differentiates through its step, and riesz writes "
            "gradients in place: use metric.gradient on the gradients instead"
        )
    if attachment_of(optimizer) is not None:
        raise RuntimeError(
            f"this {type(optimizer).__name__} has an attachment already, and a second one would apply the metric "
            "twice: detach() the first, or assign its `.metric`"
        )


def _own_copy_method(optimizer: torch.optim.Optimizer) -> str | None:
    """The method by which a class copies its instances itself, without our hooks; None if it does not."""
    methods = ("__deepcopy__", "__reduce__", "__reduce_ex__")
    own = (name for name in methods if getattr(type(optimizer), name, None) is not getattr(object, name, None))
    return next(own, None)
