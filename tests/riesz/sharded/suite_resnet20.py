"""Ten steps of ResNet-20: one process, DDP on 2 ranks, FSDP2 on 2, HSDP on 2 x 2. The same weights.

Batch normalisation sees the same batches everywhere: each step is made of four, and a process takes its share of them,
one after the other. So nothing differs but who computes what, and in which order gradients are added up. That order
alone, in one process, moves float32 weights by 1e-3 at a rate of 0.01, since a ReLU that was just off is just on. So
the rate is small in float32, and the comparison at a rate that trains is made in float64.
"""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import riesz
from riesz_lab import models

STEPS, BATCHES, IMAGES, SIDE = 10, 4, 4, 16
METRIC = riesz.SobolevTilde(lam=0.5)


def resnet(dtype: torch.dtype) -> nn.Module:
    return models.build("resnet20", channels=3, classes=10, seed=0).to(dtype)


def loss(model: nn.Module, step: int, part: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + part)
    dtype = next(model.parameters()).dtype
    images = torch.randn(IMAGES, 3, SIDE, SIDE, generator=generator).to(dtype)
    labels = torch.randint(10, (IMAGES,), generator=generator)
    return nn.functional.cross_entropy(model(images), labels)


def train(model: nn.Module, rate: float, rank: int, ranks: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    riesz.attach(optimizer, model, metric=METRIC)
    own = range(rank, BATCHES, ranks)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in own:
            last = part == own[-1]
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            waiting = isinstance(model, DistributedDataParallel) and not last
            with model.no_sync() if waiting else contextlib.nullcontext():
                (loss(model, step, part) / len(own)).backward()
        optimizer.step()


def sharded(mesh: DeviceMesh, dtype: torch.dtype) -> nn.Module:
    model = resnet(dtype)
    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def difference(model: nn.Module, wanted: nn.Module) -> float:
    pairs = list(zip(model.parameters(), wanted.parameters(), strict=True))
    whole = [a.full_tensor() if isinstance(a, DTensor) else a for a, _ in pairs]
    return max((a - b).abs().max().item() for a, (_, b) in zip(whole, pairs, strict=True))


def run(rank: int, world: int, folder, full: bool) -> dict:
    assert world == 4
    pair = dist.new_group([0, 1])
    meshes = {
        2: DeviceMesh("cpu", [0, 1]),
        4: DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("replicas", "shards")),
    }
    differences = {}
    for dtype, rate, limit in ((torch.float32, 2e-4, 1e-5), (torch.float64, 0.05, 1e-8)):
        wanted = resnet(dtype)
        train(wanted, rate, 0, 1)
        figures = {}
        if rank < 2:
            model = DistributedDataParallel(resnet(dtype), process_group=pair)
            train(model, rate, rank, 2)
            figures["DDP x 2"] = difference(model.module, wanted)
            model = sharded(meshes[2], dtype)
            train(model, rate, rank, 2)
            figures["FSDP2 x 2"] = difference(model, wanted)
        model = sharded(meshes[4], dtype)
        train(model, rate, rank, 4)
        figures["HSDP 2 x 2"] = difference(model, wanted)
        assert all(value <= limit for value in figures.values()), (dtype, figures)
        assert difference(wanted, resnet(dtype)) > 2 * rate  # they did train
        differences[f"{dtype}, rate {rate}"] = figures
    return {"largest difference in weights": differences}
