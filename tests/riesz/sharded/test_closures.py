"""Closures whose gradients are DTensors: what is written between two evaluations is directed again, the rest is not."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import riesz


class Evaluating(torch.optim.Optimizer):
    """Evaluates its closure some times and does nothing else."""

    def __init__(self, parameters, times):
        super().__init__(parameters, {"lr": 0.1})
        self._times = times

    def step(self, closure):
        for _ in range(self._times):
            closure()


@pytest.fixture
def weight():
    """A weight on a mesh of one rank, which needs no other; its gradient is ones."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    weight = nn.Parameter(distribute_tensor(torch.zeros(4, 2, 1), mesh, [Shard(0)]))
    weight.grad = torch.ones_like(weight)
    yield weight
    dist.destroy_process_group()


WRITES = {
    "by an operation of the DTensor": lambda gradient: gradient.fill_(1.0),
    "through its local part": lambda gradient: gradient._local_tensor.fill_(1.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_gradient_written_between_evaluations_is_directed_again(weight, write):
    optimizer = Evaluating([weight], times=3)
    riesz.attach(optimizer, metric=riesz.ReweightedL2(1.0))
    for _ in range(2):  # the second step by the fast path
        optimizer.step(lambda: write(weight.grad))
        assert bool((weight.grad.to_local() == 2.0).all())


def test_a_gradient_that_is_not_written_is_directed_once(weight):
    optimizer = Evaluating([weight], times=3)
    riesz.attach(optimizer, metric=riesz.ReweightedL2(1.0))
    optimizer.step(lambda: None)
    assert bool((weight.grad.to_local() == 2.0).all())
