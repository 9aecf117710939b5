"""What one step has to do: which parameters, along which axis, under which metric. Made once, kept while it holds.

A param group may override the attachment with plain values that travel in state dicts and load where riesz is not
installed: `riesz_metric`, a metric as text, and `riesz_direction`, a direction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from riesz.hook.report import Record
from riesz.layout.axis import Axis
from riesz.layout.scope import Scope
from riesz.metrics import Operator
from riesz.metrics import metric as parse_metric

METRIC_KEY, DIRECTION_KEY = "riesz_metric", "riesz_direction"
"""What a param group may set for its own parameters."""

STEP_KEY, SCHEDULED_KEY = "riesz_step", "riesz_scheduled"
"""Where a scheduled attachment keeps its step count and its metric: in the first param group, for checkpoints."""

KEYS = (METRIC_KEY, DIRECTION_KEY, STEP_KEY, SCHEDULED_KEY)

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

    def same_parameters(self, groups: Groups) -> bool:
        """Whether the groups hold the same parameter objects under the same overrides, whatever their shapes."""
        parameters = _parameters(groups)
        return (
            len(parameters) == len(self.seen)
            and all(map(is_, parameters, self._objects))
            and self.overrides == _overrides(groups)
        )

    @cached_property
    def _objects(self) -> tuple[Tensor, ...]:
        return tuple(parameter for parameter, _ in self.seen)

    def is_valid(self, groups: Groups) -> bool:
        """Whether the groups still hold the same parameter objects, of the same shapes, under the same overrides."""
        return self.same_parameters(groups) and all(_shape(parameter) == shape for parameter, shape in self.seen)


def make_plan(groups: Groups, scope: Scope, metric: Operator, live: Operator) -> Plan:
    """Choose the targets, or raise if there are none; `live` stands for `metric` where no group overrides it."""
    targets, told = [], []
    for group, records, own in _decide(groups, scope, metric):
        told += records
        for record, parameter in zip(records, group["params"], strict=True):
            if record.applied and record.where is not None:
                targets.append(Target(record.name, parameter, record.where, live if own is metric else own))
    if not targets:
        raise _nothing_matched(told)
    return Plan(tuple(targets), tuple((p, _shape(p)) for p in _parameters(groups)), _overrides(groups))


def make_records(groups: Groups, scope: Scope, metric: Operator) -> list[Record]:
    """One record per parameter of the optimizer, in its order."""
    return [record for _, records, _ in _decide(groups, scope, metric) for record in records]


def _decide(groups: Groups, scope: Scope, metric: Operator) -> list[tuple[dict[str, Any], list[Record], Operator]]:
    places = scope.places()
    decisions = []
    for index, group in enumerate(groups):
        if foreign := [key for key in group if str(key).startswith("riesz_") and key not in KEYS]:
            raise ValueError(
                f"param group {index} has the setting {foreign[0]!r}, which is not known; allowed: {METRIC_KEY!r} and "
                f"{DIRECTION_KEY!r}"
            )
        try:
            own = parse_metric(group[METRIC_KEY]) if METRIC_KEY in group else metric
            own_scope = replace(scope, direction=group[DIRECTION_KEY]) if DIRECTION_KEY in group else scope
        except (TypeError, ValueError) as error:
            raise type(error)(f"param group {index}: {error}") from None
        records = own_scope.records(group, index, places, own)
        if own is not metric:
            records = [replace(record, metric=str(own)) for record in records]
        decisions.append((group, records, own))
    return decisions


def _shape(parameter: Tensor) -> torch.Size | None:
    return None if isinstance(parameter, UninitializedParameter) else parameter.shape


def _parameters(groups: Groups) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def _overrides(groups: Groups) -> tuple[tuple[object, object], ...]:
    return tuple((group.get(METRIC_KEY), group.get(DIRECTION_KEY)) for group in groups)


class NothingToDirectError(ValueError):
    """A scope selects no parameter of an optimizer: silence would look like training."""


def _nothing_matched(records: list[Record]) -> NothingToDirectError:
    told = "\n".join(f"  {r.name} {r.shape}: {r.reason}" for r in records[:12])
    more = f"\n  and {len(records) - 12} more" if len(records) > 12 else ""
    return NothingToDirectError(
        f"nothing to direct among the optimizer's {len(records)} parameters:\n{told}{more}\n"
        "Pass the model the optimizer trains, layers='all' or a predicate. Flattened parameters (FSDP1, ZeRO) cannot "
        "be directed: use DistributedDataParallel, or FSDP2 (fully_shard), which keep their shapes"
    )
