"""Rank groups: the ranks that hold parts of the same columns, and the process group of their collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from riesz.sharded.watch import Describe, Watch


@dataclass(frozen=True, eq=False)
class RankGroup:
    """The ranks of a mesh that differ from this one in some of its dims only.

    Attributes:
        process_group: their process group.
        rank: the rank of this process within it.
        coordinates: by rank of the group, the coordinates on those dims.
        device: the device of the group's collectives; gradients may be elsewhere (CPU offload).
        watch: of the mesh.
    """

    process_group: Any
    rank: int
    coordinates: tuple[tuple[int, ...], ...]
    device: torch.device
    watch: Watch

    @property
    def size(self) -> int:
        return len(self.coordinates)

    def wait(self, pending: Any, describe: Describe) -> None:
        """Wait for a collective of this group."""
        self.watch.wait(pending, self.device.type == "cpu", describe)


_groups: dict[tuple[DeviceMesh, tuple[int, ...]], tuple[object, RankGroup]] = {}
_process_groups: dict[tuple[int, ...], tuple[object, Any]] = {}
_watches: dict[tuple[int, ...], tuple[object, Watch]] = {}
"""All with the world they belong to: entries of a destroyed world are replaced."""


def rank_group(mesh: DeviceMesh, dims: tuple[int, ...]) -> RankGroup:
    """The group of this rank on these mesh dims. All of its ranks make the first call, or none does."""
    world: object = dist.group.WORLD
    if (known := _groups.get((mesh, dims))) is None or known[0] is not world:
        known = _groups[mesh, dims] = (world, _rank_group(mesh, dims))
    return known[1]


def _rank_group(mesh: DeviceMesh, dims: tuple[int, ...]) -> RankGroup:
    here = mesh.get_coordinate()
    assert here is not None  # ranks outside the mesh hold no part of the tensor and never ask
    members: dict[int, tuple[int, ...]] = {}
    for varied in torch.cartesian_prod(*(torch.arange(mesh.size(dim)) for dim in dims)).view(-1, len(dims)).tolist():
        coordinate = list(here)
        for dim, value in zip(dims, varied, strict=True):
            coordinate[dim] = value
        members[int(mesh.mesh[tuple(coordinate)])] = tuple(varied)
    process_group = _process_group(mesh, dims, tuple(sorted(members)))
    ranks = dist.get_process_group_ranks(process_group)
    device = torch.device(mesh.device_type)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    coordinates = tuple(members[rank] for rank in ranks)
    return RankGroup(process_group, ranks.index(dist.get_rank()), coordinates, device, watch_of(mesh))


def watch_of(mesh: DeviceMesh) -> Watch:
    """The watch of the ranks of a mesh."""
    world: object = dist.group.WORLD
    ranks = tuple(mesh.mesh.flatten().tolist())
    if (known := _watches.get(ranks)) is None or known[0] is not world:
        known = _watches[ranks] = (world, Watch(ranks))
    return known[1]


def _process_group(mesh: DeviceMesh, dims: tuple[int, ...], ranks: tuple[int, ...]) -> Any:
    """The process group of these ranks: the mesh's own, the world's, or a new one."""
    if len(dims) == 1:
        return mesh.get_group(dims[0])
    world: Any = dist.group.WORLD
    if ranks == tuple(dist.get_process_group_ranks(world)):
        return world
    if (known := _process_groups.get(ranks)) is None or known[0] is not world:
        # Only its members take part: ranks of other pipeline stages may never call this.
        known = _process_groups[ranks] = (world, dist.new_group(list(ranks), use_local_synchronization=True))
    return known[1]
