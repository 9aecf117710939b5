"""The attachment: what `riesz.attach` returns, and what a user may ask of it and change in it. `step` does the work.

Requirements it meets:
- the optimizer itself stays unchanged: no wrapper, and nothing in its state dict unless a schedule is set;
- settings in param groups outlive the loading of a checkpoint without them;
- a copy of the optimizer (deepcopy, pickle) has its own attachment and continues as the original would.
"""

from collections import OrderedDict
from difflib import get_close_matches
from typing import Any

import torch

from riesz import control as controls
from riesz.backends import FastPathCache
from riesz.hook import diagnostics
from riesz.hook.diagnostics import StepRecord
from riesz.hook.plan import DIRECTION_KEY, METRIC_KEY, SCHEDULED_KEY, STEP_KEY, is_frozen, make_records
from riesz.hook.report import Diagnoses, Report
from riesz.hook.schedule import Schedule, step_count
from riesz.hook.step import DirectedStep, LastStep
from riesz.layout.scope import Scope
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric
from riesz.metrics.text import from_text
from riesz.private_torch import hook_tables, step_hooks
from riesz.schedule import MetricSchedule

SETTABLE = ("enabled", "metric", "recording", "step")
"""What a user may assign."""


class Attachment(DirectedStep):
    """What `riesz.attach` returns.

    Attributes:
        optimizer: the optimizer attached to.
        enabled: set to False to train on plain gradients for a while.
        recording: set to True to have every step record what `diagnostics` needs, at the price of a copy.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, scope: Scope, metric: Operator, backend: str, control: controls.Control
    ):
        super().__init__(optimizer, scope, metric, backend, control)
        self._given_metric = metric
        """What the user asked for: a schedule starts from it, whatever another one has made of it since."""
        self._settings_before_load: list[dict[str, Any]] = []
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        if len(hook_tables(optimizer)) == 4:
            optimizer.register_load_state_dict_pre_hook(self._before_load)
            optimizer.register_load_state_dict_post_hook(self._after_load)
        # Optimizer.__getstate__ leaves hooks behind; on the instance, this one takes ours along.
        optimizer.__dict__["__getstate__"] = self._optimizer_getstate

    @property
    def metric(self) -> Operator:
        """The metric in force. Assign another, or its text, at any time; changing its numbers recompiles nothing."""
        return self._metric

    @metric.setter
    def metric(self, metric: Operator | str) -> None:
        given = parse_metric(metric)
        self._set_metric(given)
        self._given_metric = given
        group = self.optimizer.param_groups[0]
        if SCHEDULED_KEY in group:
            group[SCHEDULED_KEY] = str(given)

    def __setattr__(self, name: str, value: object) -> None:
        # A misspelt `enable = False` would change nothing.
        if not name.startswith("_") and name not in SETTABLE and hasattr(self, "optimizer"):
            close = get_close_matches(name, SETTABLE, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise AttributeError(f"Attachment: expected one of {', '.join(SETTABLE)} to be set, got {name!r}{hint}")
        super().__setattr__(name, value)

    @property
    def step(self) -> int:
        """How many steps a schedule has counted. Stored as a plain int in the optimizer's first param group."""
        return step_count(self.optimizer.param_groups)

    @step.setter
    def step(self, step: int) -> None:
        self.optimizer.param_groups[0][STEP_KEY] = int(step)

    def schedule(self, fn: Schedule | None) -> None:
        """Set the metric at each step, for warm-ups and for smoothing the first epochs only.

        Args:
            fn: called as `fn(step)` before each step, from 0 on. It returns a metric, or a dict of numbers of the
                present one to change (`{"lam": 0.1}`), or None to leave it. Given None, the schedule ends, its count
                of steps is dropped, and the metric stays as it is. Steps in which every learning rate is 0 are not
                counted: some tools make one to create optimizer state. Set the schedule before you load a distributed
                checkpoint, which restores only what the optimizer has; other checkpoints may be loaded before or after.
                `riesz.schedule.warmup` and `riesz.schedule.first_epochs` make schedules that can be pickled.

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
            raise TypeError(f"schedule: expected a function of the step or None, got {fn!r}")
        self._schedule = fn.of(self._given_metric) if isinstance(fn, MetricSchedule) else fn
        if fn is None:
            self._forget_schedule()
        else:
            self._resume_schedule()

    def report(self) -> Report:
        """One record per parameter of the optimizer: applied, or the reason it is not. Prints as a table."""
        notes = [f"the attachment is {self._state}: steps from now on take plain gradients"] if self._state else []
        if self._scope.model is None:
            notes.append(
                "no model was given: transposed and grouped convolutions are not recognised, and axis 0 is output"
            )
        return Report(make_records(self.optimizer.param_groups, self._scope, self._metric), "\n".join(notes))

    def diagnostics(self) -> Diagnoses:
        """Per directed parameter, what the last step did: |g|/|f| and cos(f, g). Prints as a table.

        Exact if `recording` was on during the step. Otherwise the original gradient is computed from the directed
        one, which is still in `.grad`; where that would lose too many digits, or `.grad` is gone, an error says so.
        """
        if self._last.record is None and self._last.compiled:
            raise RuntimeError(
                "diagnostics: the last step was compiled, and a compiled step keeps nothing of the original gradient; "
                "set attachment.recording = True before a step, which then runs outside of the graph"
            )
        if self._last.record is None:
            raise RuntimeError(
                "diagnostics: no step was taken yet, or the last one was not directed by this metric; call "
                "optimizer.step() first"
            )
        return diagnostics.diagnose(self._last.record, self._tensor_metric, self._metric, self._control)

    @property
    def recorded(self) -> StepRecord | None:
        """What the last step recorded, still on the device; None if `recording` was off."""
        return None if self._last.record is None or self._last.record.products is None else self._last.record

    def detach(self) -> None:
        """Leave the optimizer as it was before `attach`. Safe to call twice."""
        for hooks in hook_tables(self.optimizer).values():
            for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
                del hooks[key]
        if getattr(self.optimizer.__dict__.get("__getstate__"), "__self__", None) is self:
            del self.optimizer.__dict__["__getstate__"]
            self._forget_schedule()
        self.__dict__.update(_without_gradients())

    def _resume_schedule(self) -> None:
        """Go on from the step and the metric of a checkpoint that was loaded, or begin."""
        # A distributed checkpoint loads only the keys that the optimizer already has.
        group = self.optimizer.param_groups[0]
        group.setdefault(STEP_KEY, 0)
        text = group.setdefault(SCHEDULED_KEY, str(self._metric))
        if text != str(self._metric):
            # It may be of a user's own class, which no text names but that of this attachment.
            self._set_metric(from_text(text, {type(self._metric), type(self._given_metric)}))

    def _forget_schedule(self) -> None:
        for key in (STEP_KEY, SCHEDULED_KEY):
            self.optimizer.param_groups[0].pop(key, None)

    @property
    def _state(self) -> str:
        if attachment_of(self.optimizer) is not self:
            return "detached"
        return "" if self.enabled else "disabled"

    def __repr__(self) -> str:
        directed = sum(not is_frozen(target.parameter) for target in self._plan.targets)
        return (
            f"Attachment({self._metric!r}, direction={self._scope.direction!r}, control={self._control!r}, "
            f"{directed} of {len(self._plan.seen)} parameters of {type(self.optimizer).__name__}"
            + (f", {self._state})" if self._state else ")")
        )

    # -- checkpoints and copies of the optimizer --------------------------------------------------------------------

    def _before_load(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        self._follow_groups()
        self._settings_before_load = [
            {key: group[key] for key in (METRIC_KEY, DIRECTION_KEY) if key in group} for group in optimizer.param_groups
        ]

    def _after_load(self, optimizer: torch.optim.Optimizer) -> None:
        # Loading replaces the groups by the saved ones. Settings of the checkpoint win; those it lacks are kept.
        for group, settings in zip(optimizer.param_groups, self._settings_before_load, strict=False):
            for key, value in settings.items():
                group.setdefault(key, value)
        self._use_plan(self._make_plan())
        if self._schedule is not None:
            if SCHEDULED_KEY not in optimizer.param_groups[0]:  # a checkpoint without a schedule, which begins anew
                self._set_metric(self._given_metric)
            self._resume_schedule()

    def __copy__(self) -> "Attachment":
        raise TypeError("an Attachment cannot be copied by itself: deepcopy the optimizer, or attach anew")

    def __getstate__(self) -> dict[str, Any]:
        # A copy has other gradients.
        return self.__dict__ | _without_gradients()

    def _optimizer_getstate(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(type(self.optimizer).__getstate__(self.optimizer))
        for name, hooks in hook_tables(self.optimizer).items():
            # A string for a key: in another process, a number might be given to the next hook registered.
            state[name] = OrderedDict(
                ("riesz", hook) for hook in hooks.values() if getattr(hook, "__self__", None) is self
            )
        return state | {"__getstate__": self._optimizer_getstate}


def _without_gradients() -> dict[str, Any]:
    """The parts of an attachment that describe gradients, as they are before the first step."""
    return {"_fast_path": FastPathCache(), "_prepared": None, "_step_cache": None, "_last": LastStep()}


def attachment_of(optimizer: torch.optim.Optimizer) -> Attachment | None:
    """The attachment of an optimizer, if it has one."""
    owners = (getattr(hook, "__self__", None) for hook in step_hooks(optimizer).values())
    return next((owner for owner in owners if isinstance(owner, Attachment)), None)
