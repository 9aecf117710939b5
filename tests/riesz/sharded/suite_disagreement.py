"""Ranks that disagree: all of them raise, in the same step, whatever it is that differs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.distributed as dist
from suite_attach import TILDE, meshes
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor

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


CHECKS = [
    ranks_that_diverge_all_raise_at_that_step_and_go_on_when_they_agree,
    ranks_must_agree_on_settings_that_are_no_numbers,
    metrics_of_different_kinds_raise_on_all_ranks,
    switches_that_differ_raise_on_all_ranks,
]


def run(rank: int, world: int, folder, full: bool) -> dict:
    return {check.__name__: check(world) for check in CHECKS}
