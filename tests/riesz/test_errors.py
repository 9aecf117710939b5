"""Bad input: typed errors that name the object, what was expected and what was given."""

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


def set_attribute(name):
    setattr(attach(sgd()), name, False)


class Wrapper(torch.optim.Optimizer):
    """As those of accelerate, which says `optimizer`, and of Opacus, which says `original_optimizer`."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Flattened(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 4, 3)
        self.weight = nn.Parameter(torch.zeros(27))


CASES = [
    # numbers of metrics
    (lambda: riesz.Sobolev(0), ValueError, "Sobolev: expected lam > 0, got 0.0"),
    (lambda: riesz.Sobolev(-1.0), ValueError, "Sobolev: expected lam > 0, got -1.0"),
    (lambda: riesz.Sobolev(NAN), ValueError, "Sobolev: expected a finite lam (lam > 0), got nan"),
    (lambda: riesz.Sobolev(INF), ValueError, "Sobolev: expected a finite lam"),
    (lambda: riesz.Sobolev(10**400), ValueError, "Sobolev: expected a finite lam"),
    (lambda: riesz.Sobolev(1e-31), ValueError, "Sobolev: expected 1e-30 <= lam <= 1e+30, got 1e-31"),
    (lambda: riesz.LaplacianSmoothing(1e160), ValueError, "expected 1e-30 <= sigma <= 1e+30"),
    (lambda: riesz.ReweightedL2(1e300), ValueError, "expected -1 < lam <= 1e+30, got 1e+300"),
    (lambda: riesz.ReweightedL2.from_weight(1e-9), ValueError, "expected w >= 1e-6"),
    (lambda: riesz.Metric(), TypeError, "expected a kind of metric"),
    (lambda: riesz.Sobolev("1"), TypeError, "Sobolev: expected a real number (lam > 0) for lam, got '1' of type str"),
    (lambda: riesz.Sobolev(None), TypeError, "got None of type NoneType"),
    (lambda: riesz.Sobolev(True), TypeError, "got True of type bool"),
    (lambda: riesz.Sobolev(1j), TypeError, "got 1j of type complex"),
    (lambda: riesz.Sobolev([1.0]), TypeError, "of type list"),
    (lambda: riesz.Sobolev(torch.tensor(1.0)), TypeError, "of type Tensor"),
    (lambda: riesz.SobolevTilde(0.0), ValueError, "SobolevTilde: expected lam > 0"),
    (lambda: riesz.SobolevTilde(-0.0), ValueError, "SobolevTilde: expected lam > 0"),
    (lambda: riesz.SobolevTilde(NAN), ValueError, "SobolevTilde: expected a finite lam"),
    (lambda: riesz.SobolevTilde(riemann=1), TypeError, "expected riemann to be True or False, got 1"),
    (lambda: riesz.SobolevTilde(blend=-1), ValueError, "SobolevTilde: expected blend >= 0, got -1.0"),
    (lambda: riesz.SobolevTilde(blend=INF), ValueError, "SobolevTilde: expected a finite blend"),
    (lambda: riesz.SobolevTilde(scale="big"), TypeError, "SobolevTilde: expected a real number (scale >= 0) for scale"),
    (lambda: riesz.ReweightedL2(-1), ValueError, "ReweightedL2: expected -1 < lam"),
    (lambda: riesz.ReweightedL2(-INF), ValueError, "ReweightedL2: expected a finite lam (lam > -1), got -inf"),
    (lambda: riesz.ReweightedL2.from_weight(0), ValueError, "from_weight: expected w > 0, got 0.0"),
    (lambda: riesz.ReweightedL2.from_weight(-2), ValueError, "from_weight: expected w > 0, got -2.0"),
    (lambda: riesz.LaplacianSmoothing(0), ValueError, "LaplacianSmoothing: expected sigma > 0"),
    (lambda: riesz.LaplacianSmoothing(sigma=NAN), ValueError, "LaplacianSmoothing: expected a finite sigma"),
    (lambda: riesz.LaplacianSmoothing(scale=-1), ValueError, "LaplacianSmoothing: expected scale >= 0"),
    (lambda: riesz.Identity(scale=0), ValueError, "Identity: expected scale > 0 or blend > 0, got 0 for both"),
    (lambda: riesz.Identity(1.0), TypeError, "positional argument"),
    (lambda: riesz.Centralization(scale=2), TypeError, "unexpected keyword argument 'scale'"),
    # metrics as text
    (lambda: riesz.metric("sobolef"), ValueError, "got 'sobolef'; did you mean 'sobolev'?"),
    (lambda: riesz.metric("zzz"), ValueError, "metric: expected one of identity, reweighted-l2, sobolev"),
    (lambda: riesz.metric("sobolev(lam=" + "-" * 1000 + "1)"), ValueError, "expected at most 200 characters, got 1014"),
    (lambda: riesz.metric("sobolev(lam)"), ValueError, "expected settings as name=value, each once, got 'lam'"),
    (lambda: riesz.metric("sobolev(lam=1, lam=2)"), ValueError, "each once"),
    (
        lambda: riesz.metric("sobolev(sigma=1)"),
        ValueError,
        "expected settings among lam, scale, blend, got 'sigma'",
    ),
    (
        lambda: riesz.metric("sobolev(lam=__import__('os'))"),
        ValueError,
        "expected a number, True or False for 'lam'",
    ),
    (lambda: riesz.metric("sobolev(lam=-1)"), ValueError, "Sobolev: expected lam > 0, got -1.0"),
    (lambda: riesz.metric("sobolev(lam=1"), ValueError, "expected the form"),
    (lambda: riesz.metric(1.0), TypeError, "got 1.0"),
    # axis lengths
    (lambda: riesz.Sobolev().kernel(0), ValueError, "Sobolev: expected an axis length n >= 1, got 0"),
    (lambda: riesz.Sobolev().symbol(-3), ValueError, "Sobolev: expected an axis length n >= 1, got -3"),
    (lambda: riesz.Sobolev().symbol(2.0), TypeError, "Sobolev: expected an int for the axis length n, got 2.0"),
    # what has no meaning for a projection
    (lambda: riesz.Centralization().inner(F, F), TypeError, "Centralization has no inner product"),
    (lambda: riesz.Centralization().kernel(3), TypeError, "Centralization has no kernel"),
    (lambda: riesz.Centralization().symbol(3), TypeError, "Centralization has no symbol"),
    (lambda: riesz.Centralization().gradient(torch.ones(3)), ValueError, "expected a gradient of two or more dims"),
    # gradients
    (lambda: riesz.Sobolev().gradient([1.0]), TypeError, "gradient: f: expected a torch.Tensor, got [1.0]"),
    (lambda: riesz.Sobolev().gradient(torch.ones(3, dtype=torch.int32)), TypeError, "got dtype torch.int32"),
    (
        lambda: riesz.Sobolev().gradient(torch.ones(())),
        ValueError,
        "f: expected one dim or more, got a 0-d tensor",
    ),
    (
        lambda: riesz.Sobolev().gradient(F, dim=2),
        IndexError,
        "expected -2..1 for a gradient of shape (4, 3), got 2",
    ),
    (lambda: riesz.Sobolev().gradient(F, dim=-3), IndexError, "expected -2..1"),
    (lambda: riesz.Sobolev().gradient(F, dim="output"), TypeError, "dim: expected an int, got 'output'"),
    (lambda: riesz.Sobolev().inner(F, torch.ones(3, 4)), ValueError, "one shape, got (4, 3) and (3, 4)"),
    (lambda: riesz.Sobolev().inner(F, 1.0), TypeError, "inner: b: expected a torch.Tensor, got 1.0"),
    (lambda: riesz.precondition_(F.to_sparse(), riesz.Sobolev()), TypeError, "got layout torch.sparse_coo"),
    (
        lambda: riesz.precondition_(F.long(), riesz.Sobolev()),
        TypeError,
        "grads: expected floating point",
    ),
    (lambda: riesz.precondition_(F.bool(), riesz.Sobolev()), TypeError, "got dtype torch.bool"),
    (lambda: riesz.precondition_(F.to(torch.float8_e5m2), riesz.Sobolev()), TypeError, "expected float16 or wider"),
    (lambda: riesz.precondition_(torch.ones(1, 3).expand(4, 3), riesz.Sobolev()), ValueError, "is expanded"),
    (
        lambda: riesz.precondition_(torch.arange(7.0).as_strided((3, 3), (2, 1)), riesz.Sobolev()),
        ValueError,
        "overlaps",
    ),
    (lambda: riesz.precondition_(torch.ones(1, 2).expand(2, 2), riesz.Sobolev()), ValueError, "is expanded"),
    (lambda: riesz.precondition_([F, F], riesz.Sobolev()), ValueError, "grads[1] is the same tensor as grads[0]"),
    (lambda: riesz.precondition_(F.to("meta"), riesz.Sobolev()), TypeError, "got one on the meta device"),
    (lambda: riesz.precondition_([F, "x"], riesz.Sobolev()), TypeError, "grads[1]: expected a torch.Tensor, got 'x'"),
    (lambda: riesz.precondition_([F, F.int()], riesz.Sobolev()), TypeError, "grads[1]: expected floating point"),
    (lambda: riesz.precondition_({F}, riesz.Sobolev()), TypeError, "a list or tuple of tensors, got set"),
    (lambda: riesz.precondition_([F, torch.ones(3)], riesz.Sobolev(), dim=1), IndexError, "shape (3,)"),
    (lambda: riesz.precondition_(F, "sobolef"), ValueError, "got 'sobolef'; did you mean 'sobolev'?"),
    (lambda: riesz.precondition_(F, riesz.Sobolev), TypeError, "did you mean Sobolev()?"),
    (lambda: riesz.precondition_(nn.Parameter(F), riesz.Sobolev()), TypeError, "got an nn.Parameter, a weight"),
    (
        lambda: riesz.precondition_(list(CONV.parameters()), riesz.Sobolev()),
        TypeError,
        "precondition_: grads[0]: expected a gradient, got an nn.Parameter, a weight; pass its .grad",
    ),
    (lambda: riesz.precondition_(F, riesz.Sobolev), TypeError, "did you mean Sobolev()?"),
    (lambda: riesz.precondition_(F, riesz.Sobolev(), backend="gpu"), ValueError, "backend: expected one of ['auto', "),
    (lambda: riesz.precondition_(F, riesz.Sobolev(), backend=None), TypeError, "backend: expected one of"),
    # attaching
    (lambda: attach(CONV.parameters()), TypeError, "optimizer: expected a torch.optim.Optimizer, got generator"),
    (lambda: attach(CONV, sgd()), TypeError, "got Conv2d; the order is attach(optimizer, model)"),
    (
        lambda: attach(Wrapper(optimizer=sgd())),
        TypeError,
        "Wrapper wraps another optimizer and runs no step hooks of its own: attach to its `.optimizer`",
    ),
    (lambda: attach(Wrapper(original_optimizer=sgd())), TypeError, "attach to its `.original_optimizer`"),
    (lambda: attach(Wrapper()), TypeError, "attach to the one inside"),
    (lambda: attach(sgd(), [CONV]), TypeError, "model: expected a torch.nn.Module or None, got list"),
    (lambda: attach(sgd(), CONV, metric=None), TypeError, "metric: expected a riesz metric such as"),
    (lambda: attach(sgd(), CONV, metric="SobolevTilda"), ValueError, "did you mean 'sobolev-tilde'?"),
    (lambda: attach(sgd(), CONV, metric="sobolev(lamda=1)"), ValueError, "got 'lamda'; did you mean 'lam'?"),
    (lambda: set_attribute("enable"), AttributeError, "got 'enable'; did you mean 'enabled'?"),
    (lambda: set_attribute("optimizer"), AttributeError, "expected one of enabled, metric, recording, step to be set"),
    (
        lambda: attach(sgd(), CONV, layers=lambda name: True),
        TypeError,
        "layers: expected 'conv', 'weights', 'all' or a predicate of (name, module, parameter), got <lambda>(name)",
    ),
    (lambda: attach(sgd(), CONV, layers=nn.Conv2d), TypeError, "a predicate of (name, module, parameter), got <class"),
    (
        lambda: riesz.directed(torch.optim.SGD)(CONV.parameters(), lr=0.1),
        TypeError,
        "DirectedSGD: expected metric=, for example metric='sobolev-tilde(lam=0.5)', got none",
    ),
    (lambda: attach(sgd(), CONV, direction="outputs"), ValueError, "an int or two of them, got 'outputs'"),
    (lambda: attach(sgd(), CONV, direction=True), TypeError, "direction: expected one of"),
    (lambda: attach(sgd(), CONV, direction=1.0), TypeError, "an int or two of them, got 1.0"),
    (lambda: attach(sgd(), CONV, direction=9), ValueError, "no dim 9 in a 4-d parameter"),
    (
        lambda: attach(sgd(), CONV, layers="linear"),
        ValueError,
        "expected 'conv', 'weights', 'all' or a predicate, got 'linear'",
    ),
    (lambda: attach(sgd(), CONV, layers=3), TypeError, "a predicate of (name, module, parameter), got 3"),
    (
        lambda: attach(sgd(), CONV, control="shuffled"),
        ValueError,
        "control: expected None, 'norm', 'permuted' or 'signs', got 'shuffled'",
    ),
    (lambda: attach(sgd(), CONV, backend="fast"), ValueError, "got 'fast'"),
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
def test_bad_input_is_refused_with_a_clear_error(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) in (error, NothingToDirectError)
    assert words in str(caught.value)


def test_a_flattened_conv_weight_is_refused_with_what_to_use_instead():
    model = Flattened()
    with pytest.raises(ValueError, match=r"parameter 'weight' of Flattened has shape \(27,\).*DistributedDataParallel"):
        attach(sgd(*model.parameters()), model)


@pytest.mark.parametrize(
    ("grad", "error", "words"),
    [
        (torch.ones(4, 3, 3, 3).to_sparse(), TypeError, "the gradient of 'weight': expected a dense"),
        (
            torch.ones(1, 3, 3, 3).expand(4, 3, 3, 3),
            ValueError,
            "the gradient of 'weight': expected entries with memory of their own, got shape (4, 3, 3, 3)",
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
