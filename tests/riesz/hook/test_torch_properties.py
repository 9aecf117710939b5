"""The properties that torch tests its own optimizers for, with riesz attached; driven by torch's own table."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.testing._internal.common_optimizers import optim_db

import riesz
from riesz.hook.attachment import attachment_of

METRIC = riesz.SobolevTilde(0.1)
# SparseAdam takes sparse gradients only, Muon matrices only, LBFGS one group of real parameters and a closure.
INFOS = [info for info in optim_db if info.optim_cls.__name__ not in ("SparseAdam", "Muon", "LBFGS")]
CASES = [
    pytest.param(info.optim_cls, case.kwargs, id=f"{info.optim_cls.__name__}-{case.desc}")
    for info in INFOS
    for case in info.optim_inputs_func(device="cpu")
]
every_case = pytest.mark.parametrize(("kind", "kwargs"), CASES)


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 2, 3, 3), (6,), (5, 4), (4, 6, 1, 1)]
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]


def give_gradients(params, step):
    generator = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def attached(kind, params, **kwargs):
    optimizer = kind(params, **kwargs)
    riesz.attach(optimizer, metric=METRIC)
    return optimizer


def run(optimizer, params, steps):
    for step in steps:
        give_gradients(params, step)
        optimizer.step()


def flat(params):
    return torch.cat([torch.view_as_real(p).flatten() if p.is_complex() else p.flatten() for p in params]).detach()


@every_case
def test_equals_directing_by_hand(kind, kwargs):
    ours, theirs = parameters(), parameters()
    run(attached(kind, ours, **copy.deepcopy(kwargs)), ours, range(3))
    plain = kind(theirs, **copy.deepcopy(kwargs))
    for step in range(3):
        give_gradients(theirs, step)
        riesz.precondition_([p.grad for p in theirs if p.dim() >= 3], METRIC)
        plain.step()
    assert torch.equal(flat(ours), flat(theirs))


@every_case
def test_state_dict_is_that_of_the_plain_optimizer_and_deterministic(kind, kwargs):
    ours = parameters()
    optimizer = attached(kind, ours, **copy.deepcopy(kwargs))
    plain = kind(parameters(), **copy.deepcopy(kwargs))
    assert optimizer.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
    run(optimizer, ours, range(2))
    twins = [p.detach().clone().requires_grad_() for p in ours]
    resumed = attached(kind, twins, **copy.deepcopy(kwargs))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(optimizer, ours, range(2, 4))
    run(resumed, twins, range(2, 4))
    assert torch.equal(flat(ours), flat(twins))


@every_case
def test_deepcopy_goes_on_alike(kind, kwargs):
    ours = parameters()
    optimizer = attached(kind, ours, **copy.deepcopy(kwargs))
    run(optimizer, ours, range(2))
    twin = copy.deepcopy(optimizer)
    twins = [p for group in twin.param_groups for p in group["params"]]
    run(optimizer, ours, range(2, 4))
    run(twin, twins, range(2, 4))
    assert torch.equal(flat(ours), flat(twins))


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [
        pytest.param(info.optim_cls, implementation, id=f"{info.optim_cls.__name__}-{implementation}")
        for info in INFOS
        for implementation in info.supported_impls
        if implementation in ("foreach", "fused") and (implementation == "foreach" or "cpu" in info.supports_fused_on)
    ],
)
def test_foreach_and_fused_agree_with_the_loop(kind, implementation):
    loop, batched = parameters(torch.float64), parameters(torch.float64)
    run(attached(kind, loop, foreach=False), loop, range(3))
    run(attached(kind, batched, **{implementation: True}), batched, range(3))
    torch.testing.assert_close(flat(batched), flat(loop))


@pytest.mark.parametrize("kind", [i.optim_cls for i in INFOS if i.supports_complex], ids=lambda k: k.__name__)
def test_complex_parameters(kind):
    ours, theirs = parameters(torch.complex64), parameters(torch.complex64)
    run(attached(kind, ours), ours, range(2))
    plain = kind(theirs)
    for step in range(2):
        give_gradients(theirs, step)
        riesz.precondition_([p.grad for p in theirs if p.dim() >= 3], METRIC)
        plain.step()
    assert torch.equal(flat(ours), flat(theirs))


@pytest.mark.parametrize("kind", [i.optim_cls for i in INFOS if i.supports_param_groups], ids=lambda k: k.__name__)
def test_param_groups_and_mixed_dtypes(kind):
    def mixed():
        return [*parameters(torch.float32), *parameters(torch.float64)]

    ours, theirs = mixed(), mixed()
    settings = {"foreach": False} if kind is not torch.optim.ASGD else {}
    groups = [{"params": p[:3], "lr": 0.001} for p in (ours, theirs)]
    optimizer = kind([groups[0], {"params": ours[3:]}], **settings)
    riesz.attach(optimizer, metric=METRIC)
    plain = kind([groups[1], {"params": theirs[3:]}], **settings)
    for step in range(2):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        optimizer.step()
        riesz.precondition_([p.grad for p in theirs if p.dim() >= 3], METRIC)
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_learning_rate_as_a_tensor(kind):
    by_number, by_tensor = parameters(), parameters()
    run(attached(kind, by_number, lr=0.01), by_number, range(3))
    run(attached(kind, by_tensor, lr=torch.tensor(0.01), foreach=False), by_tensor, range(3))
    torch.testing.assert_close(flat(by_tensor), flat(by_number))


@pytest.mark.parametrize("kind", [info.optim_cls for info in INFOS], ids=lambda k: k.__name__)
def test_hooks_run_in_the_order_they_were_registered(kind):
    params = parameters()
    optimizer = kind(params)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(("before", params[0].grad.clone())))
    riesz.attach(optimizer, metric=riesz.ReweightedL2())
    optimizer.register_step_pre_hook(lambda *_: seen.append(("after", params[0].grad.clone())))
    optimizer.register_step_post_hook(lambda *_: seen.append(("post", params[0].grad.clone())))
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert [(name, grad.unique().tolist()) for name, grad in seen] == [("before", [1]), ("after", [2]), ("post", [2])]


@pytest.mark.parametrize(
    "kind", [i.optim_cls for i in INFOS if i.optim_cls.__name__ != "Adafactor"], ids=lambda k: k.__name__
)
def test_state_dict_of_an_older_release_loads(kind):
    """Older checkpoints lack newer keys of the groups; torch fills them in (not for Adafactor), and the hook stays."""
    params = parameters()
    optimizer = attached(kind, params)
    run(optimizer, params, range(1))
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        for key in ("maximize", "foreach", "capturable", "differentiable", "fused"):
            group.pop(key, None)
    optimizer.load_state_dict(state)
    run(optimizer, params, range(1, 2))
    assert attachment_of(optimizer) is not None
    assert attachment_of(optimizer).diagnostics()
