"""The plan: which parameters a step directs, along which axis, under which metric. Made once, kept while it is valid.

A param group may override the attachment with plain values that travel in state dicts and load where riesz is not
installed: `riesz_metric`, a metric as text, and `riesz_direction`, a direction.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from riesz.layout.axis import Axis, is_dtensor
from riesz.layout.records import Record
from riesz.layout.scope import Scope
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric

METRIC_KEY, DIRECTION_KEY = "riesz_metric", "riesz_direction"
"""What a param group may set for its own parameters."""

STEP_KEY, SCHEDULED_KEY = "riesz_step", "riesz_scheduled"
"""Where a scheduled attachment keeps its step count and its metric: in the first param group, for checkpoints."""

KEYS = (METRIC_KEY, DIRECTION_KEY, STEP_KEY, SCHEDULED_KEY)

FROZEN = "frozen (requires_grad=False)"

Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class Target:
    """A parameter to direct."""

    name: str
    parameter: Tensor
    axis: Axis
    metric: Operator


@dataclass(frozen=True)
class Plan:
    """Targets, and what the optimizer's groups looked like when they were chosen."""

    targets: tuple[Target, ...]
    seen: tuple[tuple[Tensor, torch.Size | None], ...]
    overrides: tuple[tuple[object, object], ...]

    def by_metric(self) -> list[tuple[Operator, list[Target]]]:
        """The targets of each metric object."""
        groups: dict[int, tuple[Operator, list[Target]]] = {}
        for target in self.targets:
            groups.setdefault(id(target.metric), (target.metric, []))[1].append(target)
        return list(groups.values())

    @cached_property
    def sharded(self) -> list[Target]:
        """The targets that are DTensors."""
        return [target for target in self.targets if is_dtensor(target.parameter)]

    @cached_property
    def _objects(self) -> list[Tensor]:
        return [parameter for parameter, _ in self.seen]

    def same_parameters(self, groups: Groups) -> bool:
        """Whether the groups hold the same parameter objects, of any shape, under the same overrides."""
        parameters = [group["params"] for group in groups]
        return (
            sum(map(len, parameters)) == len(self.seen)
            and all(map(is_, chain.from_iterable(parameters), self._objects))
            and self.overrides == overrides_of(groups)
        )

    def is_valid(self, groups: Groups) -> bool:
        """Whether the groups still hold the same parameter objects, of the same shapes, under the same overrides."""
        return self.same_parameters(groups) and all(_shape(parameter) == shape for parameter, shape in self.seen)


def make_plan(groups: Groups, scope: Scope, metric: Operator, as_tensors: Operator, share: bool = False) -> Plan:
    """Choose the targets, or raise if there are none.

    Args:
        groups, scope, metric: what the optimizer trains, and what was asked for.
        as_tensors: stands for `metric` where no group overrides it.
        share: whether the groups are one rank's share of the parameters, which need not hold a target.
    """
    targets, all_records = [], []
    for group, records, group_metric in _decide(groups, scope, metric):
        all_records += records
        for record, parameter in zip(records, group["params"], strict=True):
            if record.applied and record.where is not None:
                applied = as_tensors if group_metric is metric else group_metric
                targets.append(Target(record.name, parameter, record.where, applied))
    if not targets and not share:
        raise _nothing_matched(all_records)
    return Plan(tuple(targets), tuple((p, _shape(p)) for p in _parameters(groups)), overrides_of(groups))


def make_records(groups: Groups, scope: Scope, metric: Operator) -> list[Record]:
    """One record per parameter of the optimizer, in its order."""
    return [
        replace(record, applied=False, reason=FROZEN) if record.applied and is_frozen(parameter) else record
        for group, records, _ in _decide(groups, scope, metric)
        for record, parameter in zip(records, group["params"], strict=True)
    ]


def is_frozen(parameter: Tensor) -> bool:
    """Whether a parameter has no gradient and will get none; it stays a target, since it may be unfrozen later."""
    return not parameter.requires_grad and parameter.grad is None


def _decide(groups: Groups, scope: Scope, metric: Operator) -> list[tuple[dict[str, Any], list[Record], Operator]]:
    locations = scope.locations()
    decisions = []
    for index, group in enumerate(groups):
        if unknown := [key for key in group if str(key).startswith("riesz_") and key not in KEYS]:
            raise ValueError(
                f"param group {index}: expected settings {METRIC_KEY!r} or {DIRECTION_KEY!r}, got {unknown[0]!r}"
            )
        try:
            group_metric = parse_metric(group[METRIC_KEY]) if METRIC_KEY in group else metric
            group_scope = replace(scope, direction=group[DIRECTION_KEY]) if DIRECTION_KEY in group else scope
        except (TypeError, ValueError) as error:
            raise type(error)(f"param group {index}: {error}") from None
        override = "" if group_metric is metric else str(group_metric)
        records = [
            replace(_applicable(record, parameter, group_metric), metric=override)
            for record, parameter in zip(group_scope.records(group, index, locations), group["params"], strict=True)
        ]
        decisions.append((group, records, group_metric))
    return decisions


def _applicable(record: Record, parameter: Tensor, metric: Operator) -> Record:
    """The record, not applied where the metric has nothing to do; raises where a DTensor's layout is not supported."""
    if not record.applied or record.where is None:
        return record
    if reason := metric.skip_reason(record.shape, record.where):
        return replace(record, applied=False, reason=reason)
    if is_dtensor(parameter):
        from riesz import sharded

        sharded.check(parameter, record.where, f"parameter {record.name!r}")
    return record


def _shape(parameter: Tensor) -> torch.Size | None:
    return None if isinstance(parameter, UninitializedParameter) else parameter.shape


def _parameters(groups: Groups) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def overrides_of(groups: Groups) -> tuple[tuple[object, object], ...]:
    return tuple((group.get(METRIC_KEY), group.get(DIRECTION_KEY)) for group in groups)


class NothingToDirectError(ValueError):
    """A scope selects no parameter of an optimizer, which would silently train on plain gradients."""


def _nothing_matched(records: list[Record]) -> NothingToDirectError:
    reasons = "\n".join(f"  {r.name} {r.shape}: {r.reason}" for r in records[:12])
    more = f"\n  and {len(records) - 12} more" if len(records) > 12 else ""
    return NothingToDirectError(
        f"nothing to direct among the optimizer's {len(records)} parameters:\n{reasons}{more}\n"
        "Pass the model the optimizer trains, layers='all' or a predicate. Flattened parameters (FSDP1, ZeRO) cannot "
        "be directed: use DistributedDataParallel, or FSDP2 (fully_shard), which keep their shapes"
    )
