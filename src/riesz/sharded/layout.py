"""From a DTensor to the rows that each rank holds, and to what this rank can compute with its own.

| placement on a mesh dim            | meaning here                                                          |
| ---------------------------------- | --------------------------------------------------------------------- |
| Replicate                          | every rank has all of it: nothing to do                               |
| Shard of a batch axis              | whole columns: nothing to do, unless the operator mixes columns       |
| Shard of the directed axis         | parts of columns: the ranks along it form a group                     |
| Shard of another dim of the axis   | refused: "rasterized" and "fan_in" are cut along their first alone    |
| _StridedShard (FSDP + TP)          | as Shard, with several spans of rows on a rank where shards are uneven |
| Partial                            | reduced first, and written back as a share of the sum                 |

The directed axis is read as one long line of `groups * n` rows, the groups of a convolution one after the other. A rank
holds spans of it, in the order of its memory: one under FSDP, several where shards are strided or contain groups.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from riesz.layout.axis import Axis, ColumnView
from riesz.metrics import Operator
from riesz.metrics.low_rank import RowSpan
from riesz.private_torch import local_tensors, strided_shard
from riesz.sharded.agreement import RankGroup, rank_group

LINEAR = ("sum", "avg")
"""The reductions that a Partial gradient may ask for."""

OLDEST_TORCH = (2, 10)
"""Before it, torch cuts uneven strided shards (FSDP2 with tensor parallelism) differently: results would be wrong."""

# -- rows: plain arithmetic --------------------------------------------------------------------------------------------

Cut = tuple[int, int]
"""How one mesh dim divides a tensor dim, as (pieces, parts): each of `pieces` equal pieces goes to `parts` ranks. One
piece is a plain shard, several are a strided one."""


@dataclass(frozen=True)
class RowPartition:
    """Which rank holds which rows of the directed axis."""

    n: int  # the length of the axis, within one group of the convolution
    # By rank of the rank group, its spans in its own order; none crosses from one group to the next.
    spans: tuple[tuple[RowSpan, ...], ...]

    def __post_init__(self) -> None:
        held = sorted(span for spans in self.spans for span in spans)
        edges = list(accumulate((span.length for span in held), initial=0))
        if [span.start for span in held] != edges[:-1] or edges[-1] % self.n:
            raise ValueError(f"expected rows that add up to whole columns of {self.n}, got {held}")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many rows each rank holds."""
        return tuple(sum(span.length for span in spans) for spans in self.spans)

    @cached_property
    def groups(self) -> int:
        return sum(self.counts) // self.n

    @cached_property
    def divided(self) -> tuple[tuple[RowSpan, ...], ...]:
        """By rank, its spans that are a part of a column only; the others need no other rank."""
        return tuple(tuple(span for span in spans if span.length < self.n) for spans in self.spans)

    @cached_property
    def slots(self) -> int:
        """The most spans of a divided group that any rank holds."""
        return max(map(len, self.divided))

    @cached_property
    def divided_groups(self) -> dict[int, int]:
        """The groups that are divided among ranks, numbered in their order."""
        groups = {span.start // self.n for spans in self.divided for span in spans}
        return {group: number for number, group in enumerate(sorted(groups))}

    def number(self, span: RowSpan) -> int:
        """Of the divided group that this span is a part of."""
        return self.divided_groups[span.start // self.n]

    def partners(self, span: RowSpan) -> list[tuple[int, int, RowSpan]]:
        """All spans of the same group, with their ranks and their positions among the rank's divided spans."""
        return [
            (rank, slot, other)
            for rank, spans in enumerate(self.divided)
            for slot, other in enumerate(spans)
            if other.start // self.n == span.start // self.n
        ]


@lru_cache(maxsize=4096)
def held_by_rank(
    length: int, cuts: tuple[Cut, ...], coordinates: tuple[tuple[int, ...], ...]
) -> tuple[tuple[RowSpan, ...], ...]:
    """The spans of a tensor dim that each rank holds, given its coordinates on the mesh dims that cut it."""
    return tuple(tuple(_held_at(length, cuts, coordinate)) for coordinate in coordinates)


@lru_cache(maxsize=4096)
def partition(n: int, rows_per_index: int, held: tuple[tuple[RowSpan, ...], ...]) -> RowPartition:
    """Rows from the spans of a tensor dim: each index of it is `rows_per_index` rows, and columns have length n."""
    rows = ([RowSpan(s.start * rows_per_index, s.length * rows_per_index) for s in spans] for spans in held)
    return RowPartition(n, tuple(tuple(_split(spans, n)) for spans in rows))


def _held_at(length: int, cuts: Sequence[Cut], coordinate: Sequence[int]) -> list[RowSpan]:
    spans = [RowSpan(0, length)] if length else []
    for (pieces, parts), index in zip(cuts, coordinate, strict=True):
        total = sum(span.length for span in spans)
        taken: list[RowSpan] = []
        for piece in range(pieces):
            start, stop = _chunk(total, pieces, piece)
            first, last = _chunk(stop - start, parts, index)
            taken += _between(spans, start + first, start + last)
        spans = _joined(taken)
    return spans


def _chunk(length: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of a chunk, as torch.chunk cuts: the last ones may be short or empty."""
    size = -(-length // parts)
    return min(index * size, length), min((index + 1) * size, length)


def _between(spans: Iterable[RowSpan], start: int, stop: int) -> list[RowSpan]:
    """The rows from `start` to `stop`, counted in the rows held."""
    taken, before = [], 0
    for span in spans:
        low, high = max(start - before, 0), min(stop - before, span.length)
        if low < high:
            taken.append(RowSpan(span.start + low, high - low))
        before += span.length
    return taken


def _joined(spans: Iterable[RowSpan]) -> list[RowSpan]:
    out: list[RowSpan] = []
    for span in spans:
        if out and out[-1].stop == span.start:
            start = out.pop().start
            span = RowSpan(start, span.stop - start)
        out.append(span)
    return out


def _split(spans: Iterable[RowSpan], n: int) -> Iterable[RowSpan]:
    for span in spans:
        start = span.start
        while start < span.stop:
            stop = min(span.stop, (start // n + 1) * n)
            yield RowSpan(start, stop - start)
            start = stop


# -- the layout of a DTensor -------------------------------------------------------------------------------------------

Cuts = tuple[tuple[tuple[int, Cut], ...], ...]
"""By tensor dim, the mesh dims that cut it and how."""


@dataclass(frozen=True)
class ShardLayout:
    """How a tensor is laid out on its mesh."""

    mesh: DeviceMesh
    shape: tuple[int, ...]
    cuts: Cuts  # the mesh dims that cut each of its dims
    partial: tuple[tuple[int, str], ...]  # the mesh dims on which it is a share of a sum, and how shares are reduced
    held: tuple[tuple[RowSpan, ...], ...]  # by tensor dim, the indices that this rank holds; empty if not on the mesh
    local_shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: DTensor, axis: Axis, what: str) -> "ShardLayout":
        """Read a DTensor's layout, or raise if it cannot be directed along this axis. Nothing is communicated."""
        check_torch(torch.__version__, what)
        mesh, shape = tensor.device_mesh, tuple(tensor.shape)
        here = mesh.get_coordinate()
        meaning = _read(tuple(tensor.placements), tuple(mesh.shape), None if here is None else tuple(here), shape)
        if isinstance(meaning, str):
            raise _unsupported(tensor, what, meaning)
        layout = cls(mesh, shape, *meaning)
        if layout.cutting(axis.dims(tensor.dim())[1:]):
            which = "rasterized" if axis.dim is None else "fan_in"
            raise _unsupported(tensor, what, f"{which!r} reads it row by row, and its rows themselves are divided")
        local = tuple(local_tensors([tensor])[0].shape)
        if here is not None and local != layout.local_shape:
            raise _unsupported(tensor, what, f"its local part has shape {local} where {layout.local_shape} is expected")
        return layout

    def cutting(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """The mesh dims that cut any of these tensor dims, in their order."""
        return tuple(sorted(mesh_dim for dim in dims for mesh_dim, _ in self.cuts[dim]))


@lru_cache(maxsize=4096)
def _read(
    placements: tuple[Placement, ...], ranks: tuple[int, ...], here: tuple[int, ...] | None, shape: tuple[int, ...]
) -> tuple[Cuts, tuple[tuple[int, str], ...], tuple[tuple[RowSpan, ...], ...], tuple[int, ...]] | str:
    """All but mesh and shape of a `ShardLayout`, seen from one rank; or why the placements are unsupported."""
    cuts: list[list[tuple[int, Cut]]] = [[] for _ in shape]
    partial: list[tuple[int, str]] = []
    for mesh_dim, placement in enumerate(placements):
        if ranks[mesh_dim] == 1 or type(placement) is Replicate:
            continue
        if type(placement) is Partial and placement.reduce_op in LINEAR:
            partial.append((mesh_dim, placement.reduce_op))
        elif (strided := strided_shard(placement)) is not None:
            dim, pieces = strided
            cuts[dim].append((mesh_dim, (pieces, ranks[mesh_dim])))
        elif type(placement) is Shard:
            cuts[placement.dim].append((mesh_dim, (1, ranks[mesh_dim])))
        else:
            return f"its placement {placement} on mesh dim {mesh_dim} is not supported"
    held: list[tuple[RowSpan, ...]] = []
    for length, dim_cuts in zip(shape, cuts, strict=True) if here is not None else ():
        coordinate = tuple(here[mesh_dim] for mesh_dim, _ in dim_cuts) if here is not None else ()
        held += held_by_rank(length, tuple(cut for _, cut in dim_cuts), (coordinate,))
    local_shape = tuple(sum(span.length for span in spans) for spans in held)
    return tuple(map(tuple, cuts)), tuple(partial), tuple(held), local_shape


def _unsupported(tensor: DTensor, what: str, why: str) -> ValueError:
    return ValueError(
        f"{what}: expected Replicate, Shard, the strided shards of FSDP with tensor parallelism or Partial sums, as "
        "torch.distributed.tensor makes them, and Shard(0) alone for 'rasterized'; got a DTensor of shape "
        f"{tuple(tensor.shape)} with placements {tuple(tensor.placements)}: {why}. Redistribute it, or leave the "
        "parameter out with a predicate for layers"
    )


# -- this rank's part of one gradient ----------------------------------------------------------------------------------


@dataclass
class LocalShard:
    """This rank's part of one gradient, and the ranks it needs to direct it."""

    name: str  # of the parameter
    axis: Axis
    metric: Operator
    local: Tensor | None  # the gradient's own memory on this rank; None where this parameter has no gradient now
    dtype: torch.dtype  # of the gradient; real if it is complex
    device: torch.device
    layout: ShardLayout
    group: RankGroup | None  # the ranks it exchanges sums or columns with; None if it needs no other rank
    partition: RowPartition | None  # of the directed axis within the group; None if this rank has whole columns
    columns: int  # how many columns this rank holds parts of
    parts: int  # 2 for a complex gradient, whose real and imaginary parts are columns of their own, else 1

    @property
    def line(self) -> tuple[int, ...]:
        """The dims that the axis runs along."""
        return self.axis.dims(len(self.layout.shape))

    def open(self) -> ColumnView:
        """The part as columns, where this rank has whole ones."""
        assert self.local is not None
        assert self.group is None
        groups = 1
        if self.metric.mixes_columns:
            groups = self.axis.groups if self.axis.dim != 0 else 1
        elif self.metric.mixes_rows and self.axis.dim is not None and self.line[0] == 0:
            # Some groups, each as a whole. To the other operators it makes no difference where a group ends.
            groups = self.layout.local_shape[0] * self.axis.groups // self.layout.shape[0]
        return ColumnView.open(self.local, replace(self.axis, groups=groups), self.metric.mixes_columns)

    def read(self) -> Tensor:
        """The rows of all columns, in logical order whatever the strides: every rank must mean the same column."""
        return self._folded().reshape(-1, self.columns)

    def view(self) -> Tensor | None:
        """The same as a view of the gradient's memory; None where its strides allow none."""
        rows_LC = self.read()
        assert self.local is not None
        return rows_LC if rows_LC.untyped_storage().data_ptr() == self.local.untyped_storage().data_ptr() else None

    def write(self, rows_LC: Tensor, first: int) -> None:
        """Write some columns, from number `first` on, where they were read, whatever the strides."""
        folded, all_LC = self._folded(), self.read()
        all_LC[:, first : first + rows_LC.shape[1]] = rows_LC
        folded.copy_(all_LC.view(folded.shape))

    def is_dense(self) -> bool:
        """Whether the rows of all columns lie in memory one after the other."""
        return self.local is None or (self._folded().is_contiguous() and not self.local.is_neg())

    def _folded(self) -> Tensor:
        assert self.local is not None
        line = self.axis.dims(self.local.dim())
        return real_view(self.local).movedim(line, tuple(range(len(line))))


def open_shard(gradient: Any, parameter: Any, axis: Axis, metric: Operator, name: str) -> LocalShard | None:
    """This rank's part of a gradient, or of a parameter that has none now; None if the rank is not on its mesh.

    Args:
        gradient: a DTensor, or None.
        parameter: the DTensor whose layout counts where there is no gradient.
        axis, metric, name: of the parameter.
    """
    tensor: DTensor = parameter if gradient is None else gradient
    if tensor.device_mesh.get_coordinate() is None:
        return None
    layout = ShardLayout.of(tensor, axis, f"the gradient of {name!r}")
    parts = 2 if tensor.is_complex() else 1
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    line = axis.dims(tensor.dim())
    others = tuple(dim for dim in range(tensor.dim()) if dim not in line)
    columns = parts * math.prod(layout.local_shape[dim] for dim in others)
    group, rows = None, None
    if metric.mixes_columns:
        dims = layout.cutting(others)
        group = rank_group(layout.mesh, dims) if dims else None
    elif (dims := layout.cutting(line[:1])) and metric.mixes_rows and columns:
        group = rank_group(layout.mesh, dims)
        held = held_by_rank(layout.shape[line[0]], tuple(cut for _, cut in layout.cuts[line[0]]), group.coordinates)
        rows = partition(axis.length(layout.shape), math.prod(layout.shape[dim] for dim in line[1:]), held)
        if not rows.slots:  # each group of the convolution is on one rank as a whole
            group, rows = None, None
    local = local_of(tensor)
    own = None if gradient is None else local
    return LocalShard(name, axis, metric, own, dtype, local.device, layout, group, rows, columns, parts)


def check_torch(version: str, what: str) -> None:
    """Raise if this version of torch is too old for DTensors."""
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise RuntimeError(
            f"{what}: expected torch {oldest} or newer, which DTensors need, got torch {version}; plain tensors work "
            "with it"
        )


def check(tensor: Any, axis: Axis, what: str) -> None:
    """Raise if a DTensor is laid out in a way that cannot be directed along this axis."""
    ShardLayout.of(tensor, axis, what)


def local_of(tensor: Any) -> Tensor:
    """The memory of a DTensor on this rank; writing to it writes the DTensor."""
    local: Any = local_tensors([tensor])[0]
    # The result of a collective that may still be under way has a method to wait for it.
    ready: Tensor = local if type(local) is Tensor or not hasattr(local, "wait") else local.wait()
    return ready


def real_view(tensor: Tensor) -> Tensor:
    """A complex tensor as its real and imaginary parts, side by side. A real operator acts on both."""
    if not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
