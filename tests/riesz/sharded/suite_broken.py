"""Ranks that wait in different collectives. What is under way can never end, so the group is of no use afterwards."""

from __future__ import annotations

import time

import pytest
import torch
from suite_attach import TILDE, meshes
from suite_disagreement import sharded_weight

import riesz
from riesz.sharded import DisagreementError, watch


def run(rank: int, world: int, folder, full: bool) -> dict:
    """One rank alone gets another kind of metric after steps that all agreed on."""
    watch.PATIENCE /= 10
    weight = sharded_weight(meshes(world)[0])
    optimizer = torch.optim.SGD([weight], lr=0.1)
    attachment = riesz.attach(optimizer, metric=TILDE)
    for _ in range(3):
        optimizer.step()
    time.sleep(1.2 * rank)  # a rank that is late is waited for
    optimizer.step()
    if rank == 0:
        attachment.metric = riesz.ReweightedL2()
    began = time.monotonic()
    with pytest.raises(DisagreementError, match="reweighted-l2" if rank == 0 else "sobolev-tilde"):
        optimizer.step()
    return {"seconds until this rank raised": round(time.monotonic() - began, 1)}
