"""Column batches: columns of many gradients side by side, computed together where their rows are partitioned alike.

A `SumExchange` sends sums of all columns of some batches in one collective, and corrects the columns by what it gets.

Shape suffixes: L the rows of this rank, C columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from riesz.backends import direct_
from riesz.backends.shards import MAX_ROWS, RunNumbers, ShardKernels, ShardRun
from riesz.layout.axis import ColumnView
from riesz.metrics import Metric, Operator
from riesz.private_torch import copy_all_
from riesz.sharded.collectives import AllGather, AllReduce, Exchange
from riesz.sharded.groups import RankGroup, digest
from riesz.sharded.layout import LocalPart, Rows, Run, real_view

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

    def read(self) -> Tensor:
        return self.part.read()[:, self.first : self.first + self.columns]


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

    def read(self, dtype: torch.dtype, width: int = 0) -> Tensor:
        """A copy of all columns, at least `width` of them; zeros where a parameter has no gradient, and at the end."""
        all_LC = torch.zeros(self.height, max(width, self.columns), dtype=dtype, device=self.device)
        present = [pair for pair in self._split(all_LC[:, : self.columns]) if pair[0].present]
        if present:
            copy_all_([own_LC for _, own_LC in present], [member.read() for member, _ in present])
        return all_LC

    def write(self, columns_LC: Tensor) -> None:
        """Write all columns where they were read."""
        targets, values = [], []
        for member, own_LC in self._split(columns_LC):
            if member.present:
                home_LC = member.part.view()
                if home_LC is None:
                    member.part.write(own_LC, member.first)
                else:
                    targets.append(home_LC[:, member.first : member.first + member.columns])
                    values.append(own_LC)
        if targets:
            copy_all_(targets, values)

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


# -- sums of columns ---------------------------------------------------------------------------------------------------


class SumExchange(Exchange):
    """Sums of each column are exchanged, then every rank corrects its own rows.

    The compiled kernels make the sums and the correction, one call each for all gradients. Where they do not serve,
    torch does, one column batch at a time. Both write the same buffers, so ranks need not choose alike.
    """

    _collective: AllGather | AllReduce

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str):
        self._group, self._batches, self._backend = group, batches, backend
        self._members = [(batch, member) for batch in batches for member in batch.members if member.present]
        parts = {id(member.part): member.part for _, member in self._members}
        self._parts = list(parts.values())
        self._native = all(self._kernels_serve(batch, member) for batch, member in self._members)
        self._metrics = list({id(batch.metric): batch.metric for batch in batches}.values())
        self._layout = digest(describe_layout(batches))
        self._numbers: list[float] | None = None
        self._kernels: ShardKernels | None = None
        self._sources: list[tuple[LocalPart, int]] = []
        self._runs: list[tuple[int, Run]] = []
        self._packed = False
        self._token = 0

    def start(self) -> None:
        numbers = tunable_numbers(self._metrics)
        if numbers != self._numbers:
            self._numbers, self._token = numbers, digest((self._layout, numbers))
            self._refresh()
        buffer = self._collective.send_buffer()
        self._packed = self._kernels is not None and ShardKernels.available()
        if self._kernels is not None and self._packed:
            self._kernels.sums(self._addresses(), buffer)
        else:
            self._pack(buffer)
        self._collective.start(self._token)

    def finish(self) -> None:
        received = self._collective.finish(self._token, lambda: describe(self._batches))
        # The kernels keep sums of their own from the packing.
        if self._kernels is not None and self._packed and self._kernels.solve_(self._addresses(), received):
            if not torch.is_inference_mode_enabled():
                torch.autograd.graph.increment_version([part.local for part in self._parts if part.local is not None])
        else:
            self._solve(received)
        self._collective.release()

    def drop_buffers(self) -> None:
        self._collective.drop()

    def _kernels_serve(self, batch: ColumnBatch, member: Member) -> bool:
        local = member.part.local
        assert local is not None
        short = all(run.length <= MAX_ROWS for run, _ in batch.runs())
        return short and member.part.is_dense() and ShardKernels.serves(real_view(local), self._backend)

    def _addresses(self) -> list[int]:
        return [part.local.data_ptr() + offset for part, offset in self._sources if part.local is not None]

    def _refresh(self) -> None:
        """Work out what depends on the metric's numbers."""
        if not self._native:
            return
        numbers = {
            (id(batch), run): self._run_numbers(batch, run) if run.length < batch.rows.n else RunNumbers(batch.metric)
            for batch in self._batches
            for run, _ in batch.runs()
        }
        if self._kernels is not None:
            self._kernels.set_numbers([numbers[key] for key in self._runs])
            return
        runs = []
        for batch in self._batches:
            firsts = accumulate((member.columns for member in batch.members), initial=0)
            for member, column in zip(batch.members, firsts, strict=False):
                for run, start in batch.runs() if member.present else ():
                    stride = member.part.columns
                    self._sources.append((member.part, (start * stride + member.first) * batch.dtype.itemsize))
                    self._runs.append((id(batch), run))
                    whole = ShardRun(run.length, member.columns, stride, batch.dtype, numbers[id(batch), run])
                    divided = run.length < batch.rows.n
                    runs.append(self._shard_run(whole, batch, column, run) if divided else whole)
        self._kernels = ShardKernels(runs) if runs else None

    def _run_numbers(self, batch: ColumnBatch, run: Run) -> RunNumbers:
        """What the kernels need of the metric's numbers for a run that is a part of a column."""
        raise NotImplementedError

    def _shard_run(self, alone: ShardRun, batch: ColumnBatch, column: int, run: Run) -> ShardRun:
        """The same run with the places of its sums: those of the batch's columns from this one on."""
        raise NotImplementedError

    def _pack(self, buffer: Tensor) -> None:
        """Write the sums of all columns to the buffer, in torch."""
        raise NotImplementedError

    def _solve(self, received: Tensor) -> None:
        """Direct all columns, given the sums of all ranks, in torch."""
        raise NotImplementedError


class ReductionExchange(SumExchange):
    """g = (scale + blend) f + scale lam mean(f), the mean from one sum per column."""

    def __init__(self, group: RankGroup, batches: Sequence[ColumnBatch], backend: str):
        super().__init__(group, batches, backend)
        self._starts: dict[int, int] = {}
        count = 0
        for batch in batches:
            self._starts[id(batch)] = AllReduce.HEADER + count
            count += len(batch.rows.shared) * batch.columns
            own = [batch.rows.group(run) for run in batch.rows.divided(group.rank)]
            # The kernels store a sum, they do not add to it.
            self._native = self._native and len(set(own)) == len(own)
        self._collective = AllReduce(group, count, batches[0].device)

    def start(self) -> None:
        # Columns without rows on this rank, or without a gradient, add nothing: no one else clears the last totals.
        self._collective.send_buffer().zero_()
        super().start()

    def _run_numbers(self, batch: ColumnBatch, run: Run) -> RunNumbers:
        ones_KL = torch.ones(1, run.length, dtype=torch.float64)
        coupling = torch.tensor([[self._weight(batch)], [0.0], [0.0]], dtype=torch.float64)
        return RunNumbers(batch.metric, ones_KL, coupling)

    def _shard_run(self, alone: ShardRun, batch: ColumnBatch, column: int, run: Run) -> ShardRun:
        number = batch.rows.shared[batch.rows.group(run)]
        at = 8 * (self._starts[id(batch)] + number * batch.columns + column)
        return replace(alone, exact=1, exact_offset=at, solves_alone=False, partner_offsets=((at, at),))

    def _weight(self, batch: ColumnBatch) -> float:
        assert isinstance(batch.metric, Metric)
        return float(batch.metric.scale * batch.metric.strength) / batch.rows.n

    def _sums(self, buffer: Tensor, batch: ColumnBatch) -> Tensor:
        start, groups = self._starts[id(batch)], len(batch.rows.shared)
        return buffer.view(torch.float64)[start : start + groups * batch.columns].view(groups, batch.columns)

    def _pack(self, buffer: Tensor) -> None:
        for batch in self._batches:
            columns_LC, sums_GC = batch.read(torch.float64), self._sums(buffer, batch)
            for run, start in batch.runs():
                if run.length < batch.rows.n:
                    sums_GC[batch.rows.shared[batch.rows.group(run)]] += columns_LC[start : start + run.length].sum(0)

    def _solve(self, received: Tensor) -> None:
        for batch in self._batches:
            metric, totals_GC = batch.metric, self._sums(received, batch)
            assert isinstance(metric, Metric)
            columns_LC = batch.read(torch.float64)
            for run, start in batch.runs():
                own_LC, number = columns_LC[start : start + run.length], batch.rows.shared.get(batch.rows.group(run))
                total_C = own_LC.sum(0) if number is None else totals_GC[number]
                own_LC.mul_(float(metric.scale + metric.blend)).add_(total_C * self._weight(batch))
            batch.write(columns_LC)


def direct_rows_(columns_NC: Tensor, length: int, metric: Operator, backend: str) -> None:
    """Direct columns that are whole: groups of `length` rows, one after the other."""
    rows, columns = columns_NC.shape
    groups = rows // length
    direct_([ColumnView(columns_NC.view(groups, length, columns), groups, length, columns, groups)], metric, backend)


def describe_layout(batches: Sequence[ColumnBatch]) -> object:
    """What ranks must agree on, but for the metrics' numbers."""
    return [
        (
            type(batch.metric).__name__,
            batch.metric.fixed_settings(),
            batch.rows.n,
            batch.rows.groups,
            str(batch.dtype),
            [(member.columns, member.present) for member in batch.members],
        )
        for batch in batches
    ]


def tunable_numbers(metrics: Iterable[Operator]) -> list[float]:
    return [float(getattr(metric, name)) for metric in metrics for name in metric.tunable_fields]


def describe_metric(metric: Operator) -> str:
    # The hook's metrics hold tensors, which print as such.
    settings = {field.name: getattr(metric, field.name) for field in metric.settings()}
    values = {name: float(value) if name in metric.tunable_fields else value for name, value in settings.items()}
    return f"{metric.kind_name()}({', '.join(f'{name}={value}' for name, value in values.items())})"


def describe(batches: Sequence[ColumnBatch]) -> str:
    """The metrics, and what has no gradient, for an error."""
    absent = {member.name for batch in batches for member in batch.members if not member.present}
    metrics = sorted({describe_metric(batch.metric) for batch in batches})
    return f"{', '.join(metrics)}; without a gradient: {', '.join(sorted(absent)) or 'none'}"
