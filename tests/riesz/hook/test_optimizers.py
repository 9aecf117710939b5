"""Every optimizer a plain loop can drive, of three libraries: attached is exactly what it should be.

Those of heavyball consume their gradients: after a step, `.grad` is None.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import warnings

import heavyball
import numpy
import pytest
import pytorch_optimizer
import torch
from torch import nn

import riesz
from training import batch, loss_of, network

# What a plain loop over a conv network cannot drive, and why.
NOT_DRIVEN = {
    "SparseAdam": "takes sparse gradients only",
    "adalomo": "updates during the backward pass, has no step over gradients",
    "lomo": "updates during the backward pass, has no step over gradients",
    "demo": "exchanges gradients between processes itself",
    "distributedmuon": "exchanges gradients between processes itself",
    "PSGDBase": "an abstract base",
    "SOAPBase": "an abstract base",
    "SAMWrapper": "wraps another optimizer",
    "SplitOpt": "wraps other optimizers",
}
CLOSURE = {"LBFGS", "lbfgs", "bsam"}
WANTS_GRADIENTS_BEFORE_THE_CLOSURE = {"bsam"}
WANTS_THE_LOSS = {"alig"}
GRAPH = {"adahessian", "sophiah"}
FLAGGED_GROUPS = {"adago", "adamuon", "muon", "muonclip", "normuon"}
MATRICES_ONLY = {"Muon", "spectralsphere"}
TAKES_MODEL = {"adammini"}
ARGUMENTS = {
    "LBFGS": {"lr": 1e-3, "max_iter": 4},
    "lbfgs": {"lr": 1e-3, "max_iter": 4},
    "SGD": {"momentum": 0.9, "weight_decay": 0.01},
    "adashift": {"keep_num": 1},
    "bsam": {"num_data": 5},
    "ranger21": {"num_iterations": 10},
}
STEPS = {"radam": 8, "schedulefreeradam": 8}  # they stand still for the first five

TORCH = [
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"
]
HEAVYBALL = [
    name for name, kind in vars(heavyball).items() if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)
]
PACKAGES = {
    "heavyball": HEAVYBALL,
    "torch.optim": TORCH,
    "pytorch_optimizer": pytorch_optimizer.get_supported_optimizers(),
}
CASES = [(package, name) for package, names in PACKAGES.items() for name in names if name not in NOT_DRIVEN]


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr(heavyball.utils, "compile_mode", None)  # it compiles its steps, for minutes


def kind_of(package, name):
    if package == "pytorch_optimizer":
        return pytorch_optimizer.load_optimizer(name)
    return getattr(torch.optim if package == "torch.optim" else heavyball, name)


def arguments(package, name):
    return {} if package == "heavyball" else ARGUMENTS.get(name, {})


def matrices(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))


def build(package, name, model):
    kind = kind_of(package, name)
    parameters = list(model.parameters())
    if name in TAKES_MODEL:
        parameters = model
    elif name in FLAGGED_GROUPS:
        parameters = [
            {"params": [p for p in parameters if p.dim() > 1], "use_muon": True},
            {"params": [p for p in parameters if p.dim() == 1], "use_muon": False},
        ]
    return kind(parameters, **arguments(package, name))


def trained(package, name, metric=None, by_hand=None):
    """Weights after three steps, directed by an attachment, by hand, or not at all."""
    model = matrices() if name in MATRICES_ONLY else network()
    optimizer = build(package, name, model)
    if metric is not None:
        riesz.attach(optimizer, model, metric=metric, layers="all" if name in MATRICES_ONLY else "conv")
    directed = [p for p in model.parameters() if p.dim() == (2 if name in MATRICES_ONLY else 4)]

    def evaluate(step, by_hand=by_hand):
        optimizer.zero_grad()
        images, labels = batch(step)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward(create_graph=name in GRAPH)
        if by_hand is not None:
            riesz.precondition_([p.grad for p in directed], by_hand)
        return loss

    torch.manual_seed(0)  # some optimizers draw random numbers, one of them numpy's
    numpy.random.seed(0)
    for step in range(STEPS.get(name, 3)):
        if name in WANTS_GRADIENTS_BEFORE_THE_CLOSURE:
            evaluate(step, by_hand=None)
        if name in CLOSURE:
            optimizer.step(functools.partial(evaluate, step))
        else:
            loss = evaluate(step)
            optimizer.step(*[lambda loss=loss: float(loss.detach())] * (name in WANTS_THE_LOSS))
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(("package", "name"), CASES, ids=[f"{p}-{n}" for p, n in CASES])
def test_identity_is_bit_equal_and_reweighting_equals_directing_by_hand(package, name, driven_optimizers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = trained(package, name)
        assert all(torch.isfinite(p).all() for p in plain)
        identity = riesz.Identity(scale=0.5, blend=0.5)  # computed, where Identity() is passed over
        assert all(map(torch.equal, trained(package, name, metric=identity), plain))
        metric = riesz.ReweightedL2(lam=2.0)
        by_hand = trained(package, name, by_hand=metric)
        assert all(torch.isfinite(p).all() for p in by_hand)
        assert all(map(torch.equal, trained(package, name, metric=metric), by_hand))
        assert not all(map(torch.equal, by_hand, plain))
    driven_optimizers[package].append(name)


@pytest.mark.filterwarnings("ignore")  # heavyball's, on settings that were not given
@pytest.mark.parametrize(("package", "name"), CASES, ids=[f"{p}-{n}" for p, n in CASES])
def test_a_directed_class_of_every_optimizer_can_be_made_and_pickled(package, name):
    kind = kind_of(package, name)
    if name in TAKES_MODEL:
        with pytest.raises(TypeError, match="has its own 'model'"):
            riesz.directed(kind)
        return
    made = riesz.directed(kind)
    assert issubclass(made, kind)
    assert pickle.loads(pickle.dumps(made)) is made
    model = matrices() if name in MATRICES_ONLY else network()
    if name not in FLAGGED_GROUPS and name.lower() != "lbfgs":
        optimizer = made(
            model.parameters(), **arguments(package, name), metric="reweighted-l2", model=model, layers="all"
        )
        assert optimizer.attachment.metric == riesz.ReweightedL2()


def test_diagnostics_of_an_optimizer_that_consumes_its_gradients_say_what_to_do():
    model = network()
    optimizer = heavyball.AdamW(model.parameters())
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05))
    for recording in (False, True):
        attachment.recording = recording
        loss_of(model, 0).backward()
        optimizer.step()
        assert model[0].weight.grad is None
        if not recording:
            with pytest.raises(RuntimeError, match=r"recording = True before it(.|\n)*own step \(HeavyBall's"):
                attachment.diagnostics()
    assert [d.name for d in attachment.diagnostics()] == ["0.weight", "3.weight"]


@pytest.mark.parametrize("lam", [1.0, 5.0])
def test_reweighted_l2_is_sgd_with_one_filter_that_all_outputs_share(lam):
    """W_o = V_o + u: a step along f + lam mean(f) is that of SGD on V, and on u at lam / n of the rate."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(2, 6, 3, bias=False).double()
    own, common = conv.weight.detach().clone().requires_grad_(), torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    common.requires_grad_()
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
    riesz.attach(optimizer, conv, metric=riesz.ReweightedL2(lam=lam))
    split = torch.optim.SGD([{"params": [own]}, {"params": [common], "lr": 0.1 * lam / 6}], lr=0.1)
    for step in range(5):
        images = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        for each in (optimizer, split):
            each.zero_grad()
        conv(images).relu().square().mean().backward()
        torch.nn.functional.conv2d(images, own + common).relu().square().mean().backward()
        optimizer.step()
        split.step()
    torch.testing.assert_close(conv.weight.detach(), (own + common).detach(), atol=1e-14, rtol=1e-13)
