"""The fast path of the compiled backend never outlives a change."""

from __future__ import annotations

import pytest
import torch

import riesz
from cases import relative_error
from kernel_oracle import METRIC, expected
from riesz.backends import FastPathCache, native, registry, tensor_guard
from riesz.backends import cpu as backend
from riesz.layout.axis import Axis, ColumnView

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")


@pytest.fixture(params=["compiled", "python"])
def guard(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(tensor_guard, "compiled_guard", lambda tensors: None)
    monkeypatch.setattr("riesz.apply._fast_paths", {})


CHANGES = {
    "another memory": lambda f: f.clone(),
    "another dtype": lambda f: f.double(),
    "another shape": lambda f: f[:10].clone(),
    "channels last": lambda f: f.to(memory_format=torch.channels_last),
    "strided": lambda f: torch.stack([f, f], -1)[..., 0],
    "transposed": lambda f: f.clone().transpose(0, 1),
    "negative": lambda f: torch._neg_view(-f),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_stale_when_a_gradient_is_replaced(change, guard):
    f, other = torch.randn(12, 12, 3, 3), torch.randn(7, 4)
    riesz.precondition_([f.clone(), other.clone()], METRIC)
    for _ in range(2):
        changed = CHANGES[change](f)
        wanted = expected(changed, METRIC)
        riesz.precondition_([changed, second := other.clone()], METRIC)
        assert relative_error(changed.detach(), wanted) <= 5e-6
        assert relative_error(second, expected(other, METRIC)) <= 5e-6


def test_the_fast_path_does_not_let_a_parameter_through(guard):
    f = torch.randn(12, 3)
    riesz.precondition_([f.clone()], METRIC)
    with pytest.raises(TypeError, match=r"got an nn\.Parameter, a weight"):
        riesz.precondition_([torch.nn.Parameter(f)], METRIC)


def test_a_fast_path_is_used_and_dropped_when_a_better_backend_appears(monkeypatch, guard):
    calls = []
    real = backend._call
    monkeypatch.setattr(backend, "_call", lambda *arguments: calls.append(1) or real(*arguments))
    monkeypatch.setattr(backend, "_direct_", None)
    fast_path = FastPathCache()
    f = torch.randn(9, 4)
    assert not fast_path.direct_([f], METRIC)
    fast_path.learn("auto", [f], [ColumnView.open(f, Axis(0))])
    assert fast_path.direct_([f], METRIC)
    assert len(calls) == 1
    better = registry.Backend("better", "", 1, lambda: None, lambda g: None, lambda jobs, metric: None)
    monkeypatch.setitem(registry._backends, "better", better)
    assert not fast_path.direct_([f], METRIC)


def attached(metric=METRIC, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3), torch.nn.Conv2d(8, 8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return model, optimizer, riesz.attach(optimizer, model, metric=metric, **options)


def steps_right(model, optimizer, metric):
    weights = [(module.weight, int(isinstance(module, torch.nn.ConvTranspose2d))) for module in model]
    wanted = [None if w.grad is None else expected(w.grad, metric, dim) for w, dim in weights]
    optimizer.step()
    for (w, _), f in zip(weights, wanted, strict=True):
        assert (w.grad is None) == (f is None)
        assert f is None or relative_error(w.grad, f) <= 5e-6


def test_the_hook_follows_gradients_that_come_and_go():
    model, optimizer, attachment = attached()
    for missing in (None, None, 1, 2, None, 0, None):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        if missing is not None:
            model[missing].weight.grad = None
        steps_right(model, optimizer, METRIC)
    attachment.metric = riesz.SobolevTilde(0.5)
    for module in model:
        module.weight.grad = torch.randn_like(module.weight)
    steps_right(model, optimizer, riesz.SobolevTilde(0.5))


def test_the_hook_follows_parameters_that_are_swapped():
    model, optimizer, _ = attached()
    for _ in range(3):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        steps_right(model, optimizer, METRIC)
    # Same shapes, other layers: the axes change places.
    model[1], model[2] = torch.nn.Conv2d(8, 8, 3), torch.nn.ConvTranspose2d(8, 8, 3)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    for _ in range(2):
        for module in model:
            module.weight.grad = torch.randn_like(module.weight)
        steps_right(model, optimizer, METRIC)


def test_a_path_of_inference_mode_does_not_let_an_inference_tensor_through():
    parameter = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    riesz.attach(optimizer, metric=METRIC, layers="all")
    parameter.grad = torch.ones(4, 3)
    with torch.inference_mode():
        for _ in range(3):
            optimizer.step()
        parameter.grad = gradient = torch.ones(4, 3)
        optimizer.step()
        assert torch.equal(gradient, by_hand := METRIC.gradient(torch.ones(4, 3)))
    parameter.grad = gradient
    with pytest.raises(ValueError, match="inference"):
        optimizer.step()
    assert torch.equal(gradient, by_hand)


def test_an_identity_takes_the_fast_path_until_another_metric_is_set(monkeypatch):
    model, optimizer, attachment = attached(riesz.Identity())
    for module in model:
        module.weight.grad = torch.randn_like(module.weight)
    steps_right(model, optimizer, riesz.Identity())
    with monkeypatch.context() as patched:
        patched.setattr(type(attachment), "_direct_by_slow_path", None)
        steps_right(model, optimizer, riesz.Identity())
        assert all(row.ratio == pytest.approx(1) for row in attachment.diagnostics())
    for metric in (riesz.Identity(scale=2.0), METRIC, riesz.Identity()):
        attachment.metric = metric
        for _ in range(2):
            steps_right(model, optimizer, metric)


def test_a_compiled_step_makes_its_jobs_once():
    views, numbers = [torch.ones(4, 6), torch.ones(3, 5)], torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    backend._kept_jobs.cache_clear()
    for _ in range(3):
        torch.ops.riesz.direct_(views, [1, 4, 6, 1, 1, 3, 5, 1], 1, False, numbers)
    assert (backend._kept_jobs.cache_info().misses, backend._kept_jobs.cache_info().hits) == (1, 2)
