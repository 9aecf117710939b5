"""Steps that are called in unusual ways: never squared, never silently plain."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

import riesz
from riesz.hook.attachment import attachment_of
from training import backward, impersonate, network


class Plain(torch.optim.Optimizer):
    """The least an optimizer can be; what it does in a step is given."""

    def __init__(self, parameters, act):
        super().__init__(parameters, {"lr": 0.1})
        self.act = act

    def step(self, closure=None):
        return self.act(self, closure)


def conv():
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))


def attached(make, model=None, **settings):
    model = model or conv()
    optimizer = make(model.parameters())
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2(), **settings)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    return model[0].weight, optimizer


def directed(weight):
    """How often the weight's gradient of ones was directed: ReweightedL2(1) doubles it."""
    return {1.0: 0, 2.0: 1, 4.0: 2}[weight.grad.unique().item()]


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), "text"])
def test_an_argument_that_cannot_be_called_is_no_closure(value):
    seen = []
    weight, optimizer = attached(lambda p: Plain(p, lambda self, given: seen.append(given)))
    optimizer.step(value)
    assert seen == [value]
    assert directed(weight) == 1


def test_a_closure_evaluated_twice_without_new_gradients_directs_once():
    weight, optimizer = attached(lambda p: Plain(p, lambda self, closure: (closure(), closure())))
    optimizer.step(lambda: 0.0)
    assert directed(weight) == 1


@pytest.mark.parametrize("recording", [False, True])
def test_a_gradient_that_a_closure_computes_once_is_directed_once_however_often_others_are(recording):
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 3, bias=False))
    weight, optimizer = attached(lambda p: Plain(p, lambda self, closure: [closure() for _ in range(4)]), model)
    attachment_of(optimizer).recording = recording
    other = model[1].weight

    def closure():
        other.grad = torch.ones_like(other)

    optimizer.step(closure)
    assert directed(weight) == directed(other) == 1
    assert {one.name for one in attachment_of(optimizer).diagnostics()} == {"0.weight", "1.weight"}


def test_a_closure_that_computes_anew_is_directed_anew():
    weight, optimizer = attached(lambda p: Plain(p, lambda self, closure: (closure(), closure())))

    def closure():
        weight.grad = torch.ones_like(weight)

    optimizer.step(closure)
    assert directed(weight) == 1
    optimizer.step(lambda: weight.grad.fill_(1.0))
    assert directed(weight) == 1


@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_a_new_gradient_with_the_id_and_version_of_a_directed_one_is_directed(backend):
    weight, optimizer = attached(
        lambda p: Plain(p, lambda self, closure: [closure() for _ in range(5)]), backend=backend
    )
    counts = []

    def closure():
        if counts:
            impersonate(weight)
        counts.append(directed(weight))

    optimizer.step(closure)
    assert counts == [0] * 5
    assert directed(weight) == 1


def test_lbfgs_with_a_conditional_clip_equals_directing_by_hand():
    metric = riesz.SobolevTilde(0.001, blend=0.0)

    def trained(by_hand):
        model = network()
        optimizer = torch.optim.LBFGS([model[0].weight], lr=1.0, max_iter=6)
        if not by_hand:
            with pytest.warns(UserWarning, match="LBFGS"):
                riesz.attach(optimizer, model, metric=metric)
        evaluations = 0

        def closure():
            nonlocal evaluations
            optimizer.zero_grad()
            loss = backward(model, 0)
            evaluations += 1
            if evaluations > 1:
                model[0].weight.grad.mul_(0.5)
            if by_hand:
                riesz.precondition_(model[0].weight.grad, metric)
            return loss

        optimizer.step(closure)
        assert evaluations >= 5
        return model[0].weight

    assert torch.equal(trained(False), trained(True))


def test_a_closure_that_assigns_the_data_of_a_gradient_is_directed_anew():
    weight, optimizer = attached(lambda p: Plain(p, lambda self, closure: (closure(), closure())))

    def closure():
        weight.grad.data = torch.ones_like(weight)

    optimizer.step(closure)
    assert directed(weight) == 1


def test_a_closure_that_is_never_evaluated_raises():
    weight, optimizer = attached(lambda p: Plain(p, lambda self, closure: None))
    with pytest.raises(RuntimeError, match=r"Plain\.step was given a closure and did not evaluate it"):
        optimizer.step(lambda: 0.0)
    optimizer.step()
    assert directed(weight) == 1


def test_a_step_that_keeps_its_closure_from_its_base_is_directed():
    class Dropping(torch.optim.SGD):
        def step(self, closure=None):
            return super().step()

    torch.optim.SGD(conv().parameters(), lr=0.1)
    weight, optimizer = attached(lambda p: Dropping(p, lr=0.0))
    optimizer.step(lambda: None)
    assert directed(weight) == 1


def test_one_gradient_reached_twice_is_directed_once():
    for backend in ("auto", "eager", "reference"):
        model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(2, 4, 3, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        riesz.attach(optimizer, model, metric=riesz.ReweightedL2(), backend=backend)
        for _ in range(3):
            model[0].weight.grad = model[1].weight.grad = torch.ones(4, 2, 3, 3)
            optimizer.step()
            assert directed(model[0].weight) == 1


def test_a_shallow_copy_is_refused():
    _, optimizer = attached(lambda p: torch.optim.SGD(p, lr=0.1))
    with pytest.raises(RuntimeError, match="is a shallow copy"):
        copy.copy(optimizer).step()
    with pytest.raises(TypeError, match="cannot be copied by itself"):
        copy.copy(attachment_of(optimizer))
    optimizer.step()


def test_a_class_that_copies_itself_is_warned_of():
    class Copying(torch.optim.SGD):
        def __deepcopy__(self, memo):
            return Copying([p.detach().clone().requires_grad_() for p in self.param_groups[0]["params"]], lr=0.1)

    with pytest.warns(UserWarning, match="Copying defines its own __deepcopy__"):
        attached(lambda p: Copying(p, lr=0.1))


def test_a_step_that_only_looks_hooked_is_refused():
    class Wrapped(torch.optim.SGD):
        @functools.wraps(torch.optim.SGD.step)
        def step(self, closure=None):
            return torch.optim.SGD.step.__wrapped__(self, closure)

    torch.optim.SGD(conv().parameters(), lr=0.1)
    with pytest.raises(TypeError, match="runs no step hooks"):
        attached(lambda p: Wrapped(p, lr=0.1))


def test_a_layer_lost_by_swapping_raises():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(6, 2, 3, 3))
    for _ in range(2):
        with pytest.raises(ValueError, match="parameters were replaced, and 1 that were directed are no longer known"):
            optimizer.step()


LOSING = {
    "a metric of another kind": lambda attachment: setattr(attachment, "metric", riesz.SobolevTilde()),
    "a checkpoint": lambda attachment: attachment.optimizer.load_state_dict(attachment.optimizer.state_dict()),
    "a scheduled metric": lambda attachment: attachment.optimizer.step(),
}


@pytest.mark.parametrize("act", LOSING)
def test_a_layer_lost_by_swapping_raises_until_it_is_mended(act):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    if act == "a scheduled metric":
        attachment.schedule(lambda step: riesz.SobolevTilde())
    replaced = optimizer.param_groups[0]["params"][0]
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(6, 2, 3, 3))
    for _ in range(2):
        for step in (LOSING[act], lambda attachment: optimizer.step()):
            with pytest.raises(ValueError, match="were replaced, and 1 that were directed are no longer known"):
                step(attachment)
    model[0].weight = optimizer.param_groups[0]["params"][0]
    backward(model, 0)
    f = model[0].weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model[0].weight.grad, attachment.metric.gradient(f))
    model[0].weight = optimizer.param_groups[0]["params"][0] = replaced
    backward(model, 0)
    optimizer.step()


def test_overflow_made_by_directing_is_shown_to_a_fused_scaler():
    model = conv().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = model[0].weight.detach().clone()
    for _ in range(3):
        scaler.scale(torch.ones(()))
        model[0].weight.grad = torch.full_like(model[0].weight, 40000.0)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model[0].weight, before)


def test_detach_leaves_the_groups_as_they_were():
    model = conv()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = set(optimizer.param_groups[0])
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    attachment.schedule(lambda step: None)
    optimizer.step()
    attachment.detach()
    assert set(optimizer.param_groups[0]) == keys


def test_a_schedule_that_remembers_resumes_with_its_metric_and_its_count():
    def schedule(step):
        return riesz.Identity() if step == 2 else None

    model = conv()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    attachment.schedule(schedule)
    for _ in range(4):
        optimizer.step()
    new = torch.optim.SGD(model.parameters(), lr=0.1)
    resumed = riesz.attach(new, model, metric=riesz.ReweightedL2())
    resumed.schedule(schedule)
    new.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert (resumed.metric, resumed.step) == (riesz.Identity(), 4)
    new.load_state_dict(torch.optim.SGD(model.parameters(), lr=0.1).state_dict())
    assert resumed.step == 0


@pytest.mark.parametrize("zero", [0, 0.0, torch.tensor(0.0)], ids=["int", "float", "tensor"])
def test_a_step_that_only_creates_state_is_not_counted(zero):
    model = conv()
    optimizer = torch.optim.SGD(model.parameters(), lr=zero)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    attachment.schedule(lambda step: {"lam": 1.0 + step})
    optimizer.step()
    assert attachment.step == 0
    optimizer.param_groups[0]["lr"] = zero + 0.1
    optimizer.step()
    assert (attachment.step, attachment.metric.lam) == (1, 1.0)


def test_a_bad_setting_in_a_checkpoint_is_refused_when_it_is_loaded():
    model = conv()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    state = optimizer.state_dict()
    state["param_groups"][0]["riesz_metric"] = "sobolef"
    with pytest.raises(ValueError, match="param group 0: metric: expected one of"):
        optimizer.load_state_dict(state)


@pytest.fixture
def swapping():
    """Modules are converted by swapping the contents of their tensors, as FSDP2 does."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("recording", [False, True])
def test_a_model_may_be_converted_after_a_step(swapping, recording):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    attachment.recording = recording
    for _ in range(3):  # by the slow path, then by the fast one
        backward(model, 0)
        optimizer.step()
        model.double()
        model.float()
    if not recording:
        with pytest.raises(RuntimeError, match="its gradient was changed after the step directed it"):
            attachment.diagnostics()


def test_a_directed_gradient_is_saved_and_loaded_like_any_other(tmp_path):
    weight, optimizer = attached(lambda p: torch.optim.SGD(p, lr=0.1))
    optimizer.step()
    torch.save(weight.grad, tmp_path / "gradient.pt")
    assert torch.equal(torch.load(tmp_path / "gradient.pt", weights_only=True), weight.grad)
    assert torch.equal(copy.deepcopy(weight.grad), weight.grad)
