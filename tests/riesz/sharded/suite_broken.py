"""Ranks that wait in different places. What is under way can never end, so each case has a process group of its own."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from suite_attach import TILDE
from suite_disagreement import sharded_weight
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import riesz
from riesz.sharded import DisagreementError, agreement

MEAN = riesz.ReweightedL2()
ONE_SIDED = [
    (TILDE, "metric", MEAN),
    (MEAN, "metric", TILDE),
    (MEAN, "metric", riesz.Identity(scale=0.5)),
    (MEAN, "enabled", False),
    (MEAN, "recording", True),
    (TILDE, "enabled", False),
    (TILDE, "recording", True),
]
"""The metric of all ranks, and what the first rank changes after steps that all agreed on."""


def stepping(metric):
    """An attached optimizer on a weight that is sharded over a new process group of all ranks."""
    group = dist.new_group(backend="gloo")
    # By another name: torch takes meshes of equal ranks and names for one.
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=(f"shards_{group.group_name}",))
    optimizer = torch.optim.SGD([sharded_weight(mesh)], lr=0.1)
    return optimizer, riesz.attach(optimizer, metric=metric)


def one_rank_that_changes_alone_makes_all_raise(rank: int) -> float:
    slowest = 0.0
    for metric, name, value in ONE_SIDED:
        optimizer, attachment = stepping(metric)
        for _ in range(3):
            optimizer.step()
        if rank == 0:
            setattr(attachment, name, value)
        began = time.monotonic()
        with pytest.raises(DisagreementError, match="expected the same work on all ranks"):
            optimizer.step()
        slowest = max(slowest, time.monotonic() - began)
    return round(slowest, 1)


def a_rank_that_is_late_is_waited_for(rank: int) -> None:
    optimizer, _ = stepping(MEAN)
    for late in range(5):
        # Around the time at which the others ask.
        time.sleep((0.8 + 0.1 * late) * agreement.TIMEOUT_S * (rank == 0))
        optimizer.step()


def ranks_with_parameters_of_their_own_besides_are_waited_for(rank: int, world: int) -> None:
    own = [DeviceMesh("cpu", [one]) for one in range(world)][rank]
    model = nn.Module()
    model.shared = sharded_weight(init_device_mesh("cpu", (world,)))
    setattr(model, f"stage_{rank}", sharded_weight(own))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=TILDE, layers="all", direction="output")
    for late in (0.0, 0.0, 1.5):
        time.sleep(late * agreement.TIMEOUT_S * (rank == 0))
        optimizer.step()


class EndsAsTheTimeIsUp:
    """A collective that ends after the wait for it has timed out and before anybody looks."""

    waits = 0

    def wait(self, timeout=None):
        self.waits += 1
        if timeout is not None:
            raise RuntimeError("Operation timed out!")

    def is_completed(self):
        return True


def a_collective_that_ends_as_the_time_is_up_has_ended() -> None:
    pending = EndsAsTheTimeIsUp()
    agreement.DeadlockDetector("alone", 1).wait(pending, str)
    assert pending.waits == 2


def run(rank: int, world: int, folder, full: bool) -> dict:
    agreement.TIMEOUT_S /= 10
    a_collective_that_ends_as_the_time_is_up_has_ended()
    a_rank_that_is_late_is_waited_for(rank)
    ranks_with_parameters_of_their_own_besides_are_waited_for(rank, world)
    return {"seconds until the last rank raised": one_rank_that_changes_alone_makes_all_raise(rank)}
