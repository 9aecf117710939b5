"""Ten thousand steps: nothing grows."""

from __future__ import annotations

import gc

import psutil
import torch

import riesz
from training import network


def test_memory_stays_where_it_is_over_ten_thousand_steps():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(), control="permuted")
    attachment.schedule(lambda step: {"lam": 1.0 + step / 10_000})

    def run(steps):
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        gc.collect()
        return psutil.Process().memory_info().rss, len(gc.get_objects())

    run(500)
    memory, objects = run(500)
    memory_after, objects_after = run(9_000)
    assert attachment.step == 10_000
    assert memory_after <= 1.01 * memory
    assert objects_after <= 1.01 * objects
