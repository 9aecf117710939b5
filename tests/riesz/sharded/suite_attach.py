"""Attached optimizers on DTensors: training, controls, diagnostics, bad input. Each check runs on all ranks."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
import torch.distributed as dist
from suite_grid import distribute
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import riesz
from cases import METRICS, relative_error
from riesz.sharded import DisagreementError
from riesz.sharded.collectives import Buffer
from training import backward, network

TILDE = riesz.SobolevTilde(lam=0.2)


def meshes(world: int) -> list:
    """Fully sharded, and on four ranks also hybrid: replicas of shards."""
    out = [init_device_mesh("cpu", (world,))]
    if world == 4:
        out.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    return out


def sharded_network(mesh) -> nn.Module:
    model = network()
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def optimizer_of(model: nn.Module, **settings) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    riesz.attach(optimizer, model, **({"metric": TILDE} | settings))
    return optimizer


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_alike(model: nn.Module, twin: nn.Module, limit: float = 5e-6) -> float:
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    error = max(relative_error(whole(a).detach(), b.detach()) for a, b in pairs)
    assert error <= limit, error
    return error


def training_equals_one_process(world: int) -> float:
    largest = 0.0
    settings = [
        {},
        {"metric": riesz.ReweightedL2()},
        {"metric": riesz.LaplacianSmoothing(), "direction": "rasterized", "layers": "all"},
        {"metric": riesz.Sobolev(0.05), "control": "norm"},
        {"control": "permuted"},
        {"metric": riesz.Centralization()},
        {"direction": "input"},
        {"metric": riesz.ReweightedL2(lam=-0.9), "control": "signs"},
        {"metric": riesz.Sobolev(0.05), "control": "signs"},
        {"metric": riesz.ReweightedL2(lam=-0.9), "direction": "fan_in"},
        {"direction": ("output", "fan_in"), "metric": (TILDE, riesz.ReweightedL2(lam=-0.9))},
        {"direction": "output+input", "control": "signs"},
        {"metric": (riesz.ReweightedL2(lam=-0.9), riesz.Centralization())},
    ]
    for mesh in meshes(world):
        for setting in settings:
            model, twin = sharded_network(mesh), network()
            ours, theirs = optimizer_of(model, **setting), optimizer_of(twin, **setting)
            before = [p.placements for p in model.parameters()]
            for step in range(3):
                for one, optimizer in ((model, ours), (twin, theirs)):
                    optimizer.zero_grad()
                    backward(one, step)
                    optimizer.step()
            largest = max(largest, assert_alike(model, twin, 2e-5))
            assert [p.placements for p in model.parameters()] == before
            for p in model.parameters():
                momentum = ours.state[p]["momentum_buffer"]
                assert momentum.placements == p.placements
                assert momentum.to_local().shape == p.to_local().shape
    return largest


def fully_sharded_and_tensor_parallel(world: int) -> list[str] | None:
    """Shards interleave: the rank order is not the row order."""
    if world != 4:
        return None
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    all_placements: list[str] = []
    for metric in (TILDE, riesz.Sobolev(0.1), riesz.ReweightedL2()):
        torch.manual_seed(0)
        twin = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8))
        model = copy.deepcopy(twin)
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
        for one in (model, twin):
            optimizer = optimizer_of(one, metric=metric, layers="all")
            for step in range(3):
                optimizer.zero_grad()
                one(torch.randn(5, 6, generator=torch.Generator().manual_seed(step))).square().mean().backward()
                optimizer.step()
        assert_alike(model, twin)
        all_placements = [str(p.placements) for p in model.parameters()]
    assert any("_StridedShard" in placements for placements in all_placements)
    return all_placements


def diagnostics_are_those_of_one_process(world: int) -> None:
    for mesh in meshes(world):
        reports = []
        for model in (sharded_network(mesh), network()):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            attachment = riesz.attach(optimizer, model, metric=TILDE)
            attachment.recording = True
            backward(model, 0)
            optimizer.step()
            reports.append(attachment.diagnostics())
        for ours, theirs in zip(*reports, strict=True):
            assert ours.name == theirs.name
            assert ours.ratio == pytest.approx(theirs.ratio, 1e-5)
            assert ours.cosine == pytest.approx(theirs.cosine, 1e-5)


def unrecorded_diagnostics_say_what_to_do(world: int) -> None:
    model = sharded_network(meshes(world)[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=TILDE)
    backward(model, 0)
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"recording = True(.|\n)*it is a DTensor"):
        attachment.diagnostics()


def a_bad_entry_poisons_the_same_columns_on_all_ranks(world: int) -> None:
    mesh = meshes(world)[0]
    for metric in METRICS:
        for bad in (float("inf"), float("nan")):
            gradient = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
            gradient[9, 2] = bad  # on the last rank
            shards = distribute_tensor(gradient, mesh, [Shard(0)])
            riesz.precondition_(shards, metric)
            finite = torch.isfinite(shards.full_tensor())
            wanted = torch.isfinite(riesz.precondition_(gradient.clone(), metric))
            assert torch.equal(finite, wanted), (metric, bad)


def a_scaler_skips_the_step_on_all_ranks_or_on_none(world: int) -> None:
    for fused in (False, True):
        model = sharded_network(meshes(world)[0])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        riesz.attach(optimizer, model, metric=TILDE)
        scaler = torch.amp.GradScaler("cpu")
        before = [whole(p).clone() for p in model.parameters()]
        scaler.scale(backward_loss(model)).backward()
        gradient = next(p for p in model.parameters() if p.dim() == 4).grad.to_local()
        if dist.get_rank() == 0:
            gradient[0, 0, 0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        after = [whole(p) for p in model.parameters()]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), fused


def backward_loss(model: nn.Module) -> torch.Tensor:
    from training import loss_of

    return loss_of(model, 0)


def a_gradient_missing_on_one_rank_raises_on_all(world: int) -> None:
    mesh = meshes(world)[0]
    for metric in (TILDE, riesz.ReweightedL2()):
        weights = [nn.Parameter(distribute_tensor(torch.ones(8, 3, 1), mesh, [Shard(0)])) for _ in range(2)]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        riesz.attach(optimizer, metric=metric)
        for index, weight in enumerate(weights):
            if index == 0 or dist.get_rank() > 0:
                weight.grad = torch.zeros_like(weight)
        with pytest.raises(DisagreementError, match="expected the same work on all ranks"):
            optimizer.step()
        weights[1].grad = None  # missing everywhere: all ranks agree
        optimizer.step()


def norms_are_kept_where_squares_overflow_or_vanish(world: int) -> float:
    mesh, largest = meshes(world)[0], 0.0
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(12, 5, 1, dtype=torch.float64, generator=generator)
    spread = torch.logspace(0, -300, 12, dtype=torch.float64)[:, None, None]
    # Every shard of one asks for a scale of its own; of the last two, one entry asks for another than all the others.
    edges = [value.sign() * 2.0**power for power in (400, -400)]
    edges[0][0, 0, 0], edges[1][0, 0, 0] = 1.5 * 2.0**400, 0.75 * 2.0**-400
    spreads = (value, value * 1e200, value * 1e-200, value * 1e150 * spread, torch.zeros_like(value), *edges)
    for gradient in spreads:
        results = []
        for whole_gradient in (gradient.clone(), distribute_tensor(gradient, mesh, [Shard(0)])):
            weight = nn.Parameter(torch.zeros_like(whole_gradient))
            weight.grad = whole_gradient
            optimizer = torch.optim.SGD([weight], lr=0.1)
            riesz.attach(optimizer, metric=TILDE, control="norm")
            optimizer.step()
            results.append(whole(weight.grad))
        assert torch.isfinite(results[1]).all()
        largest = max(largest, relative_error(results[1], results[0]))
    assert largest <= 1e-12, largest
    return largest


def a_step_is_prepared_once_and_again_where_it_no_longer_holds(world: int) -> None:
    from riesz.sharded.step import PreparedStep

    mesh, made = meshes(world)[0], []
    original = PreparedStep.__init__

    def counted(self, *arguments):
        made.append(self)
        original(self, *arguments)

    PreparedStep.__init__ = counted
    try:
        value = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0))
        weights = [nn.Parameter(distribute_tensor(value, mesh, [Shard(0)])) for _ in range(2)]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        attachment = riesz.attach(optimizer, metric=TILDE)

        def step(present=2, layout=torch.contiguous_format):
            for index, weight in enumerate(weights):
                shards = distribute_tensor(value, mesh, [Shard(0)])
                local = shards.to_local().to(memory_format=layout)
                given = DTensor.from_local(local, mesh, [Shard(0)], shape=value.shape, stride=value.stride())
                weight.grad = given if index < present else None
            optimizer.step()
            wanted = attachment.metric.gradient(value)
            for weight in weights[:present]:
                assert relative_error(whole(weight.grad), wanted) <= 5e-6

        for _ in range(5):
            step()
        assert len(made) == 1
        attachment.metric = riesz.SobolevTilde(lam=0.7)  # a number: tables change, the layout does not
        step()
        assert len(made) == 1
        step(layout=torch.channels_last)
        assert len(made) == 2
        step(present=1)
        step()
        step(present=1)
        assert len(made) <= 4
        attachment.metric = riesz.Sobolev()
        step()
        assert len(made) <= 5
    finally:
        PreparedStep.__init__ = original


def several_meshes_and_plain_tensors_in_one_optimizer(world: int) -> dict:
    first = init_device_mesh("cpu", (world,))
    second = init_device_mesh("cpu", (2, world // 2)) if world % 2 == 0 else init_device_mesh("cpu", (1, world))
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(60, 4, 3, generator=generator) for _ in range(4)]
    laid_out = [
        distribute_tensor(values[0], first, [Shard(0)]),
        distribute_tensor(values[1], second, [Replicate(), Shard(0)]),
        values[2].clone(),
        distribute_tensor(values[3], second, [Shard(1), Replicate()]),
    ]
    parameters = [nn.Parameter(torch.zeros_like(value)) for value in laid_out]
    for parameter, value in zip(parameters, laid_out, strict=True):
        parameter.grad = value.clone()
    optimizer = torch.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:], "riesz_metric": "sobolev"}], 1)
    riesz.attach(optimizer, metric=TILDE)
    optimizer.step()  # at the first step, ranks also agree on their metrics
    for parameter, value in zip(parameters, laid_out, strict=True):
        parameter.grad = value.clone()
    with CommDebugMode() as counted:
        optimizer.step()
    for index, (parameter, value) in enumerate(zip(parameters, values, strict=True)):
        wanted = (TILDE if index < 2 else riesz.Sobolev()).gradient(value)
        assert relative_error(whole(parameter.grad), wanted) <= 5e-6
    # One for each mesh along which the directed axis is divided; none for the others.
    assert counted.get_total_counts() == (1 if world == 2 else 2)
    return {"collectives": counted.get_total_counts()}


def unsupported_layouts_are_refused_with_the_reason(world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    conv = nn.Conv2d(world * 2, 4, 1, bias=False)
    conv.weight = nn.Parameter(distribute_tensor(conv.weight.detach(), mesh, [Shard(1)]))
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
    reason = r"parameter 'weight': expected .*DTensor of shape \(4, .*Shard\(dim=1\).*'rasterized' reads it row by row"
    with pytest.raises(ValueError, match=reason):
        riesz.attach(optimizer, conv, metric=TILDE, direction="rasterized")
    largest = DTensor.from_local(torch.ones(4, 3), mesh, [Partial("max")], run_check=False)
    with pytest.raises(ValueError, match=r"placement .*max.* on mesh dim 0 is not supported.*Redistribute it"):
        riesz.precondition_(largest, TILDE)
    if world != 3:  # where it is wrong on every rank
        local = torch.ones(3 if dist.get_rank() == 0 else 1, 2)
        odd = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=(2 + world, 2), stride=(2, 1))
        with pytest.raises(ValueError, match="its local part has shape"):
            riesz.precondition_(odd, TILDE)


def accumulated_and_recomputed_gradients_are_directed_once(world: int) -> None:
    model, twin = sharded_network(meshes(world)[0]), network()
    ours, theirs = optimizer_of(model), optimizer_of(twin)
    for one, optimizer in ((model, ours), (twin, theirs)):
        optimizer.zero_grad()
        backward(one, 0)
        backward(one, 1)

        def closure(one=one, optimizer=optimizer):
            return backward(one, 2)

        optimizer.step(closure)
    assert_alike(model, twin)


def any_memory_layout_of_the_shards_is_kept(world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    value = torch.randn(7, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    shards = distribute(value, mesh, (Shard(0),))
    local = shards.to_local()
    # Every rank in an order of its own: columns must still be known by their place, not by their strides.
    order = [0, 2, 3, 1] if dist.get_rank() % 2 else [3, 2, 1, 0]
    stored = torch.empty([local.shape[d] for d in order]).permute([order.index(d) for d in range(4)])
    odd = DTensor.from_local(stored, mesh, [Shard(0)], run_check=False, shape=value.shape, stride=value.stride())
    strides = stored.stride()
    for metric in (TILDE, riesz.Sobolev(), riesz.ReweightedL2()):
        stored.copy_(local)
        whole_wanted = metric.gradient(value)
        wanted = distribute(whole_wanted, mesh, (Shard(0),)).to_local()
        riesz.precondition_(odd, metric)
        assert stored.stride() == strides
        assert (stored - wanted).abs().sum() <= 5e-6 * whole_wanted.abs().max()


def schedules_change_the_metric_on_all_ranks(world: int) -> None:
    model, twin = sharded_network(meshes(world)[0]), network()
    for one in (model, twin):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        attachment = riesz.attach(optimizer, one, metric=riesz.SobolevTilde())
        attachment.schedule(lambda step: {"lam": 1.0 / (1 + step)} if step < 2 else riesz.Identity())
        for step in range(4):
            optimizer.zero_grad()
            backward(one, step)
            with CommDebugMode() as counted:
                optimizer.step()
            if step > 2:
                assert counted.get_total_counts() == 0  # plain gradients cost nothing
    assert_alike(model, twin)


def buffers_are_kept_for_the_last_set_of_gradients_and_go_with_the_attachment(world: int) -> None:
    def kept() -> int:
        gc.collect()
        return sum(type(one) is Buffer and one._bytes is not None for one in gc.get_objects())

    mesh, before = meshes(world)[0], kept()
    weights = [nn.Parameter(distribute_tensor(torch.ones(8, 5, 1), mesh, [Shard(0)])) for _ in range(4)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    attachment = riesz.attach(optimizer, metric=TILDE)
    counts = []
    for missing in (None, 0, 1, 2, None):
        for index, weight in enumerate(weights):
            weight.grad = None if index == missing else torch.zeros_like(weight)
        optimizer.step()
        counts.append(kept() - before)
    assert counts == counts[:1] * 5, counts
    attachment.detach()
    assert kept() == before


def shards_that_are_offloaded_to_the_cpu_train_as_one_process_does(world: int) -> float:
    model, twin = network(), network()
    settings = {"mesh": meshes(world)[0], "offload_policy": CPUOffloadPolicy(pin_memory=False)}
    for layer in (model[0], model[3], model):
        fully_shard(layer, **settings)
    for trained in (model, twin):
        optimizer = optimizer_of(trained)
        for step in range(3):
            optimizer.zero_grad()
            backward(trained, step)
            optimizer.step()
    return assert_alike(model, twin)


def a_model_is_converted_after_a_step(world: int) -> None:
    """FSDP2 converts by swapping the contents of tensors, gradients among them."""
    model = sharded_network(meshes(world)[0])
    optimizer = optimizer_of(model)
    for step in range(3):
        backward(model, step)
        optimizer.step()
        model.double()
        model.float()


CHECKS = [
    training_equals_one_process,
    fully_sharded_and_tensor_parallel,
    diagnostics_are_those_of_one_process,
    unrecorded_diagnostics_say_what_to_do,
    a_bad_entry_poisons_the_same_columns_on_all_ranks,
    a_scaler_skips_the_step_on_all_ranks_or_on_none,
    a_gradient_missing_on_one_rank_raises_on_all,
    norms_are_kept_where_squares_overflow_or_vanish,
    a_step_is_prepared_once_and_again_where_it_no_longer_holds,
    several_meshes_and_plain_tensors_in_one_optimizer,
    unsupported_layouts_are_refused_with_the_reason,
    accumulated_and_recomputed_gradients_are_directed_once,
    any_memory_layout_of_the_shards_is_kept,
    schedules_change_the_metric_on_all_ranks,
    buffers_are_kept_for_the_last_set_of_gradients_and_go_with_the_attachment,
    shards_that_are_offloaded_to_the_cpu_train_as_one_process_does,
    a_model_is_converted_after_a_step,
]


def run(rank: int, world: int, folder, full: bool) -> dict:
    return {check.__name__: check(world) for check in CHECKS}
