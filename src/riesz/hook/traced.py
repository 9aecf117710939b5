"""A step that torch.compile traces whole: gradients go through one opaque operator, and the graph does not break.

Only what a trace can hold is served: a step of torch's own optimizers without closure, schedule, recording and control,
on plain tensors, without groups if it is compiled for any sizes (dynamic=True). Anything else runs untraced, with a
break in the graph. Numbers of the metric are tensors, inputs of the graph; the compiler guards parameters and param
groups itself. `diagnostics` has nothing to tell of such a step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from riesz.apply import check_writable
from riesz.backends import direct_
from riesz.hook.plan import Groups, Plan, Target, overrides_of
from riesz.layout.axis import ColumnView, is_dtensor
from riesz.metrics import Operator

if TYPE_CHECKING:
    from riesz.hook.step import DirectedStep


class TracedStep:
    """The targets of one plan, in the form that is traced."""

    def __init__(self, optimizer: torch.optim.Optimizer, plan: Plan):
        # A third-party step may call super().step(), which runs the hooks twice; the stack shows it, but cannot be
        # traced.
        torchs_own = type(optimizer).__module__.startswith("torch.optim.")
        self._possible = torchs_own and not any(is_dtensor(target.parameter) for target in plan.targets)
        self._grouped = any(target.axis.groups > 1 for targets in plan.turns for target in targets)
        self._seen = [parameter for parameter, _ in plan.seen]
        self._overrides = plan.overrides
        self._turns = [_by_metric(targets) for targets in plan.turns]

    def serves(self, step: "DirectedStep", args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        plain = step._schedule is None and step._control is None and not step.recording and step.enabled
        without_closure = len(args) < 2 and not kwargs
        possible = self._possible and not hasattr(step.optimizer, "found_inf")
        if self._grouped and possible:
            from riesz.untraced import sizes_are_variables

            # The compiler cannot fold a gradient into groups then: it loses the origin of the gradient's sizes.
            possible = not sizes_are_variables()
        return possible and plain and without_closure and self._is_valid(step.optimizer.param_groups)

    def _is_valid(self, groups: Groups) -> bool:
        """`Plan.is_valid` in what the compiler traces; it compares again when it compiles again."""
        parameters = [parameter for group in groups for parameter in group["params"]]
        if len(parameters) != len(self._seen) or overrides_of(groups) != self._overrides:
            return False
        return all(parameter is seen for parameter, seen in zip(parameters, self._seen, strict=True))

    def direct_(self, backend: str) -> None:
        for groups in self._turns:
            seen: set[Any] = set()
            for metric, targets in groups:
                columns = []
                for name, parameter, axis in targets:
                    # One gradient tensor may be reached twice; it is directed once.
                    if parameter.grad is not None and parameter.grad not in seen:
                        seen.add(parameter.grad)
                        check_writable(parameter.grad, f"the gradient of {name!r}", axis)
                        columns.append(ColumnView.open(parameter.grad, axis, metric.mixes_columns))
                direct_(columns, metric, backend)


def _by_metric(targets: Sequence[Target]) -> list[tuple[Operator, list[tuple[str, Any, Any]]]]:
    """The targets of each metric object."""
    groups: dict[int, tuple[Operator, list[tuple[str, Any, Any]]]] = {}
    for target in targets:
        group = groups.setdefault(id(target.metric), (target.metric, []))
        group[1].append((target.name, target.parameter, target.axis))
    return list(groups.values())
