"""Columns of many gradients side by side: whatever is dealt out alike is computed together.

Shape suffixes: L the rows of this rank, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from riesz.metrics import Metric
from riesz.sharded.groups import Team
from riesz.sharded.layout import Part
from riesz.sharded.rows import Rows, Run

MAX_NUMEL = 1 << 20
"""Entries of a stack: a copy of one, in float64, is all that is held at a time."""


@dataclass(frozen=True)
class Member:
    """Columns of one part, from the one numbered `first` on."""

    part: Part
    first: int
    columns: int

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def present(self) -> bool:
        return self.part.local is not None


@dataclass
class Stack:
    """Columns of one metric, dtype and division into rows, on one team."""

    team: Team
    rows: Rows
    metric: Metric
    dtype: torch.dtype
    device: torch.device
    members: list[Member] = field(default_factory=list)
    columns: int = 0

    def add(self, part: Part, first: int) -> int:
        """Take in as many columns of a part as there is room for; returns how many."""
        columns = min(self.room, part.columns - first)
        self.members.append(Member(part, first, columns))
        self.columns += columns
        return columns

    @property
    def room(self) -> int:
        """How many more columns it takes; decided by the rank with the most rows, so that all ranks agree."""
        return max(1, MAX_NUMEL // max(self.rows.counts)) - self.columns

    @property
    def height(self) -> int:
        """The rows of this rank."""
        return self.rows.counts[self.team.place]

    def runs(self) -> Iterator[tuple[Run, int]]:
        """This rank's runs, each with the row of the stack that it begins at."""
        start = 0
        for run in self.rows.runs[self.team.place]:
            yield run, start
            start += run.length

    def read(self, dtype: torch.dtype) -> Tensor:
        """A copy of all columns; zeros for a gradient that is not there."""
        columns_LC = torch.zeros(self.height, self.columns, dtype=dtype, device=self.device)
        for member, own_LC in self._split(columns_LC):
            if member.present:
                own_LC.copy_(member.part.read()[:, member.first : member.first + member.columns])
        return columns_LC

    def write(self, columns_LC: Tensor) -> None:
        """Put all columns where they were read."""
        for member, own_LC in self._split(columns_LC):
            if member.present:
                member.part.write(own_LC, member.first)

    def _split(self, columns_LC: Tensor) -> Iterator[tuple[Member, Tensor]]:
        widths = [member.columns for member in self.members]
        return zip(self.members, torch.split(columns_LC, widths, dim=1), strict=True)


def stacked(parts: Iterable[Part]) -> list[Stack]:
    """Stacks in the order of their first columns, the same on every rank of a team."""
    open_stacks: dict[object, Stack] = {}
    out: list[Stack] = []
    for part in parts:
        assert part.team is not None
        assert part.rows is not None
        key = (part.team, part.rows, id(part.metric), part.dtype, part.device)
        first = 0
        while first < part.columns:
            stack = open_stacks.get(key)
            if stack is None or stack.room <= 0:
                stack = open_stacks[key] = Stack(part.team, part.rows, part.metric, part.dtype, part.device)
                out.append(stack)
            first += stack.add(part, first)
    return out
