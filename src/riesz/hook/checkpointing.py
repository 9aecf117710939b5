"""How an attachment lives through checkpoints and copies of its optimizer.

Requirements it meets:
- nothing enters the optimizer's state dict unless a schedule is set;
- settings in param groups outlive the loading of a checkpoint without them;
- a copy of the optimizer (deepcopy, pickle) has its own attachment and continues as the original would.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from riesz.backends import FastPathCache
from riesz.hook.plan import DIRECTION_KEY, METRIC_KEY, SCHEDULED_KEY
from riesz.hook.step import DirectedStep
from riesz.hook.torch_hooks import hook_tables
from riesz.metrics.text import from_text


class CheckpointedStep(DirectedStep):
    """Step hooks that are registered with their optimizer, and are copied and restored with it."""

    def _register(self) -> None:
        self._settings_before_load: list[dict[str, Any]] = []
        optimizer = self.optimizer
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        if len(hook_tables(optimizer)) == 4:
            optimizer.register_load_state_dict_pre_hook(self._before_load)
            optimizer.register_load_state_dict_post_hook(self._after_load)
        # Optimizer.__getstate__ leaves hooks behind; on the instance, this one takes ours along.
        optimizer.__dict__["__getstate__"] = self._optimizer_getstate

    def _before_load(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        self._settings_before_load = [
            {key: group[key] for key in (METRIC_KEY, DIRECTION_KEY) if key in group} for group in optimizer.param_groups
        ]

    def _after_load(self, optimizer: torch.optim.Optimizer) -> None:
        # Loading replaces the groups by the saved ones. Settings of the checkpoint win; those it lacks are kept.
        for group, settings in zip(optimizer.param_groups, self._settings_before_load, strict=False):
            for key, value in settings.items():
                group.setdefault(key, value)
        self._use_plan(self._make_plan())
        if self._schedule is not None and SCHEDULED_KEY in optimizer.param_groups[0]:
            # The attached metric may be of a user's own class, which no text names but that of this attachment.
            self._set_metric(from_text(optimizer.param_groups[0][SCHEDULED_KEY], {type(self._metric)}))

    def __copy__(self) -> CheckpointedStep:
        raise TypeError("an Attachment cannot be copied by itself: deepcopy the optimizer, or attach anew")

    def __getstate__(self) -> dict[str, Any]:
        # A fast path and a trace describe gradients, and a copy has others.
        return {
            **self.__dict__,
            "_fast_path": FastPathCache(),
            "_prepared": None,
            "_prepared_steps": None,
            "_trace": None,
        }

    def _optimizer_getstate(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(type(self.optimizer).__getstate__(self.optimizer))
        for name, hooks in hook_tables(self.optimizer).items():
            # A string for a key: in another process, a number might be given to the next hook registered.
            state[name] = OrderedDict(
                ("riesz", hook) for hook in hooks.values() if getattr(hook, "__self__", None) is self
            )
        return state | {"__getstate__": self._optimizer_getstate}
