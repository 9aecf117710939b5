"""Directing DTensors: whoever has whole columns directs them alone, the others in teams.

Requirements it meets:
- exact: the result is that of one process, whatever the layout, uneven and empty shards included;
- one collective per team and kind for all parameters of a step; none for plain tensors (see `cost.py`);
- every rank of a team makes the same collectives in the same order: what decides is the layout of all, which every
  rank knows, never what one of them holds;
- written to the memory of the local parts: placements, strides and optimizer state stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from riesz.backends import direct_ as direct_jobs_
from riesz.control import Control, controlled, put_back
from riesz.layout.axis import Axis, compute_dtype
from riesz.metrics import Centralization, Metric, ReweightedL2
from riesz.sharded import collectives as wire
from riesz.sharded import partial
from riesz.sharded.batching import Stack, stacked
from riesz.sharded.centring import by_centring
from riesz.sharded.cost import gather_bytes, transpose_bytes
from riesz.sharded.groups import Team, team_of
from riesz.sharded.layout import Part, open_part
from riesz.sharded.low_rank import low_rank
from riesz.sharded.strategies import by_reduction, by_sums, by_transposing

MAX_BYTES = 256 << 20
"""What arrives in one collective; larger models take several."""


@dataclass(frozen=True)
class Item:
    """A parameter to direct: its gradient, a DTensor, or None where it has none now."""

    name: str
    parameter: Any
    gradient: Any
    axis: Axis
    metric: Metric


@torch.no_grad()
def direct_(items: Sequence[Item], backend: str, control: Control = None, recording: bool = False) -> list[Tensor]:
    """Direct gradients in place. Every rank gives the same items, in the same order.

    Args:
        items: what to direct, with parameters that have no gradient at the moment.
        backend: who computes what a rank can compute alone.
        control: None, "norm" or "permuted".
        recording: whether to return what diagnostics need.

    Returns:
        |f|^2, |g|^2 and <f, g> of every gradient that is there, if `recording`, else nothing.
    """
    opened = [open_part(item.gradient, item.parameter, item.axis, item.metric, item.name) for item in items]
    parts = [part for part in opened if part is not None]
    partial.reduce(parts)
    originals = [part.local.clone() if recording and part.local is not None else None for part in parts]
    if control == "norm":
        _direct_with_norms_kept_(parts, backend)
    else:
        _solve_(parts, backend, permuted=control == "permuted")
    products = iter(_products(parts, originals) if recording else ())
    partial.share_out(parts)
    if not recording:
        return []
    # A rank that is not on the mesh of a gradient has nothing to tell of it.
    told = [torch.zeros(3, dtype=torch.float64) if part is None else next(products) for part in opened]
    return [one for one, item in zip(told, items, strict=True) if item.gradient is not None]


def _solve_(parts: Sequence[Part], backend: str, permuted: bool) -> None:
    _solve_alone_([part for part in parts if part.team is None], backend, permuted)
    waiting: dict[tuple[Team, str], list[Any]] = {}
    for part in parts:
        if part.team is not None and type(part.metric) is Centralization:
            waiting.setdefault((part.team, "centring"), []).append(part)
    stacks = stacked(part for part in parts if part.rows is not None)
    thrifty = _cheaper_by_sums(stacks)
    for stack in stacks:
        if type(stack.metric) is ReweightedL2:
            way = "reduction"
        else:
            way = "sums" if stack.team in thrifty and not permuted and _has_low_rank(stack) else "transposing"
        waiting.setdefault((stack.team, way), []).append(stack)
    for (team, way), work in waiting.items():
        if way == "centring":
            by_centring(team, work)
        elif way == "reduction":
            _in_turns(work, lambda stack: 8 * stack.columns * len(stack.rows.shared), team, by_reduction, backend)
        elif way == "sums":
            _in_turns(work, _gathered, team, by_sums, backend)
        else:
            for some in _limited(work, lambda stack: transpose_bytes(stack.rows, stack.columns, stack.dtype)):
                by_transposing(team, some, backend, permuted)


def _solve_alone_(parts: Sequence[Part], backend: str, permuted: bool) -> None:
    by_metric: dict[int, list[Part]] = {}
    for part in parts:
        if part.local is not None and part.local.numel():
            by_metric.setdefault(id(part.metric), []).append(part)
    for its_parts in by_metric.values():
        homes = [part.job() for part in its_parts]
        names = [part.name for part in its_parts]
        jobs = homes
        if permuted:
            jobs = [controlled(home, name, "permuted") for home, name in zip(homes, names, strict=True)]
        direct_jobs_(jobs, its_parts[0].metric, backend)
        if permuted:
            for home, job, name in zip(homes, jobs, names, strict=True):
                put_back(home, job, name, "permuted")


# -- which way -------------------------------------------------------------------------------------------------------


def _has_low_rank(stack: Stack) -> bool:
    return low_rank(stack.metric, stack.rows.n) is not None


def _gathered(stack: Stack) -> int:
    factors = low_rank(stack.metric, stack.rows.n)
    assert factors is not None
    return gather_bytes(factors, stack.rows, stack.columns, stack.dtype)


def _cheaper_by_sums(stacks: Sequence[Stack]) -> set[Team]:
    """Teams for which, over all their stacks, sums are fewer bytes than columns there and back."""
    balance: dict[Team, int] = {}
    for stack in stacks:
        if _has_low_rank(stack):
            saved = transpose_bytes(stack.rows, stack.columns, stack.dtype) - _gathered(stack)
            balance[stack.team] = balance.get(stack.team, 0) + saved
    return {team for team, saved in balance.items() if saved >= 0}


def _limited(stacks: Iterable[Stack], size: Callable[[Stack], int]) -> Iterator[list[Stack]]:
    """Stacks in lots whose collectives stay below the limit; a stack that is larger by itself is a lot of its own."""
    lot: list[Stack] = []
    total = 0
    for stack in stacks:
        if lot and total + size(stack) > MAX_BYTES:
            yield lot
            lot, total = [], 0
        lot.append(stack)
        total += size(stack)
    yield lot


def _in_turns(
    stacks: Iterable[Stack],
    size: Callable[[Stack], int],
    team: Team,
    way: Callable[[Team, Sequence[Stack], str], None],
    backend: str,
) -> None:
    for some in _limited(stacks, size):
        way(team, some, backend)


# -- sums over whole gradients -----------------------------------------------------------------------------------------


def _direct_with_norms_kept_(parts: Sequence[Part], backend: str) -> None:
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
            home.copy_(part.local * torch.where(norm_g == 0, torch.ones_like(norm_g), norm_f / norm_g).to(part.dtype))
        part.local = home


def _products(parts: Sequence[Part], originals: Sequence[Tensor | None]) -> list[Tensor]:
    """|f|^2, |g|^2 and <f, g> of every gradient, over all of its shards."""
    found = []
    for part, f in zip(parts, originals, strict=True):
        nothing = torch.zeros(3, dtype=torch.float64, device=part.device)
        found.append(nothing if f is None else _local_products(f, part))
    together: dict[Team, list[int]] = {}
    for index, part in enumerate(parts):
        if dims := part.placing.cutting(tuple(range(len(part.placing.shape)))):
            together.setdefault(team_of(part.placing.mesh, dims), []).append(index)
    for team, indices in together.items():
        token = wire.digest([parts[index].local is not None for index in indices])
        absent = [parts[index].name for index in indices if parts[index].local is None]
        told = f"sums over whole gradients; without a gradient: {', '.join(absent) or 'none'}"
        totals = wire.all_reduce(team, token, [found[index] for index in indices], told.__str__)
        for index, total in zip(indices, totals, strict=True):
            found[index] = total
    return found


def _local_products(f: Tensor, part: Part) -> Tensor:
    assert part.local is not None
    wide = torch.complex128 if f.is_complex() else torch.float64
    a, b = f.to(wide).flatten(), part.local.to(wide).flatten()
    return torch.stack([torch.vdot(x, y).real for x, y in ((a, a), (b, b), (a, b))])
