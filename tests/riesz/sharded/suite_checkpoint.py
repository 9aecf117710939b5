"""torch.distributed.checkpoint: settings and state survive on fewer ranks and on more, with a schedule under way.

Run with worlds 4,2,3,1: each goes on from every checkpoint that those before it have saved.
"""

from __future__ import annotations

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import riesz
from cases import relative_error
from training import backward, network

METRIC = "laplacian-smoothing(sigma=3.0)"


def scheduled(step: int) -> object:
    """Other numbers, then another kind: what it leaves as it is must come from the checkpoint."""
    return {0: {"lam": 0.5}, 1: {"lam": 0.2}, 3: riesz.ReweightedL2(2.0), 6: {"lam": 0.7}}.get(step)


def made(world: int | None) -> tuple[nn.Module, torch.optim.Optimizer, riesz.Attachment]:
    """A network, sharded unless `world` is None, whose first layer has a metric of its own, under a schedule."""
    model = network()
    if world is not None:
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    groups = [{"params": [model[0].weight], "riesz_metric": METRIC}, {"params": [*model[1:].parameters()]}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    attachment.schedule(scheduled)
    return model, optimizer, attachment


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


def resumed(world: int, checkpoint) -> tuple[nn.Module, torch.optim.Optimizer, int]:
    model, optimizer, attachment = made(world)
    # The checkpoint's settings must win over those of the optimizer it is loaded into.
    optimizer.param_groups[0]["riesz_metric"] = "identity"
    weights, state = get_state_dict(model, optimizer)
    held = {"model": weights, "optimizer": state}
    dcp.load(held, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=held["model"], optim_state_dict=held["optimizer"])
    assert optimizer.param_groups[0]["riesz_metric"] == METRIC
    assert attachment.report()[0].metric == METRIC
    assert checkpoint.name == f"after-{attachment.step}"
    return model, optimizer, attachment.step


def run(rank: int, world: int, folder, full: bool) -> dict:
    """Two more steps from every checkpoint there is, and two from the start; each as one process that never stopped."""
    saved = sorted(folder.parent.glob("after-*"))
    begun = [resumed(world, checkpoint) for checkpoint in saved] or [(*made(world)[:2], 0)]
    errors = {}
    for model, optimizer, done in begun:
        train(model, optimizer, range(done, done + 2))
        twin, twins_optimizer, _ = made(None)
        train(twin, twins_optimizer, range(done + 2))
        pairs = zip(model.parameters(), twin.parameters(), strict=True)
        errors[done] = max(relative_error(a.full_tensor().detach(), b.detach()) for a, b in pairs)
        assert errors[done] <= 1e-5, errors
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder.parent / f"after-{done + 2}")
    return {"difference to one process that never stopped, by steps before": errors}
