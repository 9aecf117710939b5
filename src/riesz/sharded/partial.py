"""Partial gradients: every rank of a mesh dim holds a share of the sum. They are reduced before they are directed.

Linear as A is, each share could be directed by itself. Reduced first, the result is rounded as one process rounds it,
and what is not linear (the control "norm", diagnostics) sees the gradient and not its shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from riesz.sharded.groups import team_of
from riesz.sharded.layout import Part


def reduce(parts: Sequence[Part]) -> None:
    """Put the whole gradient in place of this rank's share: one all-reduce per team and dtype."""
    together: dict[object, list[Part]] = {}
    for part in parts:
        if part.placing.partial and part.local is not None:
            team = team_of(part.placing.mesh, tuple(dim for dim, _ in part.placing.partial))
            together.setdefault((team, part.local.dtype, part.local.device), []).append(part)
    for (team, *_), its_parts in together.items():  # type: ignore[misc]
        locals_ = [part.local for part in its_parts if part.local is not None]
        flat = torch.cat([local.reshape(-1) for local in locals_]).to(team.device)
        dist.all_reduce(flat, group=team.group)
        sums = torch.split(flat.to(locals_[0].device), [local.numel() for local in locals_])
        for part, local, total in zip(its_parts, locals_, sums, strict=True):
            local.copy_((total / _ranks(part, "avg")).view(local.shape))


def share_out(parts: Sequence[Part]) -> None:
    """Leave each rank its share of the directed gradient, so that the placement is true again."""
    for part in parts:
        if part.local is not None and (ranks := _ranks(part, "sum")) > 1:
            part.local.div_(ranks)


def _ranks(part: Part, kind: str) -> int:
    return math.prod(part.placing.mesh.size(dim) for dim, reduce_op in part.placing.partial if reduce_op == kind)
