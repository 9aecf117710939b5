"""Column batches: columns of many gradients side by side, computed together where their rows are partitioned alike.

Shape suffixes: L the rows of this rank, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from riesz.metrics import Operator
from riesz.sharded.groups import RankGroup
from riesz.sharded.layout import LocalPart, Rows, Run

MAX_NUMEL = 1 << 20
"""Entries of a column batch: a copy of one, in float64, is all that is in memory at a time."""


@dataclass(frozen=True)
class Member:
    """Columns of one part, from number `first` on."""

    part: LocalPart
    first: int
    columns: int

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def present(self) -> bool:
        return self.part.local is not None


@dataclass
class ColumnBatch:
    """Columns of one metric, dtype and partition into rows, in one rank group."""

    group: RankGroup
    rows: Rows
    metric: Operator
    dtype: torch.dtype
    device: torch.device
    members: list[Member] = field(default_factory=list)
    columns: int = 0

    def add(self, part: LocalPart, first: int) -> int:
        """Add as many columns of a part as there is room for; returns how many."""
        columns = min(self.room, part.columns - first)
        self.members.append(Member(part, first, columns))
        self.columns += columns
        return columns

    @property
    def room(self) -> int:
        """How many more columns fit; decided by the rank with the most rows, so that all ranks agree."""
        return max(1, MAX_NUMEL // max(self.rows.counts)) - self.columns

    @property
    def height(self) -> int:
        """The rows of this rank."""
        return self.rows.counts[self.group.rank]

    def runs(self) -> Iterator[tuple[Run, int]]:
        """This rank's runs, each with the row of the batch that it begins at."""
        start = 0
        for run in self.rows.runs[self.group.rank]:
            yield run, start
            start += run.length

    def read(self, dtype: torch.dtype) -> Tensor:
        """A copy of all columns; zeros where a parameter has no gradient."""
        columns_LC = torch.zeros(self.height, self.columns, dtype=dtype, device=self.device)
        for member, own_LC in self._split(columns_LC):
            if member.present:
                own_LC.copy_(member.part.read()[:, member.first : member.first + member.columns])
        return columns_LC

    def write(self, columns_LC: Tensor) -> None:
        """Write all columns where they were read."""
        for member, own_LC in self._split(columns_LC):
            if member.present:
                member.part.write(own_LC, member.first)

    def _split(self, columns_LC: Tensor) -> Iterator[tuple[Member, Tensor]]:
        widths = [member.columns for member in self.members]
        return zip(self.members, torch.split(columns_LC, widths, dim=1), strict=True)


def batch_columns(parts: Iterable[LocalPart]) -> list[ColumnBatch]:
    """Column batches in the order of their first columns, the same on every rank of a group."""
    latest: dict[object, ColumnBatch] = {}
    out: list[ColumnBatch] = []
    for part in parts:
        assert part.group is not None
        assert part.rows is not None
        key = (part.group, part.rows, id(part.metric), part.dtype, part.device)
        first = 0
        while first < part.columns:
            batch = latest.get(key)
            if batch is None or batch.room <= 0:
                batch = latest[key] = ColumnBatch(part.group, part.rows, part.metric, part.dtype, part.device)
                out.append(batch)
            first += batch.add(part, first)
    return out
