"""Centralization where the axes it averages over are divided: one sum per output, over all ranks of the team.

Shape suffixes: R rows of dim 0, G groups, N outputs of this rank, P real parts of a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from riesz.sharded import collectives as wire
from riesz.sharded.groups import Team
from riesz.sharded.layout import Part, real_view


def by_centring(team: Team, parts: Sequence[Part]) -> None:
    """Take its mean off each output, for parts whose passengers are dealt out to this team."""
    token = wire.digest([(part.placing.shape, part.local is not None) for part in parts])
    absent = ", ".join(part.name for part in parts if part.local is None)
    sums = [_sums(part) for part in parts]
    totals = wire.all_reduce(team, token, sums, lambda: f"Centralization; without a gradient: {absent or 'none'}")
    for part, totals_GNP in zip(parts, totals, strict=True):
        if part.local is not None:
            means_GNP = totals_GNP * (part.axis.groups / part.axis.columns(part.placing.shape))
            view = _view(part.local)
            view.copy_(view.double() - _spread(part, means_GNP, view.dim()))


def _sums(part: Part) -> Tensor:
    axis, outputs = part.axis, part.placing.held(_dim(part))
    groups = 1 if axis.dim == 0 else axis.groups
    sums_GNP = torch.zeros(groups, outputs, part.parts, dtype=torch.float64, device=part.device)
    if part.local is None:
        return sums_GNP
    view = _view(part.local)
    kept = (0, _dim(part), view.dim() - 1)
    summed = [dim for dim in range(view.dim()) if dim not in kept]
    by_row = view.sum(summed, dtype=torch.float64) if summed else view.double()
    if axis.dim == 0:
        return by_row.unsqueeze(0)
    return sums_GNP.index_add_(0, _group_of_row(part), by_row)


def _spread(part: Part, means_GNP: Tensor, dims: int) -> Tensor:
    """The means in the shape in which they are taken off."""
    means = means_GNP.squeeze(0) if part.axis.dim == 0 else means_GNP[_group_of_row(part)]
    shape = [1] * dims
    shape[0], shape[-1] = means.shape[0], means.shape[-1]
    if part.axis.dim != 0:
        shape[_dim(part)] = means.shape[1]
    return means.view(shape)


def _group_of_row(part: Part) -> Tensor:
    """The group that each row of dim 0 belongs to, where groups are blocks of dim 0 and not of the outputs."""
    rows = torch.cat([torch.arange(run.start, run.stop) for run in part.placing.runs[0]] or [torch.arange(0)])
    return (rows // (part.placing.shape[0] // part.axis.groups)).to(part.device)


def _dim(part: Part) -> int:
    assert part.axis.dim is not None  # rasterized, there is nothing to average over
    return part.axis.dim


def _view(local: Tensor) -> Tensor:
    """With the parts of a number as the last dim."""
    return real_view(local) if local.is_complex() else local.unsqueeze(-1)
