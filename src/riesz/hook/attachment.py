"""The live connection between a metric and an optimizer.

Requirements it meets:
- the optimizer itself is unchanged: no wrapper, no new state, nothing in its state dict unless a schedule is set;
- gradients are written in place, never rebound: buckets, flat buffers and graphs alias them;
- `step(closure)` directs after each evaluation of the closure, not before the backward pass;
- parameters are looked up at every step: trainers swap the objects in `param_groups`;
- a copy of the optimizer (deepcopy, pickle) has its own attachment and goes on as the original would;
- settings in param groups outlive the loading of a checkpoint that does not know them;
- nothing is read back from the device before `diagnostics` is called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from riesz import control as controls
from riesz.apply import check_metric, check_writable, direct_
from riesz.backends import Planned
from riesz.hook import diagnostics
from riesz.hook.plan import (
    DIRECTION_KEY,
    METRIC_KEY,
    SCHEDULED_KEY,
    STEP_KEY,
    Plan,
    Target,
    make_plan,
    make_records,
)
from riesz.hook.report import Diagnoses, Report
from riesz.hook.torch_hooks import hook_tables, is_nested
from riesz.layout.axis import ColumnView, is_dtensor
from riesz.layout.scope import Scope
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric

Schedule = Callable[[int], "Operator | Mapping[str, float] | None"]


class Attachment:
    """What `riesz.attach` returns.

    Attributes:
        optimizer: the optimizer attached to.
        enabled: set to False to train on plain gradients for a while.
        recording: set to True to have every step remember what `diagnostics` needs, at the price of a copy.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, scope: Scope, metric: Operator, backend: str, control: controls.Control
    ):
        self.optimizer = optimizer
        self.enabled = True
        self.recording = False
        self._scope = scope
        self._backend = backend
        self._control = control
        self._metric = metric
        self._live = metric.as_tensors()
        self._schedule: Schedule | None = None
        self._trace: diagnostics.Trace | None = None
        self._kept: list[dict[str, Any]] = []
        self._plan = make_plan(optimizer.param_groups, scope, metric, self._live)
        self._planned = Planned()
        self._closure_pending = False
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        if len(hook_tables(optimizer)) == 4:
            optimizer.register_load_state_dict_pre_hook(self._before_load)
            optimizer.register_load_state_dict_post_hook(self._after_load)
        # Optimizer.__getstate__ leaves hooks behind; on the instance, this one takes ours along.
        optimizer.__dict__["__getstate__"] = self._optimizer_getstate

    @property
    def metric(self) -> Operator:
        """The metric in force. Assign another at any time; numbers change in place, so nothing is recompiled."""
        return self._metric

    @metric.setter
    def metric(self, metric: Operator) -> None:
        check_metric(metric)
        if _same_kind(metric, self._metric):
            for name in metric.tunable_fields:
                getattr(self._live, name).fill_(getattr(metric, name))
        else:
            live = metric.as_tensors()
            self._plan = make_plan(self.optimizer.param_groups, self._scope, metric, live)
            self._planned = Planned()
            self._live = live
        self._metric = metric
        self._trace = None

    @property
    def step(self) -> int:
        """How many steps a schedule has counted. Stored as a plain int in the optimizer's first param group."""
        return int(self.optimizer.param_groups[0].get(STEP_KEY, 0))

    @step.setter
    def step(self, step: int) -> None:
        self.optimizer.param_groups[0][STEP_KEY] = int(step)

    def schedule(self, fn: Schedule | None) -> None:
        """Set the metric at each step, for warm-ups and for smoothing the first epochs only.

        Args:
            fn: called as `fn(step)` before each step, from 0 on. It returns a metric, or a dict of numbers of the
                present one to change (`{"lam": 0.1}`), or None to leave it. Given None, the schedule ends. Steps
                in which every learning rate is 0 are not counted: some tools make one to create optimizer state.

        Example:
            >>> import riesz, torch
            >>> conv = torch.nn.Conv2d(3, 8, 3)
            >>> optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
            >>> attachment = riesz.attach(optimizer, conv, metric=riesz.SobolevTilde(scale=0.0))
            >>> attachment.schedule(lambda step: {"scale": min(1.0, step / 100)})
            >>> optimizer.step(); optimizer.step()
            >>> attachment.metric, attachment.step
            (SobolevTilde(lam=1.0, scale=0.01), 2)
        """
        if fn is not None and not callable(fn):
            raise TypeError(f"schedule: fn must be a function of the step or None, got {fn!r}")
        self._schedule = fn
        if fn is not None:
            # At once: a distributed checkpoint loads only what the optimizer already has a place for.
            group = self.optimizer.param_groups[0]
            group.setdefault(STEP_KEY, 0)
            group.setdefault(SCHEDULED_KEY, str(self._metric))

    def report(self) -> Report:
        """One record per parameter of the optimizer: applied, or the reason it is not. Prints as a table."""
        notes = [f"the attachment is {self._state}: gradients stay plain"] if self._state else []
        if self._scope.model is None:
            notes.append(
                "no model was given: transposed and grouped convolutions are not told apart, and axis 0 is output"
            )
        return Report(make_records(self.optimizer.param_groups, self._scope, self._metric), "\n".join(notes))

    @property
    def _state(self) -> str:
        if attachment_of(self.optimizer) is not self:
            return "detached"
        return "" if self.enabled else "disabled"

    def diagnostics(self) -> Diagnoses:
        """Per directed parameter, what the last step did: |g|/|f| and cos(f, g). Prints as a table.

        Exact if `recording` was on during the step. Otherwise the original gradient is worked out from the directed
        one, which is still in `.grad`; where that would lose too many digits, or `.grad` is gone, an error says so.
        """
        if self._trace is None:
            raise RuntimeError(
                "diagnostics: no step was taken yet, or the last one was not directed by this metric; call "
                "optimizer.step() first"
            )
        return diagnostics.diagnose(self._trace, self._live, self._metric, self._control)

    def detach(self) -> None:
        """Leave the optimizer as it was before `attach`. Safe to call twice."""
        for hooks in hook_tables(self.optimizer).values():
            for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
                del hooks[key]
        if getattr(self.optimizer.__dict__.get("__getstate__"), "__self__", None) is self:
            del self.optimizer.__dict__["__getstate__"]
            for key in (STEP_KEY, SCHEDULED_KEY):
                self.optimizer.param_groups[0].pop(key, None)
        self._trace, self._planned = None, Planned()

    def __repr__(self) -> str:
        return (
            f"Attachment({self._metric!r}, direction={self._scope.direction!r}, control={self._control!r}, "
            f"{len(self._plan.targets)} of {len(self._plan.seen)} parameters of {type(self.optimizer).__name__}"
            + (f", {self._state})" if self._state else ")")
        )

    # -- at each step ----------------------------------------------------------------------------------------------

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        from riesz import untraced

        self._refuse_another(optimizer)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        # Some optimizers take a loss or a factor there; only what can be called can be a closure.
        if not callable(closure):
            untraced.run(self._step_without_closure)
            return None
        if not untraced.run(self._begins_with_closure):
            return None

        # The gradients do not exist yet: direct them each time the closure has computed them.
        def closure_then_direct() -> Any:
            loss = closure()
            untraced.run(self._direct)
            return loss

        if len(args) > 1:
            return (args[0], closure_then_direct, *args[2:]), kwargs
        return args, {**kwargs, "closure": closure_then_direct}

    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._closure_pending and not is_nested(optimizer):
            self._closure_pending = False
            raise RuntimeError(
                f"{type(optimizer).__name__}.step was given a closure and did not evaluate it, so this step was taken "
                "on plain gradients: call step() without the closure"
            )

    def _refuse_another(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is not self.optimizer:
            raise RuntimeError(
                f"this {type(optimizer).__name__} is a shallow copy (copy.copy) of the one riesz is attached to: copy "
                "it with copy.deepcopy, which takes the attachment along"
            )

    def _begins(self) -> bool:
        """Whether this is a step of its own; if so, the schedule has set the metric for it."""
        if is_nested(self.optimizer):
            return False
        self._closure_pending = False
        self._trace = None
        self._follow_schedule()
        return True

    def _begins_with_closure(self) -> bool:
        begins = self._begins()
        self._closure_pending = begins or self._closure_pending
        return begins

    def _step_without_closure(self) -> None:
        # A step that keeps its closure to itself and calls its base's without: the gradients are there now.
        if self._begins() or self._closure_pending:
            self._direct()

    def _follow_schedule(self) -> None:
        if self._schedule is None:
            return
        rates = [group.get("lr") for group in self.optimizer.param_groups]
        if all(isinstance(rate, (int, float)) and rate == 0 for rate in rates):
            return
        step = self.step
        new = self._schedule(step)
        if isinstance(new, Mapping):
            allowed = {field.name for field in fields(self._metric) if field.init}
            if unknown := [name for name in new if name not in allowed]:
                raise ValueError(
                    f"schedule: {self._metric!r} has no number {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}"
                )
            self.metric = replace(self._metric, **new)
        elif isinstance(new, Operator):
            self.metric = new
        elif new is not None:
            raise TypeError(f"schedule: fn({step}) returned {new!r}; allowed: a metric, a dict of its numbers, or None")
        self.step = step + 1
        self.optimizer.param_groups[0][SCHEDULED_KEY] = str(self._metric)

    @torch.no_grad()
    def _direct(self) -> None:
        self._closure_pending = False
        if not self.enabled or self._directed_again():
            return
        present = self._present()
        if self._trace is not None:
            # The closure was evaluated before in this step. What it did not compute anew is directed already.
            present = [(t, g) for t, g in present if not self._trace.left(g)]
            if not present:
                return
        # Plain gradients need no work: a schedule may end with them, and train on for long.
        work = present if not self._metric.returns_input else [(t, g) for t, g in present if t.metric is not self._live]
        for target, gradient in work:
            check_writable(gradient, f"the gradient of {target.name!r}", target.axis)
        plain = [(target, gradient) for target, gradient in present if not is_dtensor(gradient)]
        originals = [gradient.clone() for _, gradient in plain] if self.recording else []
        by_metric: dict[int, list[tuple[Target, ColumnView]]] = {}
        for target, gradient in work:
            if not is_dtensor(gradient):
                by_metric.setdefault(id(target.metric), []).append((target, ColumnView.open(gradient, target.axis)))
        for jobs in by_metric.values():
            self._apply(jobs, jobs[0][0].metric)
        recorded = [diagnostics.products_of(f, g) for f, (_, g) in zip(originals, plain, strict=False)]
        sharded = [(target, gradient) for target, gradient in present if is_dtensor(gradient)]
        recorded += self._direct_sharded(sharded)
        seen = plain + sharded
        directed = [gradient for _, gradient in seen]
        self._show_overflow(directed)
        self._trace = diagnostics.Trace.of([t for t, _ in seen], directed, recorded if self.recording else None)

    def _direct_sharded(self, present: list[tuple[Target, Tensor]]) -> list[Tensor]:
        """Direct the DTensors among the gradients; returns what diagnostics need of them while recording."""
        here = {id(target): gradient for target, gradient in present}
        # Those without a gradient count too: every rank must expect the same, and tell if another has one.
        targets = [t for t in self._plan.targets if is_dtensor(t.parameter) or id(t) in here]
        if self._metric.returns_input and not self.recording:
            targets = [t for t in targets if t.metric is not self._live]
        if not targets:
            return []
        from riesz import sharded

        items = [sharded.Item(t.name, t.parameter, here.get(id(t)), t.axis, t.metric) for t in targets]
        return sharded.direct_(items, self._backend, self._control, self.recording)

    def _show_overflow(self, directed: list[Tensor]) -> None:
        """Tell a gradient scaler of infinities that directing made: a fused step was checked before it."""
        found = getattr(self.optimizer, "found_inf", None)
        if isinstance(found, Tensor) and directed:
            flags = [torch.isfinite(g).all() for g in directed if not is_dtensor(g)]
            if sharded_gradients := [g for g in directed if is_dtensor(g)]:
                from riesz import sharded

                flags.append(sharded.all_finite(sharded_gradients))
            finite = torch.stack([flag.to(found.device) for flag in flags]).all()
            found.copy_(torch.maximum(found, (~finite).to(found.dtype)))

    def _directed_again(self) -> bool:
        """Whether all gradients are there and alike those of the step before, and are directed, the short way.

        The backend compares every gradient anew; what it cannot know is which parameter a gradient belongs to, so the
        optimizer's parameters must be the same objects under the same overrides.
        """
        if not self._planned.ready or self.recording or self._trace is not None:
            return False
        if not self._plan.same_parameters(self.optimizer.param_groups):
            return False
        targets = self._plan.targets
        # A parameter without a gradient contributes None, which is like no gradient.
        gradients: list[Any] = [target.parameter.grad for target in targets]
        # The metric as it was given: its numbers are plain, where those of the live one are tensors to be read.
        if not self._planned.direct_(gradients, self._metric):
            return False
        self._show_overflow(gradients)
        self._trace = diagnostics.Trace.of_plain(targets, gradients)
        return True

    def _apply(self, work: list[tuple[Target, ColumnView]], metric: Operator) -> None:
        if self._control is None:
            jobs = [job for _, job in work]
            direct_(jobs, metric, self._backend)
            self._planned = Planned()
            if len(work) == len(self._plan.targets) and metric is self._live:
                gradients: list[Any] = [target.parameter.grad for target, _ in work]
                self._planned.learn(self._backend, gradients, jobs)
            return
        copies = [controls.controlled(job, target.name, self._control) for target, job in work]
        direct_(copies, metric, self._backend)
        for (target, home), copy in zip(work, copies, strict=True):
            controls.put_back(home, copy, target.name, self._control)

    def _present(self) -> list[tuple[Target, Tensor]]:
        """What has a gradient now; the plan is made again if the optimizer's groups are no longer the same."""
        if not self._plan.is_valid(self.optimizer.param_groups):
            was, self._plan = self._plan, self._make_plan()
            self._planned = Planned()
            same_settings = self._plan.overrides == was.overrides and len(self._plan.seen) >= len(was.seen)
            if same_settings and len(self._plan.targets) < len(was.targets):
                raise ValueError(
                    f"the optimizer's parameters were replaced, and {len(was.targets) - len(self._plan.targets)} that "
                    "were directed are no longer known to the model: attach after they are replaced, or replace them "
                    "in the model too"
                )
        # One gradient tensor may be reached twice; it is directed once.
        present = {id(t.parameter.grad): (t, t.parameter.grad) for t in self._plan.targets}
        return [(target, gradient) for target, gradient in present.values() if gradient is not None]

    def _make_plan(self) -> Plan:
        return make_plan(self.optimizer.param_groups, self._scope, self._metric, self._live)

    # -- checkpoints and copies ------------------------------------------------------------------------------------

    def _before_load(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        ours = (METRIC_KEY, DIRECTION_KEY)
        self._kept = [{key: group[key] for key in ours if key in group} for group in optimizer.param_groups]

    def _after_load(self, optimizer: torch.optim.Optimizer) -> None:
        # Loading replaces the groups by the saved ones; what the checkpoint says wins, what it does not know is kept.
        for group, kept in zip(optimizer.param_groups, self._kept, strict=False):
            for key, value in kept.items():
                group.setdefault(key, value)
        self._plan, self._planned = self._make_plan(), Planned()
        if self._schedule is not None and SCHEDULED_KEY in optimizer.param_groups[0]:
            self.metric = parse_metric(optimizer.param_groups[0][SCHEDULED_KEY])

    def __copy__(self) -> Attachment:
        raise TypeError("an Attachment cannot be copied by itself: deepcopy the optimizer, or attach anew")

    def __getstate__(self) -> dict[str, Any]:
        # What a backend remembers of gradients is of no use to a copy, whose gradients are others.
        return {**self.__dict__, "_planned": Planned(), "_trace": None}

    def _optimizer_getstate(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(type(self.optimizer).__getstate__(self.optimizer))
        for name, hooks in hook_tables(self.optimizer).items():
            # A name for a key: in another process, a number might be given to the next hook registered.
            state[name] = OrderedDict(
                ("riesz", hook) for hook in hooks.values() if getattr(hook, "__self__", None) is self
            )
        return state | {"__getstate__": self._optimizer_getstate}


def attachment_of(optimizer: torch.optim.Optimizer) -> Attachment | None:
    """The attachment of an optimizer, if it has one."""
    owners = (getattr(hook, "__self__", None) for hook in optimizer.__dict__["_optimizer_step_pre_hooks"].values())
    return next((owner for owner in owners if isinstance(owner, Attachment)), None)


def _same_kind(a: Operator, b: Operator) -> bool:
    """Whether two metrics differ in their numbers alone."""
    flags = [field.name for field in fields(a) if field.name not in a.tunable_fields]
    return type(a) is type(b) and all(getattr(a, name) == getattr(b, name) for name in flags)
