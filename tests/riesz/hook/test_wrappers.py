"""Data parallel wrappers: gradients that alias buckets, and gradients that were flattened."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import riesz
from cases import relative_error
from training import backward, conv_gradients, loss_of, network


@pytest.fixture(scope="module")
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("static_graph", [False, True])
@pytest.mark.parametrize("bucket_view", [False, True])
def test_ddp_buckets_are_written_in_place_and_accumulation_counts_once(bucket_view, static_graph):
    model, twin = network(), network()
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view, static_graph=static_graph)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    plain = torch.optim.SGD(twin.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, wrapped, metric=riesz.SobolevTilde(0.2))
    assert sum(r.applied for r in attachment.report()) == 2
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        for micro_batch in range(2):
            last = micro_batch == 1
            with contextlib.nullcontext() if last or static_graph else wrapped.no_sync():
                loss_of(wrapped, 10 * step + micro_batch).backward()
            backward(twin, 10 * step + micro_batch)
        places = [g.data_ptr() for g in conv_gradients(model)]
        optimizer.step()
        assert [g.data_ptr() for g in conv_gradients(model)] == places
        riesz.precondition_(conv_gradients(twin), riesz.SobolevTilde(0.2))
        plain.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert relative_error(a.detach(), b.detach()) <= 1e-5


@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore")
def test_fsdp1_is_refused_with_the_way_out():
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"Flattened parameters .* DistributedDataParallel"):
        riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
