"""Two directions: one metric after the other, each along its own axis."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import riesz
from cases import relative_error
from networks import Zoo
from training import backward, network

DAMPED, TILDE = riesz.ReweightedL2(lam=-0.9), riesz.SobolevTilde(0.02)


def step(model, **settings):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    attachment = riesz.attach(optimizer, model, **settings)
    for index in range(2):
        optimizer.zero_grad()
        backward(model, index)
        optimizer.step()
    return attachment


def by_hand(model, *pairs):
    """The same steps, each metric attached by itself: torch runs hooks of optimizers in no other order here."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for index in range(2):
        optimizer.zero_grad()
        backward(model, index)
        for metric, direction in pairs:
            helper = torch.optim.SGD(model.parameters(), lr=0.0)
            riesz.attach(helper, model, metric=metric, direction=direction)
            helper.step()
        optimizer.step()


@pytest.mark.parametrize(
    ("settings", "pairs"),
    [
        ({"metric": DAMPED, "direction": ("output", "fan_in")}, [(DAMPED, "output"), (DAMPED, "fan_in")]),
        ({"metric": TILDE, "direction": "output+fan_in"}, [(TILDE, "output"), (TILDE, "fan_in")]),
        ({"metric": (TILDE, DAMPED), "direction": ("output", "input")}, [(TILDE, "output"), (DAMPED, "input")]),
        ({"metric": (DAMPED, TILDE), "direction": (0, 1)}, [(DAMPED, 0), (TILDE, 1)]),
        (
            {"metric": "reweighted-l2(lam=-0.9) + centralization"},
            [(DAMPED, "output"), (riesz.Centralization(), "output")],
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("order", [1, -1])
def test_two_directions_are_one_after_the_other_in_any_order(settings, pairs, order):
    ours, theirs = network().double(), network().double()
    convert = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        step(ours, **settings)
        by_hand(theirs, *pairs[::order])
    finally:
        torch.set_default_dtype(convert)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert relative_error(a, b) <= 1e-12


def test_on_every_kind_of_conv_the_result_is_the_product_of_dense_matrices():
    zoo = Zoo().double()
    optimizer = torch.optim.SGD(zoo.parameters(), lr=0.0)
    riesz.attach(optimizer, zoo, metric=(TILDE, DAMPED), direction=("output", "fan_in"))
    wanted = {}
    for p in zoo.parameters():
        p.grad = torch.randn_like(p)
    for metric, direction in ((TILDE, "output"), (DAMPED, "fan_in")):
        twin = copy.deepcopy(zoo)
        for p, q in zip(zoo.parameters(), twin.parameters(), strict=True):
            q.grad = p.grad.clone() if not wanted else wanted[id(p)]
        helper = torch.optim.SGD(twin.parameters(), lr=0.0)
        riesz.attach(helper, twin, metric=metric, direction=direction)
        helper.step()
        wanted = {id(p): q.grad for p, q in zip(zoo.parameters(), twin.parameters(), strict=True)}
    optimizer.step()
    for name, p in zoo.named_parameters():
        if p.dim():
            assert relative_error(p.grad, wanted[id(p)]) <= 1e-12, name


def test_directions_with_a_common_axis_are_refused():
    model = network()
    for settings in (
        {"metric": DAMPED, "direction": ("input", "fan_in")},
        {"metric": DAMPED, "direction": ("output", "output")},
        {"metric": DAMPED, "direction": ("output", "rasterized")},
        {"metric": (DAMPED, riesz.Centralization()), "direction": ("fan_in", "output")},
    ):
        with pytest.raises(ValueError, match="expected two directions without a common axis"):
            riesz.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, **settings)
    with pytest.raises(TypeError, match="direction: expected one of"):
        riesz.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, metric=DAMPED, direction=("output",))
    with pytest.raises(ValueError, match="direction: expected one of"):
        riesz.attach(torch.optim.SGD(model.parameters(), lr=0.1), model, metric=DAMPED, direction="output+fan-in")


def test_a_pair_is_no_metric_along_one_axis():
    with pytest.raises(ValueError, match="expected one metric for one axis"):
        riesz.precondition_(torch.randn(4, 3), (DAMPED, TILDE))
    with pytest.raises(ValueError, match="a tuple of two, got 3"):
        riesz.metric((DAMPED, TILDE, DAMPED))
    with pytest.raises(ValueError, match="two metrics at most"):
        riesz.metric((DAMPED, (TILDE, DAMPED)))


def test_the_report_has_both_axes_and_a_bias_is_directed_once():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report = riesz.attach(optimizer, model, metric=DAMPED, direction="output+fan_in", layers="all").report()
    assert "0, fan-in of 0  6, 18" in str(report)
    records = {r.name: r for r in report}
    assert records["0.weight"].second is not None
    assert records["0.bias"].second is None


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("control", [None, "signs", "norm"])
def test_diagnostics_compare_with_the_gradient_before_both(recording, control):
    model = network().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    settings = {"metric": (DAMPED, TILDE), "direction": ("output", "fan_in"), "control": control}
    attachment = riesz.attach(optimizer, model, **settings)
    attachment.recording = recording
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = {n: p.grad.clone() for n, p in model.named_parameters()}
    optimizer.step()
    for one in attachment.diagnostics():
        f, g = before[one.name], dict(model.named_parameters())[one.name].grad
        assert one.ratio == pytest.approx((g.norm() / f.norm()).item(), rel=1e-9)
        assert one.cosine == pytest.approx((torch.sum(f * g) / g.norm() / f.norm()).item(), rel=1e-9)


def test_two_directions_survive_pickle_a_new_metric_and_group_settings():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=DAMPED, direction=("output", "fan_in"))
    assert pickle.loads(pickle.dumps(attachment.metric)) == attachment.metric
    attachment.metric = (TILDE, DAMPED)
    assert str(attachment.metric) == "sobolev-tilde(lam=0.02) + reweighted-l2(lam=-0.9)"
    assert riesz.metric(str(attachment.metric)) == attachment.metric
    backward(model, 0)
    f = model[0].weight.grad.clone()
    optimizer.param_groups[0]["riesz_direction"] = "output+input"
    optimizer.param_groups[0]["riesz_metric"] = "reweighted-l2(lam=-0.9)"
    optimizer.step()
    wanted = DAMPED.gradient(DAMPED.gradient(f, 0), 1)
    assert relative_error(model[0].weight.grad, wanted) <= 1e-6
