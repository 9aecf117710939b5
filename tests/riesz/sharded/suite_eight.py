"""Eight ranks: replicas of strided shards, and shards on two axes, whose rank groups need new process groups."""

from __future__ import annotations

import torch
from suite_grid import distribute
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import riesz

METRICS = [riesz.SobolevTilde(0.2), riesz.Sobolev(0.1), riesz.ReweightedL2()]


def largest_error(mesh, places, rows: int) -> float:
    value = torch.randn(rows, 3, 2, generator=torch.Generator().manual_seed(rows))
    largest = 0.0
    for metric in METRICS:
        gradient = distribute(value, mesh, places)
        riesz.precondition_([gradient, value.clone()], metric)
        wanted = metric.gradient(value)
        own = distribute(wanted, mesh, places).to_local()
        if own.numel():
            largest = max(largest, ((gradient.to_local() - own).abs().max() / wanted.abs().max()).item())
    assert largest <= 5e-6, largest
    return largest


def run(rank: int, world: int, folder, full: bool) -> dict:
    assert world == 8
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicas", "data", "tensor"))
    errors = {}
    for rows in (2, 9, 64):
        for places in ((Replicate(), _StridedShard(0, split_factor=2), Shard(0)), (Shard(0), Shard(1), Shard(0))):
            errors[f"{places}, {rows} rows"] = largest_error(mesh, places, rows)
    return {"largest errors": errors}
