"""Ranks that disagree: all of them raise, in the same step, whatever it is that differs."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from suite_attach import TILDE, meshes
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import riesz
from riesz.sharded import DisagreementError

KINDS = [
    riesz.Identity(), riesz.ReweightedL2(), riesz.Sobolev(), riesz.SobolevTilde(), riesz.LaplacianSmoothing(),
    riesz.Centralization(),
]  # fmt: skip


def ranks_that_diverge_all_raise_at_that_step_and_go_on_when_they_agree(world: int) -> dict:
    """At step 1, at step 100, and back: to work that was agreed on before, on one rank alone and then on all."""
    mesh, first = meshes(world)[0], dist.get_rank() == 0
    raised = 0
    for setting in ({"metric": TILDE}, {"metric": riesz.ReweightedL2()}, {"metric": TILDE, "control": "permuted"}):
        weights = [nn.Parameter(distribute_tensor(torch.ones(8, 3, 1), mesh, [Shard(0)])) for _ in range(2)]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        attachment = riesz.attach(optimizer, **setting)
        usual, changed = attachment.metric, dataclasses.replace(attachment.metric, lam=0.7)

        def step(metric, missing=False, weights=weights, optimizer=optimizer, attachment=attachment):
            attachment.metric = metric
            for weight in weights:
                weight.grad = torch.zeros_like(weight)
            if missing:
                weights[1].grad = None
            optimizer.step()

        for number in range(1, 112):
            # A rank may change by itself, return to the usual work by itself, or lack a gradient.
            alone = {1: first, 100: first, 102: not first, 105: not first}.get(number)
            missing = {104: first, 107: not first}.get(number)
            if alone is None and missing is None:
                step(changed if 100 < number < 106 else usual)
                continue
            with pytest.raises(DisagreementError, match="expected the same work on all ranks"):
                step(changed if alone else usual, bool(missing))
            raised += 1
    return {"raised on this rank": raised, "expected": 18}


def ranks_must_agree_on_settings_that_are_no_numbers(world: int) -> None:
    mesh, first = meshes(world)[0], dist.get_rank() == 0
    weight = nn.Parameter(distribute_tensor(torch.ones(8, 3, 1), mesh, [Shard(0)]))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    riesz.attach(optimizer, metric=riesz.SobolevTilde(riemann=first))
    with pytest.raises(DisagreementError, match=f"sobolev-tilde.lam=1.0, riemann={first}"):
        optimizer.step()


def ranks_must_agree_on_shapes_dtypes_and_placements(world: int) -> None:
    """Before anything is sent: gloo ends a process that receives more bytes than it expects."""
    mesh, first = meshes(world)[0], dist.get_rank() == 0
    usual = {"shape": (2 * world, 3), "dtype": torch.float32, "placement": Shard(0)}
    for other in ({"shape": (2 * world, 300)}, {"dtype": torch.float64}, {"placement": Replicate()}):
        one = usual | (other if first else {})
        local_rows = 2 if one["placement"] == Shard(0) else 2 * world
        for metric in (TILDE, riesz.ReweightedL2()):
            local = torch.zeros(local_rows, one["shape"][1], dtype=one["dtype"])
            weight = nn.Parameter(DTensor.from_local(local, mesh, [one["placement"]], run_check=False))
            weight.grad = torch.zeros_like(weight)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            riesz.attach(optimizer, metric=metric, layers="all")
            with pytest.raises(DisagreementError, match="expected the same work on all ranks"):
                optimizer.step()


def sharded_weight(mesh) -> nn.Parameter:
    weight = nn.Parameter(distribute_tensor(torch.ones(8, 3, 1), mesh, [Shard(0)] * mesh.ndim))
    weight.grad = torch.zeros_like(weight)
    return weight


def metrics_of_different_kinds_raise_on_all_ranks(world: int) -> dict:
    """Every pair of kinds, whether they make collectives of different kinds or one of them makes none."""
    first, raised = dist.get_rank() == 0, 0
    for mesh in meshes(world):
        for one in KINDS:
            for other in KINDS:
                weight = sharded_weight(mesh)
                optimizer = torch.optim.SGD([weight], lr=0.1)
                attachment = riesz.attach(optimizer, metric=one if first else other)
                if type(one) is not type(other):
                    with pytest.raises(DisagreementError, match=(one if first else other).kind_name()):
                        optimizer.step()
                    raised += 1
                    attachment.metric = one  # they go on when they agree
                optimizer.step()
    return {"raised on this rank": raised}


def switches_that_differ_raise_on_all_ranks(world: int) -> None:
    mesh, first = meshes(world)[0], dist.get_rank() == 0
    for name, value in (("enabled", False), ("recording", True)):
        weight = sharded_weight(mesh)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        attachment = riesz.attach(optimizer, metric=TILDE)
        setattr(attachment, name, value if first else not value)
        with pytest.raises(DisagreementError, match=f"{name}={value if first else not value}"):
            optimizer.step()
        setattr(attachment, name, value)
        optimizer.step()


def partial_gradients_that_are_missing_on_some_ranks_raise_on_all(world: int) -> None:
    """On one rank alone, and on each rank another one of equal size: sums of different gradients must not be taken."""
    mesh, rank = meshes(world)[0], dist.get_rank()
    for missing in (0 if rank == 0 else None, rank % 2):
        weights = [nn.Parameter(distribute_tensor(torch.ones(8, 3, 1), mesh, [Replicate()])) for _ in range(2)]
        for weight in weights:
            weight.grad = DTensor.from_local(torch.ones(8, 3, 1), mesh, [Partial()], run_check=False)
        if missing is not None:
            weights[missing].grad = None
        optimizer = torch.optim.SGD(weights, lr=0.1)
        riesz.attach(optimizer, metric=TILDE, direction="input")
        with pytest.raises(DisagreementError, match="Partial gradients; without a gradient"):
            optimizer.step()
        assert all(w.grad is None or bool((w.grad.to_local() == 1).all()) for w in weights)


def numbers_that_differ_raise_at_the_first_step_where_nothing_is_exchanged_too(world: int) -> None:
    for mesh in meshes(world):
        replicas = [Replicate()] * (mesh.ndim - 1)
        for placements in ([*replicas, Replicate()], [*replicas, Shard(0)], [Shard(1)] * mesh.ndim):
            weight = nn.Parameter(distribute_tensor(torch.ones(8, 8, 1), mesh, placements))
            weight.grad = torch.zeros_like(weight)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            attachment = riesz.attach(optimizer, metric=riesz.SobolevTilde(1.0 + dist.get_rank()))
            with pytest.raises(DisagreementError, match=rf"lam={1.0 + dist.get_rank()}"):
                optimizer.step()
            attachment.metric = riesz.SobolevTilde(1.0)
            optimizer.step()


def what_is_under_way_after_an_error_is_not_written_to(world: int) -> None:
    """One rank group raises while ranks of another are still in their collective; all of them go on."""
    if world < 3:
        return
    rank, pair, everyone = dist.get_rank(), DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", list(range(world)))
    model = nn.Module()
    if rank < 2:
        model.of_two = nn.Parameter(_rows(pair, 4, 0.0))
    model.of_all = nn.Parameter(_rows(everyone, 200_000, 0.0))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2(), layers="all", direction="output")
    for step in range(4):
        for weight in weights:
            weight.grad = _rows(weight.device_mesh, weight.shape[1], 10.0**step)
        apart = step == 2 and rank < 2
        if apart and rank == 1:
            weights[0].grad = None
        if step == 2 and rank == world - 1:
            time.sleep(1)
        with pytest.raises(DisagreementError) if apart else nullcontext():
            optimizer.step()
        if not apart:
            assert bool((weights[-1].grad.to_local() == 2 * 10.0**step).all()), step


def a_rank_that_is_interrupted_and_goes_on_is_noticed(world: int) -> None:
    """Interrupted while columns travel, it is on its next way there when the others are on their way back."""
    mesh, rank = meshes(world)[0], dist.get_rank()
    weights = [
        nn.Parameter(distribute_tensor(torch.ones(2 * world, 4, 1), mesh, [Shard(0)])),
        nn.Parameter(torch.ones(4, 2, 1)),
    ]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    attachment = riesz.attach(optimizer, metric=TILDE, control="permuted")
    direct_local = attachment._direct_local

    def interrupted(*arguments):
        raise KeyboardInterrupt

    def step(value: float) -> None:
        for weight in weights:
            weight.grad = torch.full_like(weight, value)
        optimizer.step()
        assert bool((weights[0].grad.to_local() == 2 * value).all())

    step(1.0)
    if rank == 0:
        attachment._direct_local = interrupted
        with pytest.raises(KeyboardInterrupt):
            step(2.0)
        attachment._direct_local = direct_local
    with pytest.raises(DisagreementError, match="expected the same work on all ranks"):
        step(4.0)
    step(8.0)


def _rows(mesh, columns: int, value: float) -> DTensor:
    return DTensor.from_local(torch.full((2, columns), value), mesh, [Shard(0)], run_check=False)


CHECKS = [
    ranks_that_diverge_all_raise_at_that_step_and_go_on_when_they_agree,
    ranks_must_agree_on_settings_that_are_no_numbers,
    ranks_must_agree_on_shapes_dtypes_and_placements,
    metrics_of_different_kinds_raise_on_all_ranks,
    switches_that_differ_raise_on_all_ranks,
    partial_gradients_that_are_missing_on_some_ranks_raise_on_all,
    numbers_that_differ_raise_at_the_first_step_where_nothing_is_exchanged_too,
    what_is_under_way_after_an_error_is_not_written_to,
    a_rank_that_is_interrupted_and_goes_on_is_noticed,
]


def run(rank: int, world: int, folder, full: bool) -> dict:
    return {check.__name__: check(world) for check in CHECKS}
