"""torch.compile of the whole step: the same result, and no recompilation when the metric's numbers change."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

import riesz
from cases import by_hand, relative_error
from training import network

# The compiler warns of its own doings; made errors, they would stop it.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.usefixtures("compiled")
def test_changing_numbers_a_hundred_times_recompiles_nothing(kind):
    model = network()
    optimizer = kind(model.parameters(), lr=torch.tensor(0.01))
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0))
    step = torch.compile(lambda: optimizer.step(), backend="eager")

    def run():
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        f = model[0].weight.grad.clone()
        step()
        assert relative_error(model[0].weight.grad, by_hand(attachment.metric, f)) <= 2e-6

    for _ in range(3):
        run()
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for number in range(100):
            attachment.metric = riesz.SobolevTilde(0.1 + 0.01 * number, scale=1.0 + number, blend=0.5 * number)
            run()
        attachment.schedule(lambda step: {"lam": 1.0 + step})
        for _ in range(20):
            run()
    assert counters["frames"]["total"] == 0
    print(f"{kind.__name__}: 120 steps with changing numbers, {counters['frames']['total']} frames compiled")


@pytest.mark.usefixtures("compiled")
def test_a_compiled_step_with_a_closure_directs_after_it():
    model, twin = network(), network()
    for m, wrap in ((model, lambda f: torch.compile(f, backend="eager")), (twin, lambda f: f)):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        riesz.attach(optimizer, m, metric=riesz.SobolevTilde(0.2))

        def closure(m=m, optimizer=optimizer):
            optimizer.zero_grad()
            loss = m(torch.ones(2, 2, 6, 6)).square().mean()
            loss.backward()
            return loss

        wrap(lambda optimizer=optimizer, closure=closure: optimizer.step(closure))()
    assert all(map(torch.allclose, model.parameters(), twin.parameters()))


@pytest.mark.usefixtures("compiled")
def test_a_compiled_model_is_attached_by_its_layers():
    model = torch.compile(network(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    assert [r.name for r in attachment.report() if r.applied] == ["_orig_mod.0.weight", "_orig_mod.3.weight"]
