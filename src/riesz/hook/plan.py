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
from riesz.metrics.pair import operators

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
    then: "Target | None" = None  # along the second axis, where there are two


@dataclass(frozen=True)
class Plan:
    """Targets, and what the optimizer's groups looked like when they were chosen."""

    targets: tuple[Target, ...]
    seen: tuple[tuple[Tensor, torch.Size | None], ...]
    overrides: tuple[tuple[object, object], ...]

    @cached_property
    def turns(self) -> tuple[tuple[Target, ...], ...]:
        """The targets of the first axis, then those of the second, if any has two."""
        second = tuple(target.then for target in self.targets if target.then is not None)
        return (self.targets, second) if second else (self.targets,)

    @cached_property
    def sharded(self) -> list[Target]:
        """The targets that are DTensors."""
        return [target for targets in self.turns for target in targets if is_dtensor(target.parameter)]

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
    for group, by_turn, group_metric in _decide(groups, scope, metric):
        applied = operators(as_tensors if group_metric is metric else group_metric)
        for parameter, *records in zip(group["params"], *by_turn, strict=True):
            all_records.append(_joined(records))
            target = None
            for index, record in reversed(list(enumerate(records))):
                if record.applied and record.where is not None:
                    operator = applied[index % len(applied)]
                    target = Target(record.name, parameter, record.where, operator, target)
            if target is not None:
                targets.append(target)
    if not targets and not share:
        raise _nothing_matched(all_records)
    return Plan(tuple(targets), tuple((p, _shape(p)) for p in _parameters(groups)), overrides_of(groups))


def make_records(groups: Groups, scope: Scope, metric: Operator) -> list[Record]:
    """One record per parameter of the optimizer, in its order."""
    return [
        replace(record, applied=False, reason=FROZEN) if record.applied and is_frozen(parameter) else record
        for group, by_turn, _ in _decide(groups, scope, metric)
        for parameter, *records in zip(group["params"], *by_turn, strict=True)
        for record in (_joined(records),)
    ]


def is_frozen(parameter: Tensor) -> bool:
    """Whether a parameter has no gradient and will get none; it stays a target, since it may be unfrozen later."""
    return not parameter.requires_grad and parameter.grad is None


def _decide(
    groups: Groups, scope: Scope, metric: Operator
) -> list[tuple[dict[str, Any], list[list[Record]], Operator]]:
    """By param group: its records, a list for each direction, and its metric."""
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
        scopes, applied = group_scope.each(), operators(group_metric)
        by_turn: list[list[Record]] = []
        for turn in range(max(len(scopes), len(applied))):
            records = scopes[turn % len(scopes)].records(group, index, locations)
            operator = applied[turn % len(applied)]
            by_turn.append(
                [
                    replace(_applicable(record, parameter, operator), metric=override)
                    for record, parameter in zip(records, group["params"], strict=True)
                ]
            )
        if len(by_turn) > 1:
            by_turn[1] = [_separate(one, other, applied) for one, other in zip(*by_turn, strict=True)]
        decisions.append((group, by_turn, group_metric))
    return decisions


def _separate(first: Record, second: Record, applied: tuple[Operator, ...]) -> Record:
    """The second record of a parameter; raises if both directions run along one axis, where operators do not commute.

    The only axis of a bias is directed once.
    """
    if not (first.applied and second.applied and first.where is not None and second.where is not None):
        return second
    dims = len(first.shape)
    if dims == 1:
        return replace(second, applied=False, reason="its only axis is directed already")
    common = set(_averaged(first.where, applied[0], dims)) & set(_averaged(second.where, applied[-1], dims))
    if common:
        raise ValueError(
            f"direction: expected two directions without a common axis, got axis {first.where} under {applied[0]!r} "
            f"and axis {second.where} under {applied[-1]!r} for {first.name!r} of shape {first.shape}"
        )
    return second


def _averaged(axis: Axis, operator: Operator, dims: int) -> tuple[int, ...]:
    """The dims that the operator runs over: for Centralization, which mixes columns, all but its axis."""
    along = axis.dims(dims)
    return tuple(d for d in range(dims) if d not in along) if operator.mixes_columns else along


def _joined(records: list[Record]) -> Record:
    """One record for a parameter: that of its first axis, with the second beside it."""
    applied = [record for record in records if record.applied]
    return replace(applied[0], second=applied[1].where) if len(applied) > 1 else (applied or records)[0]


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
