"""DistributedDataParallel on several ranks: buckets, accumulation, uneven inputs. Plain tensors cost no collective."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel

import riesz
from cases import relative_error
from training import loss_of, network

METRIC = riesz.SobolevTilde(lam=0.2)


def trained(model: nn.Module, steps, micro_batches) -> nn.Module:
    """Plain training: what one process does with the average over `micro_batches` batches per step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=METRIC)
    for step in range(steps):
        optimizer.zero_grad()
        for batch in micro_batches(step):
            (loss_of(model, batch) / len(micro_batches(step))).backward()
        optimizer.step()
    return model


def without_norm() -> nn.Module:
    """Batch statistics differ between ranks, and evaluation mode takes them out of the comparison."""
    model = network()
    model[1].eval()
    return model


def buckets_and_accumulation(rank: int, world: int) -> float:
    largest = 0.0
    for bucket_view in (False, True):
        for static_graph in (False, True):
            model = without_norm()
            wrapped = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view, static_graph=static_graph)
            optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
            riesz.attach(optimizer, wrapped, metric=METRIC)
            for step in range(3):
                optimizer.zero_grad()
                for part in range(2):
                    last = part == 1
                    with contextlib.nullcontext() if last or static_graph else wrapped.no_sync():
                        (loss_of(wrapped, 100 * step + 10 * part + rank) / 2).backward()
                with CommDebugMode() as counted:
                    optimizer.step()
                assert counted.get_total_counts() == 0
            twin = trained(without_norm(), 3, lambda s: [100 * s + 10 * p + r for p in range(2) for r in range(world)])
            for a, b in zip(model.parameters(), twin.parameters(), strict=True):
                largest = max(largest, relative_error(a.detach(), b.detach()))
    assert largest <= 1e-5, largest
    return largest


def ranks_that_run_out_of_batches_join(rank: int, world: int) -> int:
    """With Join, ranks have different numbers of steps; a collective of ours would wait for those that are done."""
    model = without_norm()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    riesz.attach(optimizer, wrapped, metric=METRIC)
    steps = 2 + rank
    with Join([wrapped]):
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(wrapped, 10 * step + rank).backward()
            optimizer.step()
    weights = [p.detach().clone() for p in model.parameters()]
    for weight in weights:
        dist.broadcast(weight, src=world - 1)
    # Join leaves all ranks with the weights of the last one to finish.
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    return steps


def a_rank_whose_share_has_nothing_to_direct_goes_on(rank: int, world: int) -> float:
    """ZeroRedundancyOptimizer shares parameters out; only nothing on any rank is an error."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of its own use of torch.jit

    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 40), nn.Linear(40, 3))

    model = build()
    wrapped = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(
        wrapped.parameters(), optimizer_class=riesz.directed(torch.optim.SGD), lr=0.1, metric=METRIC, model=wrapped
    )
    attachment = optimizer.optim.attachment
    directed = sum(record.applied for record in attachment.report())
    every: list = [None] * world
    dist.all_gather_object(every, directed)
    assert sorted(every) == [0] * (world - 1) + [1], every
    for step in range(3):
        optimizer.zero_grad()
        loss_of(wrapped, 10 * step + rank).backward()
        optimizer.step()
    attachment.metric = riesz.Sobolev()
    assert sum(record.applied for record in attachment.report()) == directed
    twin = trained(build(), 3, lambda s: [10 * s + r for r in range(world)])
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    largest = max(relative_error(a.detach(), b.detach()) for a, b in pairs)
    assert largest <= 1e-5, largest
    linear = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="nothing to direct among the optimizer's 2 parameters"):
        ZeroRedundancyOptimizer(
            linear.parameters(), optimizer_class=riesz.directed(torch.optim.SGD), lr=0.1, metric=METRIC, model=linear
        )
    return largest


def zero_redundancy_itself_may_be_attached(rank: int, world: int) -> float:
    """Every rank directs all gradients then; its checkpoint has the schedule, and a bucket view is written in place."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(24, 3))

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    largest = 0.0
    for bucket_view in (False, True):
        model, twin = build(), build()
        wrapped = DistributedDataParallel(model)
        zero = ZeroRedundancyOptimizer(
            wrapped.parameters(), torch.optim.SGD, parameters_as_bucket_view=bucket_view, lr=0.1, momentum=0.9
        )
        plain = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
        for optimizer, of in ((zero, wrapped), (plain, twin)):
            riesz.attach(optimizer, of, metric=METRIC).schedule(riesz.schedule.warmup(4))
        train(wrapped, zero, range(2))
        zero.consolidate_state_dict(0)
        states = [zero.state_dict() if rank == 0 else None]
        dist.broadcast_object_list(states, 0)
        zero.load_state_dict(states[0])
        train(wrapped, zero, range(2, 6))
        train(twin, plain, range(6))
        pairs = zip(model.parameters(), twin.parameters(), strict=True)
        largest = max(largest, *(relative_error(a.detach(), b.detach()) for a, b in pairs))
    assert largest <= 1e-5, largest
    return largest


def run(rank: int, world: int, folder, full: bool) -> dict:
    return {
        "DDP against one process": buckets_and_accumulation(rank, world),
        "ZeRO, against one process": a_rank_whose_share_has_nothing_to_direct_goes_on(rank, world),
        "ZeRO itself attached": zero_redundancy_itself_may_be_attached(rank, world),
        "steps under Join on this rank": ranks_that_run_out_of_batches_join(rank, world),
    }
