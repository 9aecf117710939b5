"""Directing DTensors: a rank directs whole columns by itself, and divided ones together with its rank groups.

Requirements it meets:
- exact: the result is that of one process, whatever the layout, uneven and empty shards included;
- one collective per rank group and strategy for all parameters of a step; none for plain tensors;
- every rank of a group makes the same collectives in the same order: they follow from the layout of all parameters,
  which every rank knows, never from what one of them holds;
- written to the memory of the local parts: placements, strides and optimizer state stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.backends import direct_ as direct_columns_
from riesz.control import Control, controlled, norm_ratio, put_back
from riesz.control import products as products_of
from riesz.layout.axis import Axis, compute_dtype
from riesz.metrics import Operator
from riesz.sharded import collectives
from riesz.sharded.batching import batch_columns
from riesz.sharded.groups import RankGroup, rank_group
from riesz.sharded.layout import LocalPart, open_part
from riesz.sharded.strategies import CENTRING, choose


@dataclass(frozen=True)
class Item:
    """A parameter to direct: its gradient, a DTensor, or None where it has none now."""

    name: str
    parameter: Any
    gradient: Any
    axis: Axis
    metric: Operator


@torch.no_grad()
def direct_(items: Sequence[Item], backend: str, control: Control = None, recording: bool = False) -> list[Tensor]:
    """Direct gradients in place. Every rank passes the same items, in the same order.

    Args:
        items: the parameters to direct, with those that have no gradient at the moment.
        backend: the backend of what a rank computes by itself.
        control: None, "norm" or "permuted".
        recording: whether to return what diagnostics need.

    Returns:
        |f|^2, |g|^2 and <f, g> of every gradient present, if `recording`, else nothing.
    """
    opened = [open_part(item.gradient, item.parameter, item.axis, item.metric, item.name) for item in items]
    parts = [part for part in opened if part is not None]
    _reduce_partial(parts)
    originals = [part.local.clone() if recording and part.local is not None else None for part in parts]
    if control == "norm":
        _direct_with_norms_kept_(parts, backend)
    else:
        _solve_(parts, backend, permuted=control == "permuted")
    products = iter(_products(parts, originals) if recording else ())
    _share_partial(parts)
    if not recording:
        return []
    # A rank that is not on the mesh of a gradient knows nothing of it.
    by_item = [torch.zeros(3, dtype=torch.float64) if part is None else next(products) for part in opened]
    return [products for products, item in zip(by_item, items, strict=True) if item.gradient is not None]


def _solve_(parts: Sequence[LocalPart], backend: str, permuted: bool) -> None:
    _solve_alone_([part for part in parts if part.group is None], backend, permuted)
    work: dict[tuple[RankGroup, Any], list[Any]] = {}
    for part in parts:
        if part.group is not None and part.metric.mixes_columns:
            work.setdefault((part.group, CENTRING), []).append(part)
    batches = batch_columns(part for part in parts if part.rows is not None)
    for batch, strategy in zip(batches, choose(batches, permuted), strict=True):
        work.setdefault((batch.group, strategy), []).append(batch)
    for (group, strategy), together in work.items():
        strategy.run_within_limit(group, together, backend, permuted)


def _solve_alone_(parts: Sequence[LocalPart], backend: str, permuted: bool) -> None:
    by_metric: dict[int, list[LocalPart]] = {}
    for part in parts:
        if part.local is not None and part.local.numel():
            by_metric.setdefault(id(part.metric), []).append(part)
    for same_metric in by_metric.values():
        homes = [part.open() for part in same_metric]
        names = [part.name for part in same_metric]
        columns = homes
        if permuted:
            columns = [controlled(home, name, "permuted") for home, name in zip(homes, names, strict=True)]
        direct_columns_(columns, same_metric[0].metric, backend)
        if permuted:
            for home, copy, name in zip(homes, columns, names, strict=True):
                put_back(home, copy, name, "permuted")


# -- partial gradients -------------------------------------------------------------------------------------------------
# Linear as A is, each share of a sum could be directed by itself. Reduced first, the result is rounded as one process
# rounds it, and what is not linear (the control "norm", diagnostics) sees the gradient and not its shares.


def _reduce_partial(parts: Sequence[LocalPart]) -> None:
    """Write the whole gradient in place of this rank's share: one all-reduce per rank group and dtype."""
    together: dict[tuple[RankGroup, torch.dtype, torch.device], list[LocalPart]] = {}
    for part in parts:
        if part.layout.partial and part.local is not None:
            group = rank_group(part.layout.mesh, tuple(dim for dim, _ in part.layout.partial))
            together.setdefault((group, part.local.dtype, part.local.device), []).append(part)
    for (group, _, device), same_dtype in together.items():
        locals_ = [part.local for part in same_dtype if part.local is not None]
        flat = torch.cat([local.reshape(-1) for local in locals_]).to(group.device)
        dist.all_reduce(flat, group=group.process_group)
        sums = torch.split(flat.to(device), [local.numel() for local in locals_])
        for part, local, total in zip(same_dtype, locals_, sums, strict=True):
            local.copy_((total / _partial_ranks(part, "avg")).view(local.shape))


def _share_partial(parts: Sequence[LocalPart]) -> None:
    """Leave each rank its share of the directed gradient, so that the placement is true again."""
    for part in parts:
        if part.local is not None and (ranks := _partial_ranks(part, "sum")) > 1:
            part.local.div_(ranks)


def _partial_ranks(part: LocalPart, reduce_op: str) -> int:
    return math.prod(part.layout.mesh.size(dim) for dim, op in part.layout.partial if op == reduce_op)


# -- sums over whole gradients -----------------------------------------------------------------------------------------


def _direct_with_norms_kept_(parts: Sequence[LocalPart], backend: str) -> None:
    """Direct copies in the precision of the computation, so that gradients are rounded once, and rescale them."""
    homes = [part.local for part in parts]
    for part, home in zip(parts, homes, strict=True):
        part.dtype = wide = compute_dtype(part.dtype)
        if home is not None:
            part.local = home.to(wide.to_complex() if home.is_complex() else wide, copy=True)
    _solve_(parts, backend, permuted=False)
    for part, home, products in zip(parts, homes, _products(parts, homes), strict=True):
        if home is not None and part.local is not None:
            norm_f, norm_g = products[:2].sqrt().unbind()
            home.copy_(part.local * norm_ratio(norm_f, norm_g).to(part.dtype))
        part.local = home


def _products(parts: Sequence[LocalPart], originals: Sequence[Tensor | None]) -> list[Tensor]:
    """|f|^2, |g|^2 and <f, g> of every gradient, over all of its shards."""
    products = []
    for part, f in zip(parts, originals, strict=True):
        zeros = torch.zeros(3, dtype=torch.float64, device=part.device)
        products.append(zeros if f is None or part.local is None else products_of(f, part.local))
    together: dict[RankGroup, list[int]] = {}
    for index, part in enumerate(parts):
        if dims := part.layout.cutting(tuple(range(len(part.layout.shape)))):
            together.setdefault(rank_group(part.layout.mesh, dims), []).append(index)
    for group, indices in together.items():
        token = collectives.digest([parts[index].local is not None for index in indices])
        absent = [parts[index].name for index in indices if parts[index].local is None]
        description = f"sums over whole gradients; without a gradient: {', '.join(absent) or 'none'}"
        totals = collectives.all_reduce(group, token, [products[index] for index in indices], description.__str__)
        for index, total in zip(indices, totals, strict=True):
            products[index] = total
    return products
