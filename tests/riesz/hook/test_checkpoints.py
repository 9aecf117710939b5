"""Checkpoints, copies, settings in param groups, schedules."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import riesz
from riesz.hook.attachment import attachment_of
from training import backward, network

METRIC = riesz.SobolevTilde(0.3)


def steps(model, optimizer, numbers):
    for number in numbers:
        optimizer.zero_grad()
        backward(model, number)
        optimizer.step()


def same(a, b):
    return all(map(torch.equal, a.parameters(), b.parameters()))


def ones_are_directed(optimizer, factor=2):
    """Whether the optimizer directs: ReweightedL2(1) doubles a constant gradient."""
    weight = next(p for group in optimizer.param_groups for p in group["params"] if p.dim() == 4)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return bool((weight.grad == factor).all())


def saved_and_loaded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("saved_attached", [False, True])
@pytest.mark.parametrize("loaded_attached", [False, True])
def test_checkpoints_cross_between_plain_and_attached(kind, saved_attached, loaded_attached):
    model = network()
    optimizer = kind(model.parameters(), lr=0.01)
    if saved_attached:
        riesz.attach(optimizer, model, metric=METRIC)
    steps(model, optimizer, range(2))
    checkpoint = saved_and_loaded({"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    resumed = network(seed=9)
    new = kind(resumed.parameters(), lr=0.5)
    if loaded_attached:
        riesz.attach(new, resumed, metric=METRIC)
    resumed.load_state_dict(checkpoint["model"])
    new.load_state_dict(checkpoint["optimizer"])
    steps(resumed, new, range(2, 4))

    if saved_attached and not loaded_attached:
        attachment_of(optimizer).detach()
    elif loaded_attached and not saved_attached:
        riesz.attach(optimizer, model, metric=METRIC)
    steps(model, optimizer, range(2, 4))
    assert same(model, resumed)


def test_an_attached_checkpoint_loads_where_riesz_is_not_installed(tmp_path):
    model = network()
    optimizer = torch.optim.SGD([{"params": model.parameters(), "riesz_metric": "sobolev(lam=0.5)"}], lr=0.1)
    riesz.attach(optimizer, model, metric=METRIC).schedule(lambda step: None)
    steps(model, optimizer, range(2))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    script = (
        "import sys; sys.modules['riesz'] = None; import torch;"
        f"state = torch.load({str(tmp_path / 'optimizer.pt')!r}, weights_only=True);"
        "p = [torch.nn.Parameter(torch.zeros(n)) for n in range(1, len(state['param_groups'][0]['params']) + 1)];"
        "torch.optim.SGD(p, lr=1.0).load_state_dict(state | {'state': {}});"
        "print(state['param_groups'][0]['riesz_step'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("made_by", ["attach", "directed"])
def test_a_copy_trains_on_exactly_as_the_original(copied, made_by):
    model = network()
    if made_by == "attach":
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        riesz.attach(optimizer, model, metric=METRIC)
    else:
        optimizer = riesz.directed(torch.optim.Adam)(model.parameters(), lr=0.01, metric=METRIC, model=model)
    steps(model, optimizer, range(2))
    twin_model, twin = copied((model, optimizer))
    again_model, again = copied((twin_model, twin))
    for m, o in ((model, optimizer), (twin_model, twin), (again_model, again)):
        steps(m, o, range(2, 4))
    assert same(model, twin_model)
    assert same(model, again_model)
    attachment = attachment_of(again)
    assert attachment.optimizer is again
    attachment.metric = riesz.ReweightedL2()
    assert attachment_of(optimizer).metric == METRIC
    assert ones_are_directed(again)


def test_a_copy_alone_has_parameters_of_its_own_and_directs_them():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())
    twin = copy.deepcopy(optimizer)
    assert ones_are_directed(twin)
    assert model[0].weight.grad is None
    twin.register_step_pre_hook(lambda *_: None)  # must not take the place of ours
    assert ones_are_directed(twin)
    attachment.detach()
    assert ones_are_directed(copy.deepcopy(optimizer), factor=1)


def test_pickled_bytes_load_in_another_process(tmp_path):
    model = nn.Sequential(nn.Conv2d(2, 4, 3))
    made = riesz.directed(torch.optim.SGD)
    optimizer = made(model.parameters(), lr=0.1, metric="reweighted-l2", model=model)
    (tmp_path / "optimizer.pickle").write_bytes(pickle.dumps((made, optimizer)))
    script = (
        "import pickle, riesz, torch;"
        f"made, o = pickle.load(open({str(tmp_path / 'optimizer.pickle')!r}, 'rb'));"
        "p = o.param_groups[0]['params'][0]; p.grad = torch.ones_like(p); o.step();"
        "print(made is riesz.directed(torch.optim.SGD), type(o) is made, p.grad.unique().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True [2.0]"


def groups(model, **settings):
    return [
        {"params": [model[0].weight], **settings},
        {"params": [p for p in model.parameters() if p is not model[0].weight]},
    ]


def test_groups_override_metric_and_direction_and_survive_checkpoints():
    model = network()
    settings = {"riesz_metric": "reweighted-l2(lam=4)", "riesz_direction": "input"}
    optimizer = torch.optim.SGD(groups(model, **settings), lr=0.0)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2())

    def factors():
        for weight in (model[0].weight, model[3].weight):
            weight.grad = torch.ones_like(weight)
        optimizer.step()
        return model[0].weight.grad.unique().tolist() + model[3].weight.grad.unique().tolist()

    assert factors() == [5, 2]
    assert {r.name: r.axis for r in attachment.report() if r.applied} == {"0.weight": 1, "3.weight": 0}
    plain = torch.optim.SGD(groups(network()), lr=0.5).state_dict()
    optimizer.load_state_dict(saved_and_loaded(plain))
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert factors() == [5, 2]
    other = torch.optim.SGD(groups(network(), riesz_metric="reweighted-l2(lam=9)"), lr=0.5).state_dict()
    optimizer.load_state_dict(saved_and_loaded(other))
    assert factors() == [10, 2]
    optimizer.param_groups[0]["riesz_metric"] = "identity"
    assert factors() == [1, 2]


def test_a_bad_setting_in_a_group_is_named_with_its_group():
    model = network()
    for settings, words in (
        ({"riesz_metric": "sobolef"}, "param group 0: metric: expected one of"),
        ({"riesz_metric": 3}, "param group 0: metric: expected a riesz metric"),
        ({"riesz_direction": "up"}, "param group 0: direction: expected one of"),
        ({"riesz_metrik": "sobolev"}, "or 'riesz_direction', got 'riesz_metrik'"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            riesz.attach(torch.optim.SGD(groups(model, **settings), lr=0.1), model, metric=METRIC)
        assert words in str(caught.value)


def test_a_schedule_sets_numbers_or_metrics_and_resumes_from_a_checkpoint():
    def schedule(step):
        return riesz.Identity() if step >= 3 else {"lam": 1.0 + step} if step != 1 else None

    def seen(attachment, optimizer, count):
        told = []
        for _ in range(count):
            optimizer.step()
            told.append(attachment.metric)
        return told

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2(7.0))
    attachment.schedule(schedule)
    wanted = [riesz.ReweightedL2(lam) for lam in (1.0, 1.0, 3.0)] + [riesz.Identity()]
    assert seen(attachment, optimizer, 2) == wanted[:2]
    state = saved_and_loaded(optimizer.state_dict())
    assert seen(attachment, optimizer, 2) == wanted[2:]

    new = torch.optim.SGD(model.parameters(), lr=0.1)
    resumed = riesz.attach(new, model, metric=riesz.ReweightedL2(1.0))
    resumed.schedule(schedule)
    new.load_state_dict(state)
    assert resumed.step == 2
    assert seen(resumed, new, 2) == wanted[2:]
    assert resumed.step == 4


def test_a_schedule_that_ends_leaves_nothing_in_the_state_dict_and_the_metric_as_it_is():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = optimizer.state_dict()
    attachment = riesz.attach(optimizer, model, metric=riesz.ReweightedL2(7.0))
    attachment.schedule(lambda step: {"lam": 1.0 + step})
    optimizer.step()
    assert optimizer.state_dict() != plain
    attachment.schedule(None)
    assert optimizer.state_dict() == plain
    optimizer.step()
    assert (attachment.metric, attachment.step) == (riesz.ReweightedL2(1.0), 0)


def test_a_scheduled_metric_of_a_users_own_class_resumes_from_a_checkpoint():
    class Mine(riesz.ReweightedL2):
        pass

    states, metrics = [], []
    for _ in range(2):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        attachment = riesz.attach(optimizer, model, metric=Mine(7.0))
        attachment.schedule(lambda step: {"lam": 3.0} if step == 0 else None)
        if states:
            optimizer.load_state_dict(states[0])
        optimizer.step()
        states.append(saved_and_loaded(optimizer.state_dict()))
        metrics.append(attachment.metric)
    assert metrics == [Mine(3.0), Mine(3.0)]


def test_a_schedule_is_asked_once_per_step_however_often_the_closure_runs():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4)
    with pytest.warns(UserWarning, match="LBFGS"):
        attachment = riesz.attach(optimizer, model, metric=METRIC)
    asked = []
    attachment.schedule(lambda step: asked.append(step))

    def closure():
        optimizer.zero_grad()
        return backward(model, 0)

    optimizer.step(closure)
    optimizer.step(closure)
    assert asked == [0, 1]


def test_a_bad_schedule_is_refused():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=METRIC)
    with pytest.raises(TypeError, match="expected a function of the step or None, got 3"):
        attachment.schedule(3)
    for bad, words in (
        ({"sigma": 1.0}, "(blend, lam, riemann, scale), got 'sigma'"),
        ({"lam": -1.0}, "SobolevTilde: expected lam > 0"),
        ("sobolef", "got 'sobolef'; did you mean 'sobolev'?"),
        (0.5, "schedule: expected a metric, its text, a dict of its numbers or None from fn(0), got 0.5"),
    ):
        attachment.schedule(lambda step, bad=bad: bad)
        with pytest.raises((TypeError, ValueError)) as caught:
            optimizer.step()
        assert words in str(caught.value)
    assert attachment.metric == METRIC
