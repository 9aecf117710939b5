"""Sums of columns exchanged between ranks that are all in this process: compiled kernels and torch against dense A."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import accumulate

import pytest
import torch

import riesz
from riesz.backends import registry
from riesz.backends.cpu import CPU
from riesz.backends.reference import dense
from riesz.backends.shards import CpuShardKernels
from riesz.layout.axis import Axis
from riesz.metrics.low_rank import RowSpan
from riesz.sharded import collectives
from riesz.sharded.agreement import DeadlockDetector, RankGroup
from riesz.sharded.collectives import WORD, AllReduce
from riesz.sharded.columns import batch_columns
from riesz.sharded.layout import LocalShard, RowPartition
from riesz.sharded.sums import GatheredSums, ReducedSums

METRICS = [
    riesz.ReweightedL2(lam=3.0, scale=0.5, blend=0.25),
    riesz.SobolevTilde(lam=0.2),
    riesz.SobolevTilde(lam=3.0, blend=0.0, riemann=True),
    riesz.Sobolev(lam=0.01, scale=2.0),
    riesz.LaplacianSmoothing(sigma=1e-6),
    riesz.LaplacianSmoothing(sigma=4.0, blend=1.0),
]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 8e-3, torch.float16: 1e-3}
LENGTHS = [(1, 1), (5, 4, 1), (3, 0, 3), (40, 33), (100, 99, 58)]
WIDTHS = (1, 7, 8, 64, 131, 4200)  # the last is wider than a tile


def exchanges(metric, lengths, dtype, backend):
    """Rank by rank, an strategy for gradients of several widths, and the whole gradients they belong to."""
    torch.manual_seed(sum(lengths))
    n, edges = sum(lengths), list(accumulate(lengths, initial=0))
    spans = tuple((RowSpan(start, length),) if length else () for start, length in zip(edges, lengths, strict=False))
    wholes = [torch.randn(n, width, dtype=torch.float64).to(dtype) for width in WIDTHS]
    made, shards = [], []
    for rank, length in enumerate(lengths):
        coordinates, detector = tuple((r,) for r in range(len(lengths))), DeadlockDetector("ranks", len(lengths))
        group = RankGroup(None, rank, coordinates, torch.device("cpu"), detector)
        own = [whole[edges[rank] : edges[rank] + length].clone() for whole in wholes]
        parts = [
            LocalShard(
                f"w{width}", Axis(0), metric, local, dtype, local.device, None, group, RowPartition(n, spans), width, 1
            )
            for width, local in zip(WIDTHS, own, strict=True)
        ]
        batches = batch_columns(parts)
        kind = ReducedSums if ReducedSums.serves(batches[0], permuted=False) else GatheredSums
        made.append(kind(group, batches, backend, permuted=False))
        shards.append(own)
    return made, shards, wholes


def run_in_process(made, monkeypatch):
    """Start all ranks, hand each what an all-gather or an all-reduce gives, finish all ranks."""
    monkeypatch.setattr(collectives, "_all_gather", lambda *args, **kwargs: None)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **kwargs: None)
    for strategy in made:
        strategy.start()
    if isinstance(made[0]._collective, AllReduce):
        sent = [strategy._collective._buffer.get().view(torch.float64) for strategy in made]
        received = torch.stack(sent).sum(0)[AllReduce.HEADER :]
    else:
        received = torch.stack([strategy._collective._sent.get() for strategy in made])[:, WORD:]
    for strategy in made:
        strategy._collective.finish = lambda: received
        strategy.finish()


@pytest.mark.parametrize("backend", ["cpu", "eager"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_ranks_that_exchange_sums_apply_the_whole_operator(metric, lengths, dtype, backend, monkeypatch):
    made, shards, wholes = exchanges(metric, lengths, dtype, backend)
    run_in_process(made, monkeypatch)
    assert all((exchange._kernels is not None) == (backend == "cpu" and length > 0)
               for exchange, length in zip(made, lengths, strict=True))  # fmt: skip
    for index, whole in enumerate(wholes):
        wanted = dense(metric, len(whole)) @ whole.double()
        got = torch.cat([own[index] for own in shards]).double()
        assert (got - wanted).abs().max() <= TOLERANCE[dtype] * wanted.abs().max()


@pytest.mark.parametrize("backend", ["cpu", "eager"])
@pytest.mark.parametrize("lengths", [(2, 2), (32, 32), (128, 127)], ids=str)
def test_sums_of_the_largest_gradients_do_not_overflow(lengths, backend, monkeypatch):
    """Signs that make the sums of a run as large as they can be, of entries near the largest of float32."""
    metric = riesz.SobolevTilde()
    made, shards, wholes = exchanges(metric, lengths, torch.float32, backend)
    for index, whole in enumerate(wholes):
        signs = torch.cat([(torch.arange(n) >= n // 2) * 2.0 - 1 for n in lengths])
        whole.copy_(3e38 * signs[:, None].expand_as(whole))
        for own, part in zip(shards, whole.split(lengths), strict=True):
            own[index].copy_(part)
    run_in_process(made, monkeypatch)
    for index, whole in enumerate(wholes):
        wanted = dense(metric, len(whole)) @ whole.double()
        got = torch.cat([own[index] for own in shards]).double()
        assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max()


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_a_schedule_changes_the_numbers_of_a_kept_exchange(metric, monkeypatch):
    tensors = metric.as_tensors()
    made, shards, wholes = exchanges(tensors, (5, 4, 1), torch.float64, "cpu")
    run_in_process(made, monkeypatch)
    strength = 2 * float(metric.strength)
    tensors.strength.fill_(strength)
    for own, start in zip(shards, (0, 5, 9), strict=True):
        for local, whole in zip(own, wholes, strict=True):
            local.copy_(whole[start : start + len(local)])
    run_in_process(made, monkeypatch)
    changed = replace(metric, **{metric.strength_field: strength})
    for index, whole in enumerate(wholes):
        wanted = dense(changed, len(whole)) @ whole
        got = torch.cat([own[index] for own in shards])
        assert (got - wanted).abs().max() <= 1e-12 * wanted.abs().max()


@pytest.fixture
def count_new_tensors():
    """How many tensors of float64 were made in this test and are alive; what other tests left is not looked at."""
    gc.freeze()

    def count():
        gc.collect()
        return sum(type(one) is torch.Tensor and one.dtype == torch.float64 for one in gc.get_objects())

    yield count
    gc.unfreeze()


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_a_schedule_keeps_the_factors_of_its_last_numbers_alone(metric, monkeypatch, count_new_tensors):
    tensors = metric.as_tensors()
    made, _, _ = exchanges(tensors, (40, 33), torch.float32, "cpu")
    counts = []
    for step in range(6):
        tensors.strength.fill_(0.1 + 0.1 * step)
        run_in_process(made, monkeypatch)
        counts.append(count_new_tensors())
    assert counts[0] > 0
    assert counts[1:] == counts[:1] * 5


def test_a_metric_too_strong_for_the_kernels_is_solved_by_torch(monkeypatch):
    metric = riesz.LaplacianSmoothing(sigma=1e12, blend=0.5)
    made, shards, wholes = exchanges(metric, (5, 4, 1), torch.float64, "cpu")
    used = []
    monkeypatch.setattr(
        CpuShardKernels,
        "correct_",
        lambda self, *a, inner=CpuShardKernels.correct_: used.append(inner(self, *a)) or used[-1],
    )
    run_in_process(made, monkeypatch)
    assert used == [False] * 3
    for index, whole in enumerate(wholes):
        wanted = dense(metric, len(whole)) @ whole
        got = torch.cat([own[index] for own in shards])
        assert (got - wanted).abs().max() <= 1e-9 * wanted.abs().max()


@pytest.mark.parametrize("metric", [METRICS[0], METRICS[1], METRICS[3]], ids=str)
def test_the_kernels_are_those_of_the_backend_that_serves(metric, monkeypatch):
    """What another device needs: a record with a class of its own, called once to pack and once to correct."""
    calls = []

    class Kernels(CpuShardKernels):
        def pack(self, addresses, buffer):
            calls.append("pack")
            super().pack(addresses, buffer)

        def correct_(self, addresses, received):
            calls.append("correct")
            return super().correct_(addresses, received)

    monkeypatch.setitem(registry._backends, "mine", replace(CPU, name="mine", shard_kernels=Kernels))
    made, shards, wholes = exchanges(metric, (5, 4, 1), torch.float64, "mine")
    run_in_process(made, monkeypatch)
    assert calls == ["pack"] * 3 + ["correct"] * 3
    for index, whole in enumerate(wholes):
        wanted = dense(metric, len(whole)) @ whole
        got = torch.cat([own[index] for own in shards])
        assert (got - wanted).abs().max() <= 1e-12 * wanted.abs().max()


@pytest.mark.parametrize("instructions", ["avx512", "avx2", "portable"])
def test_every_instruction_set_sums_and_walks_alike(instructions, monkeypatch):
    from riesz.backends.native import Native, load

    native = load()
    assert isinstance(native, Native)
    before = native.instructions
    if not native.library.riesz_use_instructions(instructions.encode()):
        assert instructions != "portable"  # every machine has it
        return
    try:
        for metric in METRICS:
            made, shards, wholes = exchanges(metric, (40, 33), torch.float32, "cpu")
            run_in_process(made, monkeypatch)
            for index, whole in enumerate(wholes):
                wanted = dense(metric, len(whole)) @ whole.double()
                got = torch.cat([own[index] for own in shards]).double()
                assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    finally:
        native.library.riesz_use_instructions(before.encode())
