"""Whether gradients are finite, on all ranks: all of them must skip a step, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.sharded.groups import team_of
from riesz.sharded.layout import local_of


def all_finite(gradients: Sequence[Any]) -> Tensor:
    """A 0-d bool that is the same on every rank of the DTensors' meshes: one all-reduce per mesh."""
    by_mesh: dict[Any, list[Tensor]] = {}
    for gradient in gradients:
        by_mesh.setdefault(gradient.device_mesh, []).append(torch.isfinite(local_of(gradient)).all())
    finite = []
    for mesh, flags in by_mesh.items():
        flag = torch.stack(flags).all()
        dims = tuple(dim for dim in range(mesh.ndim) if mesh.size(dim) > 1)
        if dims and mesh.get_coordinate() is not None:
            team = team_of(mesh, dims)
            shared = flag.to(team.device, torch.int32)
            dist.all_reduce(shared, dist.ReduceOp.MIN, group=team.group)
            flag = shared.to(flag.device, torch.bool)
        finite.append(flag)
    return torch.stack([flag.to(finite[0].device) for flag in finite]).all()
