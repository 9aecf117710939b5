"""The hook: any torch optimizer, its gradients directed before each step.

Requirements it meets:
- the optimizer itself is unchanged: no wrapper, no new state, nothing in its state dict;
- gradients are written in place, never rebound: buckets, flat buffers and graphs alias them;
- `step(closure)` directs after each evaluation of the closure, not before the backward pass;
- parameters are looked up at every step: trainers swap the objects in `param_groups`;
- nothing is read back from the device.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from riesz import backends, diagnostics
from riesz import control as controls
from riesz.axis import Axis, Job
from riesz.metrics import Metric
from riesz.precondition import check_metric, check_writable, direct_
from riesz.report import Diagnoses, Report
from riesz.scope import Direction, Layers, Scope, nothing_matched


@dataclass(frozen=True)
class _Target:
    """A parameter to direct."""

    name: str
    parameter: Tensor
    axis: Axis


class Attachment:
    """What `attach` returns: the live connection between a metric and an optimizer.

    Attributes:
        optimizer: the optimizer attached to.
        enabled: set to False to train on plain gradients for a while.
        recording: set to True to have every step remember what `diagnostics` needs, at the price of a copy.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, scope: Scope, metric: Metric, backend: str, control: str | None
    ):
        self.optimizer = optimizer
        self.enabled = True
        self.recording = False
        self._scope = scope
        self._backend = backend
        self._control = control
        self._metric = metric
        self._live = metric.live()
        self._seen: list[tuple[Tensor, torch.Size]] = []
        self._seen_objects: list[Tensor] = []
        self._targets: list[_Target] = []
        self._planned = backends.Planned()
        self._recorded: Diagnoses | None = None
        self._stepped = False
        self._look_up()
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    @property
    def metric(self) -> Metric:
        """The metric in force. Assign another one at any time; numbers change in place, so nothing is recompiled."""
        return self._metric

    @metric.setter
    def metric(self, metric: Metric) -> None:
        check_metric(metric)
        if _same_kind(metric, self._metric):
            for name in metric.numbers:
                getattr(self._live, name).fill_(getattr(metric, name))
            self._metric = metric
        else:
            previous = self._metric, self._live
            self._metric, self._live = metric, metric.live()
            try:
                self._look_up()
            except ValueError:
                self._metric, self._live = previous
                raise
        self._stepped = False

    def report(self) -> Report:
        """One record per parameter of the optimizer: applied, or the reason it is not. Prints as a table."""
        return Report(self._scope.records(self.optimizer.param_groups, self._metric))

    def diagnostics(self) -> Diagnoses:
        """Per directed parameter, what the last step did: |g|/|f| and cos(f, g). Prints as a table.

        Exact if `recording` was on during the step. Otherwise the original gradient is worked out from the directed
        one, which is still in `.grad`; where that would lose too many digits, or `.grad` is gone, an error says so.
        """
        if self._recorded is not None:
            return self._recorded
        if not self._stepped:
            raise RuntimeError("diagnostics: no step was directed yet with this metric; call optimizer.step() first")
        directed = [(target.name, gradient, target.axis) for target, gradient in self._present()]
        return diagnostics.from_directed(directed, self._metric, self._control)

    def detach(self) -> None:
        """Leave the optimizer as it was before `attach`. Safe to call twice."""
        self._handle.remove()

    def __repr__(self) -> str:
        return (
            f"Attachment({self._metric!r}, direction={self._scope.direction!r}, control={self._control!r}, "
            f"{len(self._targets)} of {len(self._seen)} parameters of {type(self.optimizer).__name__})"
        )

    # -- at each step ----------------------------------------------------------------------------------------------

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._direct()
            return None
        # The gradients do not exist yet: direct them each time the closure has computed them.
        directing = self._directing(closure)
        if len(args) > 1:
            return (args[0], directing, *args[2:]), kwargs
        return args, {**kwargs, "closure": directing}

    def _directing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def closure_then_direct() -> Any:
            loss = closure()
            self._direct()
            return loss

        return closure_then_direct

    @torch.no_grad()
    def _direct(self) -> None:
        if not self.enabled or self._directed_again():
            return
        targets, gradients = [], []
        for target, gradient in self._present():
            check_writable(gradient, f"the gradient of {target.name!r}")
            targets.append(target)
            gradients.append(gradient)
        originals = [gradient.clone() for gradient in gradients] if self.recording else None
        self._apply(targets, gradients)
        self._stepped = True
        self._recorded = None
        if originals is not None:
            self._recorded = diagnostics.compare([t.name for t in targets], originals, gradients)

    def _directed_again(self) -> bool:
        """Whether all gradients were there, alike those of the last step, and are directed, the short way.

        `Planned` compares every gradient anew; what it cannot know is which parameter a gradient belongs to, so the
        parameters must be the same objects and none may lack a gradient.
        """
        if self._control is not None or self.recording:
            return False
        parameters = self._parameters()
        if len(parameters) != len(self._seen) or not all(map(operator.is_, parameters, self._seen_objects)):
            return False
        # A parameter without a gradient contributes None, which no plan takes.
        if not self._planned.direct_([target.parameter.grad for target in self._targets], self._live):
            return False
        self._stepped = True
        self._recorded = None
        return True

    def _apply(self, targets: list[_Target], gradients: list[Tensor]) -> None:
        jobs = [Job.open(gradient, target.axis) for gradient, target in zip(gradients, targets, strict=True)]
        if self._control == "norm":
            controls.keep_norms(gradients, lambda: direct_(jobs, self._live, self._backend))
        elif self._control == "permuted":
            shuffled = [controls.permuted(job, t.name) for job, t in zip(jobs, targets, strict=True)]
            direct_([job for job, _ in shuffled], self._live, self._backend)
            for job, (copy, order) in zip(jobs, shuffled, strict=True):
                controls.put_back(job, copy, order)
        else:
            direct_(jobs, self._live, self._backend)
            if len(targets) == len(self._targets):
                self._planned.learn(self._backend, gradients, jobs)

    def _present(self) -> Iterator[tuple[_Target, Tensor]]:
        """What has a gradient now, looked up again if the optimizer's parameters are no longer the same objects."""
        parameters = self._parameters()
        if len(parameters) != len(self._seen) or any(
            parameter is not known or parameter.shape != shape
            for parameter, (known, shape) in zip(parameters, self._seen, strict=True)
        ):
            self._look_up()
        for target in self._targets:
            if target.parameter.grad is not None:
                yield target, target.parameter.grad

    def _look_up(self) -> None:
        records = self._scope.records(self.optimizer.param_groups, self._metric)
        if not any(record.applied for record in records):
            raise nothing_matched(records)
        parameters = self._parameters()
        self._seen = [(parameter, parameter.shape) for parameter in parameters]
        self._seen_objects = parameters
        self._planned = backends.Planned()
        self._targets = [
            _Target(record.name, parameter, record.where)
            for record, parameter in zip(records, parameters, strict=True)
            if record.applied and record.where is not None
        ]

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def attach(
    optimizer: torch.optim.Optimizer,
    model: nn.Module | None = None,
    *,
    metric: Metric,
    direction: Direction = "output",
    layers: Layers = "conv",
    backend: str = "auto",
    control: str | None = None,
) -> Attachment:
    """Make an optimizer channel-directed: before each step, gradients become gradients under `metric`.

    After the step `.grad` holds the directed gradient, as it holds the clipped one after `clip_grad_norm_`. Clip before
    the step, and clipping acts on the ordinary gradient.

    Args:
        optimizer: any `torch.optim.Optimizer`; it is left as it is but for one step hook.
        model: the model it trains. With it, each weight's axis follows from its layer (transposed, grouped,
            parametrised). Without, a conv weight is whatever has three dims or more, and its output axis is 0.
        metric: the inner product, for example `riesz.SobolevTilde()`.
        direction: "output", "input", "rasterized" (all axes, in logical row-major order), or an int: that dim of every
            directed weight, regardless of groups.
        layers: "conv", "all", or a predicate `(name, module, parameter) -> bool`.
        backend: "auto", or a name from `riesz.backends()`.
        control: None; "norm" to give each directed gradient the norm of the original; "permuted" to smooth along a
            fixed random order of the channels.

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
    check_metric(metric)
    backends.check_name(backend)
    controls.check_control(control)
    scope = Scope(model, direction, layers)
    if isinstance(optimizer, torch.optim.LBFGS):
        warnings.warn(
            "LBFGS searches along the directed gradient while it evaluates the loss itself: the direction is not the "
            "gradient of what it measures. It runs, but first-order optimizers are what riesz is for",
            stacklevel=2,
        )
    return Attachment(optimizer, scope, metric, backend, control)


def _check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    hooks = optimizer.__dict__.get("_optimizer_step_pre_hooks")
    if hooks is None:
        raise TypeError(
            f"{type(optimizer).__name__} wraps another optimizer and runs no step hooks of its own: attach to the "
            "inner one (often `.optimizer`)"
        )
    if any(isinstance(getattr(hook, "__self__", None), Attachment) for hook in hooks.values()):
        raise RuntimeError(
            f"this {type(optimizer).__name__} has an attachment already, and a second one would apply the metric "
            "twice: detach() the first, or assign its `.metric`"
        )


def _same_kind(a: Metric, b: Metric) -> bool:
    """Whether two metrics differ in their numbers alone."""
    flags = [name for name in a.__dataclass_fields__ if name not in a.numbers]
    return type(a) is type(b) and all(getattr(a, name) == getattr(b, name) for name in flags)
