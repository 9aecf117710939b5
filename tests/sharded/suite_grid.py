"""Every metric, direction, length and placement: the same numbers as one process, in place, layout unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import riesz
from cases import METRICS, TOLERANCE, relative_error
from riesz.axis import Axis, Job
from riesz.precondition import direct_
from riesz.sharded import Item
from riesz.sharded import direct_ as direct_sharded_

OUTPUTS = [1, 2, 3, 5, 10, 64, 513]
STRONG = [riesz.Sobolev(lam=100.0), riesz.SobolevTilde(lam=100.0, blend=0.0), riesz.LaplacianSmoothing(sigma=1e6)]


@dataclass(frozen=True)
class Case:
    """A weight and its directed axis: (outputs, inputs, kernel), groups where the outputs can be divided."""

    name: str
    shape: tuple[int, ...]
    axis: Axis


def cases() -> list[Case]:
    found = []
    for outputs in OUTPUTS:
        found.append(Case(f"output {outputs}", (outputs, 3, 2), Axis(0)))
        found.append(Case(f"input {outputs}", (4, outputs, 2), Axis(1)))
        found.append(Case(f"rasterized {outputs}", (outputs, 3), Axis(None)))
        found.append(Case(f"1-d {outputs}", (outputs,), Axis(0)))
        # Groups that straddle shards, whatever the number of ranks; as outputs, and as rows of a transposed conv.
        found.append(Case(f"3 groups of {outputs}", (3 * outputs, 2, 1), Axis(0, groups=3)))
        found.append(Case(f"transposed, 3 groups {outputs}", (6, outputs, 2), Axis(1, groups=3)))
    return found


def placements(world: int) -> list[tuple[tuple[int, ...], tuple]]:
    found = [((world,), (p,)) for p in (Replicate(), Shard(0), Shard(1), Partial(), Partial("avg"))]
    for mesh in ((2, world // 2), (world // 2, 2)) if world % 2 == 0 else ((world, 1), (1, world)):
        found += [
            (mesh, (Replicate(), Shard(0))),
            (mesh, (Shard(0), Replicate())),
            (mesh, (_StridedShard(0, split_factor=mesh[1]), Shard(0))),
            (mesh, (Shard(0), Shard(1))),
            (mesh, (Shard(0), Shard(0))),
            (mesh, (Partial(), Shard(0))),
            (mesh, (Shard(1), Shard(0))),
        ]
    return list(dict.fromkeys(found))


def dealt_out(whole: torch.Tensor, mesh, places) -> DTensor:
    """A DTensor of these placements; the shards are cut by torch itself."""
    local, generator = whole, torch.Generator().manual_seed(7)
    for dim, place in enumerate(places):
        ranks, here = mesh.size(dim), mesh.get_coordinate()[dim]
        if isinstance(place, (Shard, _StridedShard)):
            local = place._split_tensor(local, ranks, with_padding=False)[0][here]
        elif isinstance(place, Partial):
            # Shares that add up to the whole, or average to it.
            shares = [torch.randn(local.shape, generator=generator, dtype=torch.float64) for _ in range(ranks - 1)]
            last = local.double() * (ranks if place.reduce_op == "avg" else 1) - sum(shares, torch.zeros(()))
            local = [*shares, last][here].to(whole.dtype)
    return DTensor.from_local(
        local.clone(memory_format=torch.contiguous_format),
        mesh,
        places,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def fits(case: Case, places) -> bool:
    dims = {place.dim for place in places if not isinstance(place, (Replicate, Partial))}
    return max(dims, default=0) < len(case.shape) and (case.axis.dim is not None or dims <= {0})


def whole_gradient(case: Case, dtype: torch.dtype, places) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(case.name))
    whole = torch.randn(case.shape, generator=generator, dtype=torch.float64)
    # The mean of a gradient before a softmax is zero along the outputs; what is left of it must not be rounding.
    return (whole - whole.mean(0) if case.shape[0] > 1 else whole).to(dtype)


def compare(metric, dtype, mesh, places, chosen, errors) -> None:
    tensors, expected, items = [], [], []
    for case in chosen:
        if metric.unfit(case.shape, Axis(0) if case.axis.length(case.shape) == 1 else case.axis) and isinstance(
            metric, riesz.Centralization
        ):
            continue
        whole = whole_gradient(case, dtype, places)
        gradient = dealt_out(whole, mesh, places)
        tensors.append(gradient)
        expected.append((case, gradient.full_tensor() if any(p.is_partial() for p in places) else whole))
        items.append(Item(case.name, gradient, gradient, case.axis, metric))
    memory = [tensor.to_local().data_ptr() for tensor in tensors]
    strides = [tensor.to_local().stride() for tensor in tensors]
    direct_sharded_(items, "auto")
    assert [tensor.to_local().data_ptr() for tensor in tensors] == memory
    assert [tensor.to_local().stride() for tensor in tensors] == strides
    for (case, whole), gradient in zip(expected, tensors, strict=True):
        assert tuple(gradient.placements) == tuple(places), "the placements changed"
        wanted = whole.clone()
        direct_([Job.open(wanted, case.axis)], metric, "auto")
        error = relative_error(gradient.full_tensor(), wanted)
        # A sum of shares is rounded once more when it is put together again.
        limit = TOLERANCE[dtype]
        assert error <= limit, f"{metric!r} {dtype} {case.name} {places}: {error:.2e}"
        key = f"{type(metric).__name__} {str(dtype).removeprefix('torch.')}"
        errors[key] = max(errors.get(key, 0.0), error)


def run(rank: int, world: int, folder, full: bool) -> dict:
    errors: dict[str, float] = {}
    metrics = [*METRICS, *STRONG, riesz.Centralization()] if full else QUICK
    dtypes = (torch.float32, torch.float64, torch.complex64, torch.bfloat16) if full else (torch.float32, torch.float64)
    meshes: dict = {}
    count = 0
    for mesh_shape, places in placements(world):
        mesh = meshes.setdefault(mesh_shape, init_device_mesh("cpu", mesh_shape))
        for metric, dtype in product(metrics, dtypes):
            chosen = [case for case in cases() if fits(case, places)]
            compare(metric, dtype, mesh, places, chosen, errors)
            count += len(chosen)
    return {"comparisons": count, "largest errors": errors}


QUICK = [
    riesz.Identity(scale=0.5, blend=2.0),
    riesz.ReweightedL2(lam=20.0, scale=0.25, blend=0.5),
    riesz.Sobolev(),
    riesz.SobolevTilde(lam=0.3, scale=2.0, blend=0.5),
    riesz.SobolevTilde(lam=0.2, blend=0.0, riemann=True),
    riesz.LaplacianSmoothing(),
    riesz.Centralization(),
]
