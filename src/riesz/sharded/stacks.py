"""Columns of many gradients side by side: whatever is dealt out alike is computed together.

Shape suffixes: L the rows of this rank, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from riesz.metrics import Metric
from riesz.sharded.placement import Part
from riesz.sharded.rows import Rows, Run
from riesz.sharded.teams import Team

MAX_NUMEL = 1 << 22
"""Entries of a stack: a copy of one, in float64, is all that is held at a time."""


@dataclass
class Stack:
    """Parts of one metric, dtype and division into rows, on one team."""

    team: Team
    rows: Rows
    metric: Metric
    dtype: torch.dtype
    device: torch.device
    parts: list[Part] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return sum(part.columns for part in self.parts)

    @property
    def height(self) -> int:
        """The rows of this rank."""
        return self.rows.counts[self.team.place]

    @property
    def numel(self) -> int:
        """The most entries that any rank holds."""
        return self.columns * max(self.rows.counts)

    def runs(self) -> Iterator[tuple[Run, int]]:
        """This rank's runs, each with the row of the stack that it begins at."""
        start = 0
        for run in self.rows.runs[self.team.place]:
            yield run, start
            start += run.length

    def read(self, dtype: torch.dtype) -> Tensor:
        """A copy of all columns; zeros for a gradient that is not there."""
        columns = []
        for part in self.parts:
            if part.local is None:
                columns.append(torch.zeros(self.height, part.columns, dtype=dtype, device=self.device))
            else:
                columns.append(part.read().to(dtype))
        return torch.cat(columns, dim=1)

    def write(self, columns_LC: Tensor) -> None:
        """Put all columns where they were read."""
        for part, own_LC in zip(
            self.parts, torch.split(columns_LC, [part.columns for part in self.parts], 1), strict=True
        ):
            if part.local is not None:
                part.write(own_LC)


def stacked(parts: Iterable[Part]) -> list[Stack]:
    """Stacks in the order of their first parts, the same on every rank of a team."""
    open_stacks: dict[object, Stack] = {}
    out: list[Stack] = []
    for part in parts:
        assert part.team is not None
        assert part.rows is not None
        device = part.team.device if part.local is None else part.local.device
        key = (part.team, part.rows, id(part.metric), part.dtype)
        stack = open_stacks.get(key)
        if stack is None or (stack.columns + part.columns) * max(part.rows.counts) > MAX_NUMEL:
            stack = open_stacks[key] = Stack(part.team, part.rows, part.metric, part.dtype, device)
            out.append(stack)
        stack.parts.append(part)
        if part.local is not None:
            stack.device = device
    return out
