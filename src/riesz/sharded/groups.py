"""Who works together: the ranks that hold parts of the same columns, and the process group they talk through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, eq=False)
class Team:
    """The ranks of a mesh that differ in some of its dims only, as this rank sees them.

    Attributes:
        group: their process group.
        place: where this rank stands in it.
        seats: by rank of the group, its coordinates on those dims.
        device: where the group's collectives work; gradients may live elsewhere (CPU offload).
        agreed: the digests that were found equal on all ranks; see wire.py.
    """

    group: Any
    place: int
    seats: tuple[tuple[int, ...], ...]
    device: torch.device
    agreed: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        return len(self.seats)


_teams: dict[tuple[DeviceMesh, tuple[int, ...]], tuple[object, Team]] = {}
_made: dict[tuple[int, ...], tuple[object, Any]] = {}
"""Both with the world they were made in: what belongs to a destroyed one is made anew."""


def team_of(mesh: DeviceMesh, dims: tuple[int, ...]) -> Team:
    """The team of this rank on these mesh dims. Its first call is made by all of its ranks or by none."""
    world: object = dist.group.WORLD
    if (known := _teams.get((mesh, dims))) is None or known[0] is not world:
        known = _teams[mesh, dims] = (world, _team(mesh, dims))
    return known[1]


def _team(mesh: DeviceMesh, dims: tuple[int, ...]) -> Team:
    here = mesh.get_coordinate()
    assert here is not None  # whoever holds no part of the tensor was sent home before
    members: dict[int, tuple[int, ...]] = {}
    for seat in torch.cartesian_prod(*(torch.arange(mesh.size(dim)) for dim in dims)).view(-1, len(dims)).tolist():
        place = list(here)
        for dim, coordinate in zip(dims, seat, strict=True):
            place[dim] = coordinate
        members[int(mesh.mesh[tuple(place)])] = tuple(seat)
    group = _group(mesh, dims, tuple(sorted(members)))
    ranks = dist.get_process_group_ranks(group)
    device = torch.device(mesh.device_type)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    return Team(group, ranks.index(dist.get_rank()), tuple(members[rank] for rank in ranks), device)


def _group(mesh: DeviceMesh, dims: tuple[int, ...], ranks: tuple[int, ...]) -> Any:
    """The group of these ranks: the mesh's own, the world's, or one made for them."""
    if len(dims) == 1:
        return mesh.get_group(dims[0])
    world: Any = dist.group.WORLD
    if ranks == tuple(dist.get_process_group_ranks(world)):
        return world
    if (known := _made.get(ranks)) is None or known[0] is not world:
        # Only its members take part: ranks of other pipeline stages may never come here.
        known = _made[ranks] = (world, dist.new_group(list(ranks), use_local_synchronization=True))
    return known[1]
