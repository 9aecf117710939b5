"""Gradient scalers, clipping, accumulation, learning-rate schedulers: the order of things around a step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import riesz
from cases import relative_error
from training import backward, batch, conv_gradients, loss_of, network

METRIC = riesz.SobolevTilde(0.1)


def scaled_run(fused, poison=None, metric=METRIC, by_hand=False):
    """Three scaled steps, the second one with a non-finite gradient if `poison` is given; weights and scale after."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    if not by_hand:
        riesz.attach(optimizer, model, metric=metric)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if poison is not None and step == 1:
            model[0].weight.grad[1, 0, 0, 0] = poison
        if by_hand:
            riesz.precondition_(conv_gradients(model), metric)
        scaler.step(optimizer)
        scaler.update()
    return [p.detach().clone() for p in model.parameters()], scaler.get_scale()


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_training_equals_plain_training(fused):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    riesz.attach(optimizer, model, metric=METRIC)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    weights, scale = scaled_run(fused)
    assert scale == 2.0**10
    assert max(relative_error(a, b) for a, b in zip(weights, model.parameters(), strict=True)) <= 1e-5


@pytest.mark.parametrize("poison", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("fused", [False, True])
def test_a_non_finite_gradient_still_skips_the_step(fused, poison):
    weights, scale = scaled_run(fused, poison)
    assert scale == 2.0**9
    assert all(torch.isfinite(w).all() for w in weights)
    by_hand, _ = scaled_run(fused, poison, by_hand=True)
    assert max(relative_error(a, b) for a, b in zip(weights, by_hand, strict=True)) <= 1e-5


def steps_taken(kind, fused, weights, metric):
    """Steps taken of 60, and of the last 20: of a scaler that starts too high for float16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(64, 3))
    model.to(weights)
    optimizer = kind(model.parameters(), lr=1e-4, fused=fused)
    if metric is not None:
        riesz.attach(optimizer, model, metric=metric)
    scaler = torch.amp.GradScaler("cpu")
    taken = []
    for step in range(60):
        images, labels = batch(step)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=weights == torch.float32):
            loss = 200 * nn.functional.cross_entropy(model(images.to(weights)).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        taken.append(not all(map(torch.equal, model.parameters(), before)))
    assert all(torch.isfinite(p).all() for p in model.parameters())
    return sum(taken), sum(taken[40:])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize(
    ("fused", "weights"), [(True, torch.float16), (True, torch.float32), (False, torch.float32)], ids=str
)
def test_overflow_made_by_directing_lowers_the_scale(name, fused, weights, scaled_steps):
    """Unfused, a scaler refuses float16 gradients. SobolevTilde(0.001) multiplies a wave along the channels by 25."""
    kind = getattr(torch.optim, name)
    plain, _ = steps_taken(kind, fused, weights, None)
    taken, of_the_last_20 = steps_taken(kind, fused, weights, riesz.SobolevTilde(0.001))
    scaled_steps[f"{name}{' fused' if fused else ''}, {str(weights)[6:]} weights"] = (plain, taken)
    assert plain >= 50
    assert taken >= plain - 5
    assert of_the_last_20 == 20


def test_clipping_before_the_step_acts_on_the_ordinary_gradient():
    model, twin = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=METRIC)
    for m in (model, twin):
        backward(m, 0)
        nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    optimizer.step()
    riesz.precondition_(conv_gradients(twin), METRIC)
    assert all(map(torch.equal, conv_gradients(model), conv_gradients(twin)))


def test_accumulated_gradients_are_directed_once():
    model, twin = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=METRIC)
    for m in (model, twin):
        for micro_batch in range(4):
            (loss_of(m, micro_batch) / 4).backward()
    optimizer.step()
    riesz.precondition_(conv_gradients(twin), METRIC)
    assert all(map(torch.equal, conv_gradients(model), conv_gradients(twin)))


@pytest.mark.parametrize("set_to_none", [False, True])
def test_both_ways_of_zeroing_gradients_work(set_to_none):
    results = []
    for attached in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if attached:
            riesz.attach(optimizer, model, metric=METRIC)
        for step in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            backward(model, step)
            if not attached:
                riesz.precondition_(conv_gradients(model), METRIC)
            optimizer.step()
        results.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *results))


def test_channels_last_training_keeps_strides_and_maths():
    plain, last = network(), network().to(memory_format=torch.channels_last)
    for model in (plain, last):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        riesz.attach(optimizer, model, metric=METRIC)
        images, labels = batch(0)
        images = images.to(memory_format=torch.channels_last) if model is last else images
        nn.functional.cross_entropy(model(images), labels).backward()
        strides = [g.stride() for g in conv_gradients(model)]
        optimizer.step()
        assert [g.stride() for g in conv_gradients(model)] == strides
    for a, b in zip(plain.parameters(), last.parameters(), strict=True):
        assert relative_error(b.detach(), a.detach()) <= 1e-5


SCHEDULERS = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 1),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 2]),
    "ConstantLR": torch.optim.lr_scheduler.ConstantLR,
    "LinearLR": torch.optim.lr_scheduler.LinearLR,
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": torch.optim.lr_scheduler.PolynomialLR,
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5**step),
    "MultiplicativeLR": lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "ReduceLROnPlateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("scheduler_first", [False, True])
def test_learning_rate_schedulers_work_before_and_after_attaching(name, scheduler_first):
    results = []
    for attached in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if attached and not scheduler_first:
            riesz.attach(optimizer, model, metric=METRIC)
        scheduler = SCHEDULERS[name](optimizer)
        if attached and scheduler_first:
            riesz.attach(optimizer, model, metric=METRIC)
        for step in range(4):
            optimizer.zero_grad()
            loss = backward(model, step)
            if not attached:
                riesz.precondition_(conv_gradients(model), METRIC)
            optimizer.step()
            scheduler.step(*[loss.item()] * (name == "ReduceLROnPlateau"))
        results.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *results))
