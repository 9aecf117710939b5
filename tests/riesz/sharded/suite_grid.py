"""Every metric, direction, length and placement: the same numbers as one process, in place, layout unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import riesz
from cases import METRICS, TOLERANCE
from riesz.backends import direct_
from riesz.layout.axis import Axis, ColumnView
from riesz.sharded import ShardedGradient
from riesz.sharded import direct_ as direct_sharded_

OUTPUTS, SOME_OUTPUTS = [1, 2, 3, 5, 10, 64, 513], [1, 5, 64]
# Gradients of mean zero, damped a thousandfold to a millionfold. The means of the shards cancel to a few units of
# rounding of the gradient itself: nothing in float32, and in float64 so many times more of what is left.
STRONG = [riesz.Sobolev(lam=100.0), riesz.SobolevTilde(lam=100.0, blend=0.0), riesz.LaplacianSmoothing(sigma=1e6)]


@dataclass(frozen=True)
class Case:
    """A weight and its directed axis: (outputs, inputs, kernel), groups where the outputs can be divided."""

    name: str
    shape: tuple[int, ...]
    axis: Axis


def cases(lengths: list[int]) -> list[Case]:
    out = []
    for outputs in lengths:
        out.append(Case(f"output {outputs}", (outputs, 3, 2), Axis(0)))
        out.append(Case(f"input {outputs}", (4, outputs, 2), Axis(1)))
        out.append(Case(f"rasterized {outputs}", (outputs, 3), Axis(None)))
        out.append(Case(f"1-d {outputs}", (outputs,), Axis(0)))
        # Groups that straddle shards, whatever the number of ranks; as outputs, and as rows of a transposed conv.
        out.append(Case(f"3 groups of {outputs}", (3 * outputs, 2, 1), Axis(0, groups=3)))
        out.append(Case(f"transposed, 3 groups {outputs}", (6, outputs, 2), Axis(1, groups=3)))
        out.append(Case(f"fan-in {outputs}", (4, outputs, 2), Axis(0, fan_in=True)))
        out.append(Case(f"transposed fan-in, 3 groups {outputs}", (3 * outputs, 2, 2), Axis(1, 3, fan_in=True)))
    return out


def placements(world: int) -> list[tuple[tuple[int, ...], tuple]]:
    out = [((world,), (p,)) for p in (Replicate(), Shard(0), Shard(1), Partial(), Partial("avg"))]
    for mesh in ((2, world // 2), (world // 2, 2)) if world % 2 == 0 else ((world, 1), (1, world)):
        out += [
            (mesh, (Replicate(), Shard(0))),
            (mesh, (Shard(0), Replicate())),
            (mesh, (_StridedShard(0, split_factor=mesh[1]), Shard(0))),
            (mesh, (Shard(0), Shard(1))),
            (mesh, (Shard(0), Shard(0))),
            (mesh, (Partial(), Shard(0))),
            (mesh, (Shard(1), Shard(0))),
        ]
    return list(dict.fromkeys(out))


def _on_grid(values: torch.Tensor) -> torch.Tensor:
    """Rounded so that sums of a few of them are exact in float32."""
    if values.is_complex():
        return torch.view_as_complex(_on_grid(torch.view_as_real(values)))
    return (values * 4096).round() / 4096


def distribute(whole: torch.Tensor, mesh, places) -> DTensor:
    """A DTensor of these placements; the shards are cut by torch itself."""
    local, generator = whole, torch.Generator().manual_seed(7)
    for dim, place in enumerate(places):
        ranks, here = mesh.size(dim), mesh.get_coordinate()[dim]
        if isinstance(place, (Shard, _StridedShard)):
            local = place._split_tensor(local, ranks, with_padding=False)[0][here]
        elif isinstance(place, Partial):
            # Shares that add up to the whole, or average to it, exactly: the order of adding them must not matter.
            wide = torch.complex128 if local.is_complex() else torch.float64
            shares = [_on_grid(torch.randn(local.shape, generator=generator, dtype=wide)) for _ in range(ranks - 1)]
            total = _on_grid(local.to(wide)) * (ranks if place.reduce_op == "avg" else 1)
            local = [*shares, total - sum(shares, torch.zeros(()))][here].to(whole.dtype)
    return DTensor.from_local(
        local.clone(memory_format=torch.contiguous_format),
        mesh,
        places,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


@cache
def whole_gradient(case: Case, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(case.name))
    whole = torch.randn(case.shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    # The mean of a gradient before a softmax is zero along the outputs; what is left of it must not be rounding.
    return (whole - whole.mean(0) if case.shape[0] > 1 else whole).to(dtype)


@cache
def directed(metric: riesz.Metric, case: Case, dtype: torch.dtype) -> torch.Tensor:
    return one_process(metric, case, whole_gradient(case, dtype))


def one_process(metric: riesz.Metric, case: Case, gradient: torch.Tensor) -> torch.Tensor:
    wanted = gradient.clone()
    direct_([ColumnView.open(wanted, case.axis, metric.mixes_columns)], metric, "auto")
    return wanted


def fits(case: Case, places, metric: riesz.Metric) -> bool:
    dims = {place.dim for place in places if not isinstance(place, (Replicate, Partial))}
    if max(dims, default=0) >= len(case.shape) or dims & {*case.axis.dims(len(case.shape))[1:]}:
        return False
    return not (isinstance(metric, riesz.Centralization) and metric.skip_reason(case.shape, case.axis))


def compare(cases, metric, dtype, mesh, places, errors) -> int:
    chosen = [case for case in cases if fits(case, places, metric)]
    gradients = [distribute(whole_gradient(case, dtype), mesh, places) for case in chosen]
    partial = any(place.is_partial() for place in places)
    # Shares are rounded as they are cut: what counts is what they add up to.
    sums = [gradient.full_tensor() if partial else None for gradient in gradients]
    locals_ = [gradient.to_local() for gradient in gradients]
    memory = [(local.data_ptr(), local.stride()) for local in locals_]
    opened = zip(chosen, gradients, strict=True)
    direct_sharded_([ShardedGradient(case.name, g, g, case.axis, metric) for case, g in opened], "auto")
    for case, gradient, before, total in zip(chosen, gradients, memory, sums, strict=True):
        local = gradient.to_local()
        wanted = directed(metric, case, dtype) if total is None else one_process(metric, case, total)
        assert tuple(gradient.placements) == tuple(places), "the placements changed"
        assert (local.data_ptr(), local.stride()) == before, "the memory changed"
        if partial:
            got, own = gradient.full_tensor(), wanted
        else:
            got, own = local, distribute(wanted, mesh, places).to_local()
        error = (got - own).abs().max().item() / (wanted.abs().max().item() or 1.0) if own.numel() else 0.0
        description = f"{metric!r} {dtype} {case.name} {places}: {error:.2e}"
        damped = whole_gradient(case, dtype).abs().max().item() / (wanted.abs().max().item() or 1.0)
        limit = max(TOLERANCE[dtype], 4e-15 * damped) if metric in STRONG else TOLERANCE[dtype]
        assert error <= limit, description
        key = f"{'strong ' * (metric in STRONG)}{type(metric).__name__} {str(dtype).removeprefix('torch.')}"
        errors[key] = max(errors.get(key, 0.0), error)
    return len(chosen)


FLOATS = (torch.float32, torch.float64)
QUICK = [
    (riesz.Identity(scale=0.5, blend=2.0), FLOATS[:1]),
    (riesz.ReweightedL2(lam=20.0, scale=0.25, blend=0.5), FLOATS[:1]),
    (riesz.Sobolev(), FLOATS),
    (riesz.SobolevTilde(lam=0.2, blend=0.0, riemann=True), FLOATS),
    (riesz.LaplacianSmoothing(), FLOATS[:1]),
    (riesz.Centralization(), FLOATS[:1]),
]
FULL = [(metric, FLOATS) for metric in (*METRICS, *STRONG, riesz.Centralization())]
FULL += [(metric, (torch.complex64, torch.bfloat16)) for metric, _ in QUICK[:-1]]
FULL += [(riesz.Centralization(), (torch.bfloat16,))]


def run(rank: int, world: int, folder, full: bool) -> dict:
    errors: dict[str, float] = {}
    chosen = cases(OUTPUTS if full else SOME_OUTPUTS)
    meshes: dict = {}
    count = 0
    for mesh_shape, places in placements(world) if full or world == 4 else placements(world)[:8]:
        if mesh_shape not in meshes:
            meshes[mesh_shape] = init_device_mesh("cpu", mesh_shape)
        for metric, dtypes in FULL if full else QUICK:
            for dtype in dtypes:
                if dtype == torch.bfloat16 and any(place.is_partial() for place in places):
                    continue  # the shares themselves are rounded to 8 bits
                count += compare(chosen, metric, dtype, meshes[mesh_shape], places, errors)
    largest = torch.tensor(list(errors.values()), dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return {"comparisons": count, "largest errors": dict(zip(errors, largest.tolist(), strict=True))}
