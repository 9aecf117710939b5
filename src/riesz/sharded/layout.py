"""From a DTensor to what a rank can do with its part of it.

| the mesh dim                       | what it means here                                            |
| ---------------------------------- | ------------------------------------------------------------- |
| Replicate                          | every rank has it all: nothing to do                           |
| Shard of a passenger axis          | whole columns: nothing to do, but for Centralization           |
| Shard of the directed axis         | parts of columns: the ranks along it are a team                |
| _StridedShard (FSDP + TP)          | the same, with several runs of rows on a rank where uneven     |
| Partial                            | reduced first, and put back as a share of the sum              |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from riesz.layout.axis import Axis, ColumnView
from riesz.metrics import Centralization, Identity, Metric
from riesz.sharded.groups import Team, team_of
from riesz.sharded.rows import Cut, Rows, Run, deal, rows

LINEAR = ("sum", "avg")
"""How the parts of a Partial gradient may be reduced."""


Cuts = tuple[tuple[tuple[int, Cut], ...], ...]
"""By tensor dim, the mesh dims that cut it and how."""


@dataclass(frozen=True)
class Placing:
    """How a tensor is laid out on its mesh.

    Attributes:
        mesh, shape: of the tensor.
        cuts: the mesh dims that cut each of its dims.
        partial: the mesh dims on which it is a share of a sum, and how the shares are reduced.
        runs: by tensor dim, the indices that this rank holds; empty if it is not on the mesh.
    """

    mesh: DeviceMesh
    shape: tuple[int, ...]
    cuts: Cuts
    partial: tuple[tuple[int, str], ...]
    runs: tuple[tuple[Run, ...], ...]

    @classmethod
    def of(cls, tensor: DTensor, axis: Axis, what: str) -> Placing:
        """Read a DTensor's layout, or raise if it cannot be directed along this axis. Nothing is communicated."""
        mesh, shape = tensor.device_mesh, tuple(tensor.shape)
        here = mesh.get_coordinate()
        found = _read(tuple(tensor.placements), tuple(mesh.shape), None if here is None else tuple(here), shape)
        if isinstance(found, str):
            raise _unknown(tensor, what, found)
        placing = cls(mesh, shape, *found)
        if axis.dim is None and placing.cutting(tuple(range(1, tensor.dim()))):
            raise _unknown(tensor, what, "'rasterized' reads it row by row, and its rows themselves are divided")
        local = tuple(tensor._local_tensor.shape)
        if here is not None and local != (expected := tuple(map(placing.held, range(tensor.dim())))):
            raise _unknown(tensor, what, f"its local part has shape {local} where {expected} is expected")
        return placing

    def cutting(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """The mesh dims that cut any of these tensor dims, in their order."""
        return tuple(sorted(mesh_dim for dim in dims for mesh_dim, _ in self.cuts[dim]))

    def held(self, dim: int) -> int:
        """How many indices of a tensor dim this rank holds."""
        return sum(run.length for run in self.runs[dim])


@lru_cache(maxsize=4096)
def _read(
    placements: tuple[Placement, ...], ranks: tuple[int, ...], here: tuple[int, ...] | None, shape: tuple[int, ...]
) -> tuple[Cuts, tuple[tuple[int, str], ...], tuple[tuple[Run, ...], ...]] | str:
    """What placements mean for a tensor on a mesh of so many ranks, seen from one of them; or why they are unknown."""
    cuts: list[list[tuple[int, Cut]]] = [[] for _ in shape]
    partial: list[tuple[int, str]] = []
    for mesh_dim, placement in enumerate(placements):
        if ranks[mesh_dim] == 1 or type(placement) is Replicate:
            continue
        if type(placement) is Partial and placement.reduce_op in LINEAR:
            partial.append((mesh_dim, placement.reduce_op))
        elif type(placement) is _StridedShard:
            cuts[placement.dim].append((mesh_dim, (int(placement.split_factor), ranks[mesh_dim])))
        elif type(placement) is Shard:
            cuts[placement.dim].append((mesh_dim, (1, ranks[mesh_dim])))
        else:
            return f"its placement {placement} on mesh dim {mesh_dim} is not understood"
    runs: list[tuple[Run, ...]] = []
    for length, its_cuts in zip(shape, cuts, strict=True) if here is not None else ():
        seat = tuple(here[mesh_dim] for mesh_dim, _ in its_cuts) if here is not None else ()
        runs += deal(length, tuple(cut for _, cut in its_cuts), (seat,))
    return tuple(map(tuple, cuts)), tuple(partial), tuple(runs)


@dataclass
class Part:
    """This rank's part of one gradient, and whom it needs to direct it.

    Attributes:
        name, axis, metric: of the parameter.
        local: the gradient's own memory on this rank; None where this parameter has no gradient now.
        dtype, device: of the gradient; the dtype is real if it is complex.
        placing: how it is laid out.
        team: the ranks it has to talk to; None if it has all it needs.
        rows: how the directed axis is dealt out to the team; None if this rank has whole columns.
        columns: how many columns this rank holds parts of.
        parts: 2 for a complex gradient, whose real and imaginary parts are columns of their own, else 1.
    """

    name: str
    axis: Axis
    metric: Metric
    local: Tensor | None
    dtype: torch.dtype
    device: torch.device
    placing: Placing
    team: Team | None
    rows: Rows | None
    columns: int
    parts: int

    def job(self) -> ColumnView:
        """The part as columns, where it has them as wholes."""
        assert self.local is not None
        assert self.team is None
        groups = 1
        if type(self.metric) is Centralization and self.axis.dim != 0:
            groups = self.axis.groups
        elif type(self.metric) not in (Centralization, Identity) and self.axis.dim == 0:
            # Some groups, each as a whole. To the metrics excepted here it is all one where a group ends.
            groups = self.placing.held(0) // self.axis.length(self.placing.shape)
        axis = replace(self.axis, groups=groups)
        return ColumnView.open(self.local, axis)

    def read(self) -> Tensor:
        """The rows of all columns, in logical order whatever the strides: every rank must mean the same column."""
        return self._view().reshape(-1, self.columns)

    def write(self, rows_LC: Tensor, first: int) -> None:
        """Put some columns, from the one numbered `first` on, where they were read."""
        view, all_LC = self._view(), self.read()
        all_LC[:, first : first + rows_LC.shape[1]] = rows_LC
        if all_LC.untyped_storage().data_ptr() != view.untyped_storage().data_ptr():
            view.copy_(all_LC.view(view.shape))  # no view of such strides: a copy was written to

    def _view(self) -> Tensor:
        assert self.local is not None
        view = real_view(self.local)
        return view if self.axis.dim is None else view.movedim(self.axis.dim, 0)


def open_part(gradient: Any, parameter: Any, axis: Axis, metric: Metric, name: str) -> Part | None:
    """What this rank has to do with a gradient, or with a parameter that has none now; None if it is not on its mesh.

    Args:
        gradient: a DTensor, or None.
        parameter: the DTensor that tells the layout where there is no gradient.
        axis, metric, name: of the parameter.
    """
    tensor: DTensor = parameter if gradient is None else gradient
    if tensor.device_mesh.get_coordinate() is None:
        return None
    placing = Placing.of(tensor, axis, f"the gradient of {name!r}")
    local = None if gradient is None else local_of(gradient)
    parts = 2 if tensor.is_complex() else 1
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    directed = 0 if axis.dim is None else axis.dim
    others = tuple(dim for dim in range(tensor.dim()) if dim != directed)
    columns = parts if axis.dim is None else parts * math.prod(map(placing.held, others))
    team, dealt = None, None
    if type(metric) is Centralization:
        dims = placing.cutting(others)
        team = team_of(placing.mesh, dims) if dims else None
    elif (dims := placing.cutting((directed,))) and type(metric) is not Identity and columns:
        team = team_of(placing.mesh, dims)
        runs = deal(placing.shape[directed], tuple(cut for _, cut in placing.cuts[directed]), team.seats)
        stretch = math.prod(placing.shape[1:]) if axis.dim is None else 1
        dealt = rows(axis.length(placing.shape), stretch, runs)
        if not dealt.slots:  # groups of a convolution that fall on the ranks as wholes
            team, dealt = None, None
    return Part(name, axis, metric, local, dtype, tensor._local_tensor.device, placing, team, dealt, columns, parts)


def check(tensor: Any, axis: Axis, what: str) -> None:
    """Raise if a DTensor is laid out in a way that cannot be directed along this axis."""
    Placing.of(tensor, axis, what)


def local_of(tensor: Any) -> Tensor:
    """The memory of a DTensor on this rank; whatever is written to it is written to the DTensor."""
    with torch.no_grad():
        local: Any = tensor.to_local()
    # The result of a collective that may still be under way.
    return local.wait() if isinstance(local, AsyncCollectiveTensor) else local


def real_view(tensor: Tensor) -> Tensor:
    """A complex tensor as its real and imaginary parts, side by side. A real operator acts on both."""
    if not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)


def _unknown(tensor: DTensor, what: str, why: str) -> ValueError:
    return ValueError(
        f"{what}, a DTensor of shape {tuple(tensor.shape)} with placements {tuple(tensor.placements)}, cannot be "
        f"directed: {why}. Allowed: Replicate, Shard, the strided shards of FSDP with tensor parallelism and Partial "
        "sums, as torch.distributed.tensor deals them out; Shard(0) alone for 'rasterized'. Redistribute it, or leave "
        "the parameter out with a predicate for layers"
    )
