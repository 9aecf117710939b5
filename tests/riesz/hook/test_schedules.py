"""The schedules of `riesz.schedule`: what they apply, and that they live through copies and checkpoints."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import riesz
from riesz.hook.attachment import attachment_of
from training import backward, network

METRIC = riesz.SobolevTilde(0.3, scale=2.0, blend=0.5)
SCHEDULES = {"first epochs": riesz.schedule.first_epochs(2, 2), "warm-up": riesz.schedule.warmup(4)}


def scheduled(schedule, model=None, metric=METRIC):
    model = network() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    attachment = riesz.attach(optimizer, model, metric=metric)
    attachment.schedule(schedule)
    return model, optimizer, attachment


def train(model, optimizer, numbers):
    for number in numbers:
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()


def test_first_epochs_directs_those_and_no_others():
    directed, _, _ = three = scheduled(riesz.schedule.first_epochs(2, 2))
    train(*three[:2], range(6))
    by_hand = network()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9)
    attachment = riesz.attach(optimizer, by_hand, metric=METRIC)
    train(by_hand, optimizer, range(4))
    attachment.enabled = False
    train(by_hand, optimizer, range(4, 6))
    assert all(map(torch.equal, directed.parameters(), by_hand.parameters()))


def test_a_warm_up_applies_the_mean_of_the_plain_and_the_directed_gradient():
    model, optimizer, attachment = scheduled(riesz.schedule.warmup(4))
    weight = model[0].weight
    f = torch.randn_like(weight)
    for step in range(6):
        weight.grad = f.clone()
        optimizer.step()
        share = min(1.0, step / 4)
        wanted = share * METRIC.gradient(f) + (1 - share) * f
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-5, atol=1e-6)
    assert attachment.metric == METRIC


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_of_the_optimizer_continues_as_the_original(name, copied):
    model, optimizer, attachment = scheduled(SCHEDULES[name])
    assert copied(SCHEDULES[name]) == SCHEDULES[name]
    train(model, optimizer, range(3))
    other_model, other = copied((model, optimizer))
    train(model, optimizer, range(3, 6))
    train(other_model, other, range(3, 6))
    assert attachment_of(other).metric == attachment.metric
    assert all(map(torch.equal, model.parameters(), other_model.parameters()))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("schedule_first", [True, False])
@pytest.mark.parametrize("saved_at", [2, 5])
def test_training_resumed_from_a_checkpoint_is_the_same(name, schedule_first, saved_at):
    model, optimizer, _ = scheduled(SCHEDULES[name])
    train(model, optimizer, range(saved_at))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, range(saved_at, 7))

    resumed = network(seed=9)
    new = torch.optim.SGD(resumed.parameters(), lr=0.1, momentum=0.9)
    attachment = riesz.attach(new, resumed, metric=METRIC)
    if schedule_first:
        attachment.schedule(SCHEDULES[name])
    resumed.load_state_dict(saved[0])
    new.load_state_dict(saved[1])
    if not schedule_first:
        attachment.schedule(SCHEDULES[name])
    train(resumed, new, range(saved_at, 7))
    assert attachment.step == 7
    assert all(map(torch.equal, model.parameters(), resumed.parameters()))


def test_going_back_to_an_earlier_step_directs_again():
    _, optimizer, attachment = scheduled(riesz.schedule.first_epochs(1, 1))
    optimizer.step()
    optimizer.step()
    assert attachment.metric == riesz.Identity()
    attachment.step = 0
    optimizer.step()
    assert attachment.metric == METRIC


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "4"])
def test_counts_are_checked(bad):
    words = f"expected an int of 1 or more, got {bad!r}"
    for make in (
        lambda: riesz.schedule.warmup(bad),
        lambda: riesz.schedule.first_epochs(bad, 2),
        lambda: riesz.schedule.first_epochs(2, bad),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_a_projection_has_no_warm_up():
    with pytest.raises(TypeError, match=r"expected a metric with scale and blend, got Centralization\(\)"):
        scheduled(riesz.schedule.warmup(4), metric=riesz.Centralization())


def test_a_schedule_without_an_attachment_says_so():
    with pytest.raises(RuntimeError, match="has no metric yet"):
        riesz.schedule.warmup(4)(0)


def test_a_second_schedule_starts_from_the_metric_that_was_given():
    model, optimizer, attachment = scheduled(riesz.schedule.warmup(10))
    train(model, optimizer, range(3))
    attachment.schedule(riesz.schedule.warmup(4))
    train(model, optimizer, range(3))
    assert attachment.metric == METRIC
    attachment.schedule(riesz.schedule.first_epochs(1, 1))
    train(model, optimizer, range(1))
    assert attachment.metric == riesz.Identity()
    attachment.schedule(riesz.schedule.first_epochs(100, 1))
    train(model, optimizer, range(1))
    assert attachment.metric == METRIC


def test_a_schedule_with_a_method_named_of_is_a_function_like_any_other():
    class Halving:
        def of(self, total):
            return f"a part of {total}"

        def __call__(self, step):
            return {"scale": 0.5**step}

    model, optimizer, attachment = scheduled(Halving())
    train(model, optimizer, range(3))
    assert attachment.metric.scale == 0.25


@pytest.mark.parametrize("rate", [0.0, torch.tensor(0.0)], ids=["float", "tensor"])
def test_a_step_at_a_rate_of_zero_is_not_counted(rate):
    model, optimizer, attachment = scheduled(riesz.schedule.warmup(4))
    optimizer.param_groups[0]["lr"] = rate
    train(model, optimizer, range(1))
    assert attachment.step == 0
    optimizer.param_groups[0]["lr"] = rate + 0.1
    train(model, optimizer, range(1))
    assert attachment.step == 1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_rate_that_starts_at_zero_takes_the_scheduled_metric(kind):
    """Momentum and Adam's moments take the gradient of a step at rate 0."""
    weights = []
    for schedule in (riesz.schedule.warmup(4), None):
        model = network()
        optimizer = kind(model.parameters(), lr=0.0, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
        attachment = riesz.attach(optimizer, model, metric=METRIC)
        attachment.schedule(schedule)
        for number, rate in enumerate([0.0, 0.05, 0.1]):
            optimizer.param_groups[0]["lr"] = rate
            if schedule is None:  # by hand: the first two steps are the schedule's step 0, plain
                attachment.metric = riesz.schedule.warmup(4).of(METRIC)(max(number - 1, 0))
            train(model, optimizer, [number])
        weights.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *weights))


def remembering(step):
    """Changes the metric at one step and leaves it afterwards: what it wants next is not to be had from the step."""
    return riesz.Identity() if step == 2 else {"lam": 3.0} if step == 0 else None


@pytest.mark.parametrize("schedule", [remembering, *SCHEDULES.values()], ids=["remembering", *SCHEDULES])
@pytest.mark.parametrize("order", ["attach schedule load", "attach load schedule", "load attach schedule"])
@pytest.mark.parametrize("saved_at", [1, 3])
def test_a_checkpoint_may_be_loaded_before_or_after_attaching_and_scheduling(order, schedule, saved_at):
    model, optimizer, _ = scheduled(schedule)
    train(model, optimizer, range(saved_at))
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, range(saved_at, 6))

    again = network()
    again.load_state_dict(weights)
    resumed = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    for action in order.split():
        if action == "attach":
            attachment = riesz.attach(resumed, again, metric=METRIC)
        elif action == "schedule":
            attachment.schedule(schedule)
        else:
            resumed.load_state_dict(state)
    train(again, resumed, range(saved_at, 6))
    assert all(map(torch.equal, model.parameters(), again.parameters()))


def test_a_checkpoint_without_a_schedule_begins_it_anew():
    model, optimizer, attachment = scheduled(remembering)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).state_dict()
    train(model, optimizer, range(3))
    assert attachment.metric == riesz.Identity()
    optimizer.load_state_dict(plain)
    assert (attachment.metric, attachment.step) == (METRIC, 0)
    assert optimizer.param_groups[0]["riesz_scheduled"] == str(METRIC)


def test_a_metric_that_is_assigned_between_two_schedules_is_what_the_second_starts_from():
    _, _, attachment = scheduled(remembering)
    attachment.metric = riesz.ReweightedL2(5.0)
    attachment.schedule(lambda step: None)
    assert attachment.metric == riesz.ReweightedL2(5.0)
