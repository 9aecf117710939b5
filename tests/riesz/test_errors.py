"""Bad input: typed errors that name the object, the value and what is allowed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import riesz
from riesz.hook.plan import NothingToDirectError

CONV = nn.Conv2d(3, 4, 3)
F = torch.ones(4, 3)
NAN, INF = math.nan, math.inf


def sgd(*parameters):
    return torch.optim.SGD(list(parameters or CONV.parameters()), lr=0.1)


def attach(*args, **settings):
    return riesz.attach(*args, **({"metric": riesz.SobolevTilde()} | settings))


def attach_twice():
    optimizer = sgd()
    attach(optimizer)
    attach(optimizer)


class Wrapper(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer


class Flattened(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 4, 3)
        self.weight = nn.Parameter(torch.zeros(27))


CASES = [
    # numbers of metrics
    (lambda: riesz.Sobolev(0), ValueError, "Sobolev: lam must be > 0, got 0.0"),
    (lambda: riesz.Sobolev(-1.0), ValueError, "Sobolev: lam must be > 0, got -1.0"),
    (lambda: riesz.Sobolev(NAN), ValueError, "Sobolev: lam must be finite (lam > 0), got nan"),
    (lambda: riesz.Sobolev(INF), ValueError, "Sobolev: lam must be finite"),
    (lambda: riesz.Sobolev(10**400), ValueError, "Sobolev: lam must be finite"),
    (lambda: riesz.Sobolev(1e-31), ValueError, "Sobolev: lam must be between 1e-30 and 1e+30, got 1e-31"),
    (lambda: riesz.LaplacianSmoothing(1e160), ValueError, "sigma must be between"),
    (lambda: riesz.ReweightedL2(1e300), ValueError, "lam must be > -1 (and at most 1e+30), got 1e+300"),
    (lambda: riesz.ReweightedL2.from_weight(1e-9), ValueError, "w must be at least 1e-6"),
    (lambda: riesz.Metric(), TypeError, "build one of its kinds"),
    (lambda: riesz.Sobolev("1"), TypeError, "Sobolev: lam must be a real number (lam > 0), got '1' of type str"),
    (lambda: riesz.Sobolev(None), TypeError, "got None of type NoneType"),
    (lambda: riesz.Sobolev(True), TypeError, "got True of type bool"),
    (lambda: riesz.Sobolev(1j), TypeError, "got 1j of type complex"),
    (lambda: riesz.Sobolev([1.0]), TypeError, "of type list"),
    (lambda: riesz.Sobolev(torch.tensor(1.0)), TypeError, "of type Tensor"),
    (lambda: riesz.SobolevTilde(0.0), ValueError, "SobolevTilde: lam must be > 0"),
    (lambda: riesz.SobolevTilde(-0.0), ValueError, "SobolevTilde: lam must be > 0"),
    (lambda: riesz.SobolevTilde(NAN), ValueError, "SobolevTilde: lam must be finite"),
    (lambda: riesz.SobolevTilde(riemann=1), TypeError, "riemann must be True or False, got 1"),
    (lambda: riesz.SobolevTilde(blend=-1), ValueError, "SobolevTilde: blend must be >= 0, got -1.0"),
    (lambda: riesz.SobolevTilde(blend=INF), ValueError, "SobolevTilde: blend must be finite"),
    (lambda: riesz.SobolevTilde(scale="big"), TypeError, "SobolevTilde: scale must be a real number"),
    (lambda: riesz.ReweightedL2(-1), ValueError, "ReweightedL2: lam must be > -1"),
    (lambda: riesz.ReweightedL2(-INF), ValueError, "ReweightedL2: lam must be finite (lam > -1), got -inf"),
    (lambda: riesz.ReweightedL2.from_weight(0), ValueError, "from_weight: w must be > 0, got 0.0"),
    (lambda: riesz.ReweightedL2.from_weight(-2), ValueError, "from_weight: w must be > 0, got -2.0"),
    (lambda: riesz.LaplacianSmoothing(0), ValueError, "LaplacianSmoothing: sigma must be > 0"),
    (lambda: riesz.LaplacianSmoothing(sigma=NAN), ValueError, "LaplacianSmoothing: sigma must be finite"),
    (lambda: riesz.LaplacianSmoothing(scale=-1), ValueError, "LaplacianSmoothing: scale must be >= 0"),
    (lambda: riesz.Identity(scale=0), ValueError, "Identity: scale and blend are both 0"),
    (lambda: riesz.Identity(1.0), TypeError, "positional argument"),
    (lambda: riesz.Centralization(scale=2), TypeError, "unexpected keyword argument 'scale'"),
    # metrics as text
    (lambda: riesz.metric("sobolef"), ValueError, "metric 'sobolef' is not known; did you mean 'sobolev'? Allowed:"),
    (lambda: riesz.metric("zzz"), ValueError, "metric 'zzz' is not known. Allowed:"),
    (lambda: riesz.metric("sobolev(lam=" + "-" * 1000 + "1)"), ValueError, "200 are enough"),
    (lambda: riesz.metric("sobolev(lam)"), ValueError, "'lam' is not a setting of its own"),
    (lambda: riesz.metric("sobolev(lam=1, lam=2)"), ValueError, "each once"),
    (
        lambda: riesz.metric("sobolev(sigma=1)"),
        ValueError,
        "sobolev has no setting 'sigma'; allowed: lam, scale, blend",
    ),
    (lambda: riesz.metric("sobolev(lam=__import__('os'))"), ValueError, "is not a number, True or False"),
    (lambda: riesz.metric("sobolev(lam=-1)"), ValueError, "Sobolev: lam must be > 0, got -1.0"),
    (lambda: riesz.metric("sobolev(lam=1"), ValueError, "cannot be read"),
    (lambda: riesz.metric(1.0), TypeError, "got 1.0"),
    # axis lengths
    (lambda: riesz.Sobolev().kernel(0), ValueError, "Sobolev: the axis length n must be >= 1, got 0"),
    (lambda: riesz.Sobolev().symbol(-3), ValueError, "Sobolev: the axis length n must be >= 1, got -3"),
    (lambda: riesz.Sobolev().symbol(2.0), TypeError, "Sobolev: the axis length n must be an int, got 2.0"),
    # what has no meaning for a projection
    (lambda: riesz.Centralization().inner(F, F), TypeError, "Centralization has no inner product"),
    (lambda: riesz.Centralization().kernel(3), TypeError, "Centralization has no kernel"),
    (lambda: riesz.Centralization().symbol(3), TypeError, "Centralization has no symbol"),
    (lambda: riesz.Centralization().gradient(torch.ones(3)), ValueError, "a gradient of shape (3,) has none"),
    # gradients
    (lambda: riesz.Sobolev().gradient([1.0]), TypeError, "gradient: f must be a torch.Tensor, got [1.0]"),
    (lambda: riesz.Sobolev().gradient(torch.ones(3, dtype=torch.int32)), TypeError, "got dtype torch.int32"),
    (lambda: riesz.Sobolev().gradient(torch.ones(())), ValueError, "gradient: f is a 0-d tensor"),
    (lambda: riesz.Sobolev().gradient(F, dim=2), IndexError, "dim 2 is out of range for a gradient of shape (4, 3)"),
    (lambda: riesz.Sobolev().gradient(F, dim=-3), IndexError, "allowed: -2..1"),
    (lambda: riesz.Sobolev().gradient(F, dim="output"), TypeError, "dim must be an int, got 'output'"),
    (lambda: riesz.Sobolev().inner(F, torch.ones(3, 4)), ValueError, "one shape, got (4, 3) and (3, 4)"),
    (lambda: riesz.Sobolev().inner(F, 1.0), TypeError, "inner: b must be a torch.Tensor, got 1.0"),
    (lambda: riesz.precondition_(F.to_sparse(), riesz.Sobolev()), TypeError, "got layout torch.sparse_coo"),
    (lambda: riesz.precondition_(F.long(), riesz.Sobolev()), TypeError, "precondition_: grads must be floating point"),
    (lambda: riesz.precondition_(F.bool(), riesz.Sobolev()), TypeError, "got dtype torch.bool"),
    (lambda: riesz.precondition_(F.to(torch.float8_e5m2), riesz.Sobolev()), TypeError, "too few digits"),
    (lambda: riesz.precondition_(torch.ones(1, 3).expand(4, 3), riesz.Sobolev()), ValueError, "is expanded"),
    (
        lambda: riesz.precondition_(torch.arange(7.0).as_strided((3, 3), (2, 1)), riesz.Sobolev()),
        ValueError,
        "overlaps",
    ),
    (lambda: riesz.precondition_(torch.ones(1, 2).expand(2, 2), riesz.Sobolev()), ValueError, "is expanded"),
    (lambda: riesz.precondition_([F, F], riesz.Sobolev()), ValueError, "grads[1] is the same tensor as grads[0]"),
    (lambda: riesz.precondition_(F.to("meta"), riesz.Sobolev()), TypeError, "is on the meta device"),
    (lambda: riesz.precondition_([F, "x"], riesz.Sobolev()), TypeError, "grads[1] must be a torch.Tensor, got 'x'"),
    (lambda: riesz.precondition_([F, F.int()], riesz.Sobolev()), TypeError, "grads[1] must be floating point"),
    (lambda: riesz.precondition_({F}, riesz.Sobolev()), TypeError, "a list or tuple of tensors, got set"),
    (lambda: riesz.precondition_([F, torch.ones(3)], riesz.Sobolev(), dim=1), IndexError, "shape (3,)"),
    (lambda: riesz.precondition_(F, "sobolev"), TypeError, "metric must be a riesz metric such as"),
    (lambda: riesz.precondition_(F, riesz.Sobolev), TypeError, "did you mean Sobolev()?"),
    (lambda: riesz.precondition_(F, riesz.Sobolev(), backend="gpu"), ValueError, "backend 'gpu' is not known; allowed"),
    (lambda: riesz.precondition_(F, riesz.Sobolev(), backend=None), TypeError, "backend must be a string"),
    # attaching
    (lambda: attach(CONV.parameters()), TypeError, "optimizer must be a torch.optim.Optimizer, got generator"),
    (lambda: attach(CONV, sgd()), TypeError, "got Conv2d; the order is attach(optimizer, model)"),
    (lambda: attach(Wrapper(sgd())), TypeError, "Wrapper wraps another optimizer"),
    (lambda: attach(sgd(), [CONV]), TypeError, "model must be a torch.nn.Module or None, got list"),
    (lambda: attach(sgd(), CONV, metric=None), TypeError, "metric must be a riesz metric such as"),
    (lambda: attach(sgd(), CONV, direction="outputs"), ValueError, "direction 'outputs' is not known; allowed"),
    (lambda: attach(sgd(), CONV, direction=True), TypeError, "direction must be one of"),
    (lambda: attach(sgd(), CONV, direction=1.0), TypeError, "or an int, got 1.0"),
    (lambda: attach(sgd(), CONV, direction=9), ValueError, "no dim 9 in a 4-d parameter"),
    (lambda: attach(sgd(), CONV, layers="linear"), ValueError, "layers 'linear' is not known; allowed: 'conv', 'all'"),
    (lambda: attach(sgd(), CONV, layers=3), TypeError, "layers must be 'conv', 'all' or a predicate, got 3"),
    (
        lambda: attach(sgd(), CONV, control="shuffled"),
        ValueError,
        "control 'shuffled' is not known; allowed: None, 'norm'",
    ),
    (lambda: attach(sgd(), CONV, backend="fast"), ValueError, "backend 'fast' is not known"),
    (lambda: attach(sgd(CONV.bias), CONV), ValueError, "nothing to direct among the optimizer's 1 parameters"),
    (lambda: attach(sgd(nn.Parameter(torch.zeros(99)))), ValueError, "Flattened parameters (FSDP1, ZeRO)"),
    (lambda: attach(sgd(*Flattened().parameters())), ValueError, "nothing to direct"),
    (lambda: attach(sgd(), nn.Linear(2, 2)), ValueError, "not a parameter of the model"),
    (lambda: attach(sgd(*nn.LazyConv2d(3, 3).parameters())), ValueError, "has no shape yet"),
    (
        lambda: attach(sgd(), CONV, metric=riesz.Centralization(), direction="rasterized"),
        ValueError,
        "no axis to average",
    ),
    (lambda: attach(torch.optim.SGD(CONV.parameters(), lr=0.1, differentiable=True)), ValueError, "in place"),
    (attach_twice, RuntimeError, "this SGD has an attachment already"),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), CASES, ids=[f"{i}-{words}" for i, (_, _, words) in enumerate(CASES)]
)
def test_bad_input_is_refused_in_words(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) in (error, NothingToDirectError)
    assert words in str(caught.value)


def test_a_flattened_conv_weight_is_refused_with_the_way_out():
    model = Flattened()
    with pytest.raises(ValueError, match=r"parameter 'weight' of Flattened has shape \(27,\).*DistributedDataParallel"):
        attach(sgd(*model.parameters()), model)


@pytest.mark.parametrize(
    ("grad", "error", "words"),
    [
        (torch.ones(4, 3, 3, 3).to_sparse(), TypeError, "the gradient of 'weight' must be a dense"),
        (
            torch.ones(1, 3, 3, 3).expand(4, 3, 3, 3),
            ValueError,
            "the gradient of 'weight' of shape (4, 3, 3, 3) is expanded",
        ),
    ],
)
def test_a_gradient_that_cannot_be_directed_is_named_at_the_step(grad, error, words):
    model = nn.Conv2d(3, 4, 3)
    optimizer = sgd(*model.parameters())
    attach(optimizer, model)
    model.weight.grad = grad
    before = model.weight.detach().clone()
    with pytest.raises(error) as caught:
        optimizer.step()
    assert words in str(caught.value)
    assert torch.equal(model.weight, before)


def test_an_inference_tensor_is_refused():
    with torch.inference_mode():
        grad = torch.ones(4, 3)
    with pytest.raises(ValueError, match="inference tensor"):
        riesz.precondition_(grad, riesz.Sobolev())


@pytest.mark.parametrize("strength", [1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("kind", [riesz.Sobolev, riesz.LaplacianSmoothing, riesz.SobolevTilde])
def test_extreme_but_allowed_strengths_give_finite_results(kind, strength):
    for n in (64, 509):
        f = 1 + torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
        assert torch.isfinite(kind(strength).gradient(f)).all()
