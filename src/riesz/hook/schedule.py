"""A schedule: the metric as a function of the step, counted in the optimizer's first param group."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from riesz.hook.plan import SCHEDULED_KEY, STEP_KEY, Groups
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric

Schedule = Callable[[int], "Operator | str | Mapping[str, float] | None"]


def step_count(groups: Groups) -> int:
    return int(groups[0].get(STEP_KEY, 0))


def has_rate_zero(groups: Groups) -> bool:
    """Whether every learning rate is 0: at the start of a warm-up, or in a step that a tool takes to create state.

    Such tools put a zero on the CPU in place of a tensor; a rate on another device is not read back.
    """
    return all(_is_zero(group.get("lr")) for group in groups)


def _is_zero(rate: object) -> bool:
    readable = isinstance(rate, (int, float)) or (isinstance(rate, Tensor) and rate.is_cpu)
    return readable and bool(rate == 0)


def scheduled_metric(schedule: Schedule, step: int, metric: Operator) -> Operator:
    """The metric that a schedule wants at a step, given the present one."""
    wanted = schedule(step)
    if wanted is None:
        return metric
    if isinstance(wanted, (Operator, str)):
        return parse_metric(wanted)
    if not isinstance(wanted, Mapping):
        raise TypeError(
            f"schedule: expected a metric, its text, a dict of its numbers or None from fn({step}), got {wanted!r}"
        )
    allowed = {field.name for field in metric.settings()}
    if unknown := [name for name in wanted if name not in allowed]:
        raise ValueError(f"schedule: expected numbers of {metric!r} ({', '.join(sorted(allowed))}), got {unknown[0]!r}")
    return replace(metric, **wanted)


def note_step(groups: Groups, step: int, metric: Operator) -> None:
    """Keep the count of steps and the metric where checkpoints are made of."""
    groups[0][STEP_KEY] = step
    groups[0][SCHEDULED_KEY] = str(metric)
