"""What happens at a step: gradients are directed just before the optimizer reads them.

Requirements it meets:
- gradients are written in place, never rebound: buckets, flat buffers and graphs alias them;
- `step(closure)` directs after each evaluation of the closure, not before the backward pass;
- parameters are looked up at every step: trainers swap the objects in `param_groups`;
- a step like the one before it costs one comparison and one kernel call (the fast path);
- nothing of a plain tensor is read back from the device; ranks that share columns of a DTensor compare what they work
  at, which waits for their collective.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from riesz import control as controls
from riesz.apply import check_writable
from riesz.backends import FastPathCache, direct_
from riesz.hook import diagnostics, schedule
from riesz.hook.plan import Plan, Target, make_plan
from riesz.hook.traced import TracedStep
from riesz.layout.axis import ColumnView, is_dtensor
from riesz.layout.scope import Scope
from riesz.metrics import Operator
from riesz.private_torch import groups_before_sharing, is_nested, overflow_flags

if TYPE_CHECKING:
    from riesz.sharded import PreparedStep, StepCache


@dataclass(eq=False)
class LastStep:
    """What the last step left, or the one under way has so far.

    Apart from the attributes of the attachment, which are guarded against misspelling: setting one of those takes as
    long as all the rest that a step sets.
    """

    record: diagnostics.StepRecord | None = None
    closure_pending: bool = False  # whether a closure was handed on that was not evaluated yet
    compiled: bool = False  # whether it was traced whole, and so recorded nothing


class DirectedStep:
    """The step hooks of one optimizer, and the state they work on."""

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
        self._tensor_metric = metric.as_tensors()
        self._schedule: schedule.Schedule | None = None
        self._last = LastStep()
        whole = groups_before_sharing()
        if whole is not None:
            make_plan(whole, scope, metric, metric)  # raises if there is nothing to direct on any rank
        self._is_share = whole is not None
        self._use_plan(self._make_plan())

    # -- the hooks -------------------------------------------------------------------------------------------------

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        from riesz import untraced

        if torch.compiler.is_compiling() and self._traced.serves(self, args, kwargs):
            self._last.record, self._last.compiled = None, True
            self._traced.direct_(self._backend)
            return None
        if optimizer is not self.optimizer:
            raise RuntimeError(
                f"this {type(optimizer).__name__} is a shallow copy (copy.copy) of the one riesz is attached to: copy "
                "it with copy.deepcopy, which takes the attachment along"
            )
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        # Some optimizers take a loss or a factor there; only a callable can be a closure.
        if not callable(closure):
            untraced.run(self._step_without_closure)
            return None
        if not untraced.run(self._enter_step_with_closure):
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
        if torch.compiler.is_compiling() and self._traced.serves(self, args, kwargs):
            return
        if self._last.closure_pending and not is_nested(optimizer):
            self._last.closure_pending = False
            raise RuntimeError(
                f"{type(optimizer).__name__}.step was given a closure and did not evaluate it, so this step was taken "
                "on plain gradients: call step() without the closure"
            )

    def _enter_step(self) -> bool:
        """Whether this is the outermost step; if so, the schedule has set the metric for it."""
        if is_nested(self.optimizer):
            return False
        last = self._last
        last.record, last.closure_pending, last.compiled = None, False, False
        groups = self.optimizer.param_groups
        if self._schedule is not None:
            step = schedule.step_count(groups)
            metric = schedule.scheduled_metric(self._schedule, step, self._metric)
            if metric is not self._metric:
                self._set_metric(metric)
            # Weights do not move at a rate of 0, but momentum takes the gradient, so the metric is set all the same.
            schedule.note_step(groups, step + (not schedule.has_rate_zero(groups)), self._metric)
        return True

    def _enter_step_with_closure(self) -> bool:
        outermost = self._enter_step()
        self._last.closure_pending = outermost or self._last.closure_pending
        return outermost

    def _step_without_closure(self) -> None:
        # A step that evaluates its closure itself and calls its base's step without: the gradients are there now.
        if self._enter_step() or self._last.closure_pending:
            self._direct()

    # -- the metric and the plan -----------------------------------------------------------------------------------

    def _set_metric(self, metric: Operator) -> None:
        if type(metric) is type(self._metric) and metric.fixed_settings() == self._metric.fixed_settings():
            for name in metric.tunable_fields:
                getattr(self._tensor_metric, name).fill_(getattr(metric, name))
        else:
            self._follow_groups()
            tensor_metric = metric.as_tensors()
            groups = self.optimizer.param_groups
            self._use_plan(make_plan(groups, self._scope, metric, tensor_metric, self._is_share))
            self._tensor_metric = tensor_metric
        self._metric = metric
        self._last.record = None

    def _use_plan(self, plan: Plan) -> None:
        self._plan = plan
        self._traced = TracedStep(self.optimizer, plan)
        self._fast_path = FastPathCache()
        self._step_cache: StepCache | None = None
        self._prepared: PreparedStep | None = None
        self._agreed: tuple[bool, bool] | None = None

    def _make_plan(self) -> Plan:
        return make_plan(self.optimizer.param_groups, self._scope, self._metric, self._tensor_metric, self._is_share)

    def _follow_groups(self) -> None:
        """Make the plan again if the optimizer's groups changed. Raises, each time, if they lost what was directed."""
        old = self._plan
        if old.is_valid(self.optimizer.param_groups):
            return
        plan = self._make_plan()
        same_settings = plan.overrides == old.overrides and len(plan.seen) >= len(old.seen)
        if same_settings and (lost := len(old.targets) - len(plan.targets)) > 0:
            raise ValueError(
                f"the optimizer's parameters were replaced, and {lost} that were directed are no longer known to the "
                "model: attach after they are replaced, or replace them in the model too"
            )
        self._use_plan(plan)

    def _present(self) -> list[tuple[Target, Tensor]]:
        """The targets that have a gradient now."""
        self._follow_groups()
        # One gradient tensor may be reached twice; it is directed once.
        present = {id(t.parameter.grad): (t, t.parameter.grad) for t in self._plan.targets}
        return [(target, gradient) for target, gradient in present.values() if gradient is not None]

    # -- directing -------------------------------------------------------------------------------------------------

    def _direct(self) -> None:
        self._last.closure_pending = False
        self._agree()
        if self.enabled and not self._direct_by_fast_path():
            self._direct_by_slow_path()

    @torch.no_grad()
    def _direct_by_slow_path(self) -> None:
        present = self._present()
        self._agree()
        if self._last.record is not None:
            # The closure was evaluated before in this step. A gradient it did not compute again is directed already.
            present = [(t, g) for t, g in present if not self._last.record.already_directed(g)]
            if not present:
                return
        local = [(target, gradient) for target, gradient in present if not is_dtensor(gradient)]
        sharded = [(target, gradient) for target, gradient in present if is_dtensor(gradient)]
        if self.recording and any(target.then is not None for target, _ in sharded):
            raise RuntimeError("recording: expected one direction for DTensors, got two; diagnose each by itself")
        originals = [gradient.clone() for _, gradient in local] if self.recording else []
        of_shards = self._direct_turn(self._plan.turns[0], local, sharded)
        for others in self._plan.turns[1:]:
            second = ([(t.then, g) for t, g in first if t.then is not None] for first in (local, sharded))
            self._direct_turn(others, *second)
        recorded = [controls.products(f, g) for f, (_, g) in zip(originals, local, strict=False)] + of_shards
        targets, directed = [t for t, _ in local + sharded], [g for _, g in local + sharded]
        all_local = len(local) == len(self._plan.targets)
        one_metric = all(t.metric is self._tensor_metric and t.then is None for t, _ in local)
        if self._metric.returns_input and all_local and one_metric:
            self._fast_path.learn_to_leave(directed, self._metric)
        self._report_overflow(directed)
        record = diagnostics.StepRecord.of(targets, directed, recorded if self.recording else None)
        self._last.record = record if self._last.record is None else self._last.record.merged_with(record)

    def _direct_turn(
        self,
        targets: Sequence[Target],
        local: list[tuple[Target, Tensor]],
        sharded: list[tuple[Target, Tensor]],
    ) -> list[Tensor]:
        """Direct gradients along one axis each.

        Args:
            targets: all that the plan has for this turn.
            local, sharded: those with a gradient now.

        Returns:
            What sharded gradients leave for diagnostics, if `recording`.
        """
        # Plain gradients need no work: a schedule may end with them.
        skipped = self._tensor_metric if self._metric.returns_input else None
        work = [(t, g) for t, g in local if t.metric is not skipped]
        for target, gradient in work:
            check_writable(gradient, f"the gradient of {target.name!r}", target.axis)
        # Collectives are under way while local gradients are directed.
        prepared = self._start_sharded(targets, sharded)
        try:
            by_metric: dict[int, list[tuple[Target, ColumnView]]] = {}
            for target, gradient in work:
                opened = ColumnView.open(gradient, target.axis, target.metric.mixes_columns)
                by_metric.setdefault(id(target.metric), []).append((target, opened))
            for group in by_metric.values():
                self._direct_local(group, group[0][0].metric)
        except BaseException:
            if prepared is not None:
                prepared.abandon()
            raise
        return [] if prepared is None else prepared.finish()

    def _agree(self) -> None:
        """Once for a plan, and when collectives begin or end to be needed: raise on all ranks if theirs differ."""
        settings = (self.enabled, self.recording)
        if settings == self._agreed or not self._plan.sharded:
            return
        from riesz import sharded

        gradients = [sharded.ShardedGradient(t.name, t.parameter, None, t.axis, t.metric) for t in self._plan.sharded]
        sharded.agree(gradients, f"enabled={self.enabled}, recording={self.recording}, control={self._control}")
        self._agreed = settings

    def _direct_by_fast_path(self) -> bool:
        """Whether all gradients are there and like those of the step before, and were directed by the fast path.

        The backend compares every gradient; it cannot know which parameter a gradient belongs to, so the optimizer's
        parameters must be the same objects under the same overrides.
        """
        if not (self._fast_path.ready or self._prepared) or self.recording or self._last.record is not None:
            return False
        if not self._plan.same_parameters(self.optimizer.param_groups):
            return False
        targets = self._plan.targets
        # A parameter without a gradient contributes None, which matches no gradient.
        gradients: list[Any] = [target.parameter.grad for target in targets]
        if self._prepared is not None:
            assert self._step_cache is not None
            shards = self._step_cache.repeat_(self._prepared, gradients)
            if not shards:
                return False
            self._last.record = diagnostics.StepRecord.of_shards(targets, gradients, shards)
        else:
            # The metric as given: its numbers are floats, where those of `_tensor_metric` are tensors to be read.
            addresses = self._fast_path.direct_(gradients, self._metric)
            if not addresses:
                return False
            self._last.record = diagnostics.StepRecord.of_plain(targets, gradients, addresses)
        self._report_overflow(gradients)
        return True

    def _direct_local(self, work: list[tuple[Target, ColumnView]], metric: Operator) -> None:
        columns = [opened for _, opened in work]
        if self._control is None:
            direct_(columns, metric, self._backend)
            self._fast_path = FastPathCache()
            one_turn = len(self._plan.turns) == 1
            if one_turn and len(work) == len(self._plan.targets) and metric is self._tensor_metric:
                gradients: list[Any] = [target.parameter.grad for target, _ in work]
                self._fast_path.learn(self._backend, gradients, columns)
            return
        copies = [controls.controlled(opened, target.name, self._control) for target, opened in work]
        direct_(copies, metric, self._backend)
        for (target, home), copy in zip(work, copies, strict=True):
            controls.put_back(home, copy, target.name, self._control)

    def _start_sharded(
        self, all_targets: Sequence[Target], present: list[tuple[Target, Tensor]]
    ) -> "PreparedStep | None":
        """Start to direct the DTensors among the gradients; None if there are none."""
        gradients = {id(target): gradient for target, gradient in present}
        # Those without a gradient count too: every rank must expect the same, and raise if another has one.
        targets = [t for t in all_targets if is_dtensor(t.parameter) or id(t) in gradients]
        if self._metric.returns_input and not self.recording:
            targets = [t for t in targets if t.metric is not self._tensor_metric]
        if not targets:
            return None
        from riesz import sharded

        opened = [sharded.ShardedGradient(t.name, t.parameter, gradients.get(id(t)), t.axis, t.metric) for t in targets]
        self._step_cache = self._step_cache or sharded.StepCache()
        prepared = self._step_cache.start(opened, self._backend, self._control, self.recording, check_writable)
        if len(gradients) == len(self._plan.targets) and len(self._plan.turns) == 1:
            self._prepared = prepared
        return prepared

    def _report_overflow(self, directed: list[Tensor]) -> None:
        """Report overflow caused by directing to the gradient scaler, which checks before a fused step."""
        if not directed or not (reports := overflow_flags(self.optimizer)):
            return
        with torch.no_grad():
            flags = [torch.isfinite(g).all() for g in directed if not is_dtensor(g)]
            if sharded_gradients := [g for g in directed if is_dtensor(g)]:
                from riesz import sharded

                flags.append(sharded.all_finite(sharded_gradients))
            finite = torch.stack([flag.to(reports[0].device) for flag in flags]).all()
            for report in reports:
                report.copy_(torch.maximum(report, (~finite).to(report)))
