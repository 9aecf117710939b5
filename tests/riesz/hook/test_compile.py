"""torch.compile of the whole step: the same result, and no recompilation when the metric's numbers change."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
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
    assert counters["frames"]["total"] == 0
    attachment.schedule(lambda step: {"lam": 1.0 + step})
    for _ in range(3):
        run()  # a schedule is a function of Python: it is called in a break of the graph, which is compiled once
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(20):
            run()
    assert counters["frames"]["total"] == 0
    print(f"{kind.__name__}: 120 steps with changing numbers, {counters['frames']['total']} frames compiled")


KINDS = [torch.optim.SGD, torch.optim.Adam]


@pytest.fixture
def without_torchs_break(monkeypatch):
    """torch breaks the graph around every optimizer's step by itself; what is left must be one graph."""
    monkeypatch.setattr(torch._dynamo, "graph_break", lambda: None)


def random_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.normal_()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("compiled", "without_torchs_break")
def test_the_whole_step_is_one_graph_and_no_number_or_rate_compiles_another(kind):
    graphs = []

    def count(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    model, rate = network(), torch.tensor(0.01)
    optimizer = kind(model.parameters(), lr=rate)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0))
    step = torch.compile(lambda: optimizer.step(), backend=count, fullgraph=True)
    counters.clear()
    for number in range(100):
        attachment.metric = riesz.SobolevTilde(0.1 + 0.01 * number, scale=1.0 + number, blend=0.5 * number)
        rate.fill_(0.1 / (1 + number))
        random_gradients(model)
        f = model[0].weight.grad.clone()
        step()
        assert relative_error(model[0].weight.grad, by_hand(attachment.metric, f)) <= 2e-6
    # Adam makes its state in the first step it traces.
    assert len(graphs) == 1
    has_kernels = next(status.available for status in riesz.backends() if status.name == "cpu")
    assert sum("riesz" in target and "direct_" in target for target in graphs[0]) == has_kernels
    compiled, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    assert (compiled, breaks) == (1, 0)
    print(f"{kind.__name__}: 100 steps, {compiled} graph, {breaks} breaks, {compiled - 1} recompilations")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("compiled")
def test_an_attached_step_breaks_the_graph_no_more_often_than_a_plain_one(kind):
    breaks = []
    for attached in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model = network()
        optimizer = kind(model.parameters(), lr=torch.tensor(0.01))
        if attached:
            riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.2))
        step = torch.compile(lambda optimizer=optimizer: optimizer.step(), backend="eager")
        for _ in range(3):
            random_gradients(model)
            step()
        breaks.append(sum(counters["graph_break"].values()))
    assert breaks[0] == breaks[1]


@pytest.mark.parametrize("metric", [riesz.Centralization(), riesz.SobolevTilde(0.2)], ids=str)
@pytest.mark.usefixtures("compiled", "without_torchs_break")
def test_a_compiled_step_directs_complex_gradients_as_a_plain_one_does(metric):
    parameter = torch.nn.Parameter(torch.zeros(8, 4, 3, 3, dtype=torch.complex64))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    riesz.attach(optimizer, metric=metric)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    f = torch.randn(8, 4, 3, 3, dtype=torch.complex64) + 1
    directed = []
    for take in (optimizer.step, step):
        parameter.grad = f.clone()
        take()
        directed.append(parameter.grad)
    assert torch.equal(*directed)
    assert not torch.equal(directed[0], f)


@pytest.mark.parametrize("order", [[True], [False, True]], ids=["at once", "later"])
@pytest.mark.usefixtures("compiled", "without_torchs_break")
def test_a_compiled_step_directs_a_gradient_of_two_parameters_once(order):
    """Not the other order: torch does not notice that tensors which were one are two, with riesz or without."""
    parameters = [torch.nn.Parameter(torch.zeros(8, 4, 3, 3)) for _ in range(2)]
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    attachment = riesz.attach(optimizer, metric=riesz.SobolevTilde(0.2))
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    for shared in order:
        f = torch.randn(8, 4, 3, 3)
        parameters[0].grad = f.clone()
        parameters[1].grad = parameters[0].grad if shared else f.clone()
        step()
        for parameter in parameters:
            assert relative_error(parameter.grad, by_hand(attachment.metric, f)) <= 2e-6


@pytest.mark.usefixtures("compiled", "without_torchs_break")
def test_a_compiled_step_directs_under_another_default_device():
    """The metric's numbers are on the CPU: on another device, that device's implementation would run."""
    parameter = torch.nn.Parameter(torch.zeros(8, 4, 3, 3))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    attachment = riesz.attach(optimizer, metric=riesz.SobolevTilde(0.2))
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    f = torch.randn(8, 4, 3, 3)
    parameter.grad = f.clone()
    with torch.device("meta"):
        step()
    assert relative_error(parameter.grad, by_hand(attachment.metric, f)) <= 2e-6


@pytest.mark.usefixtures("compiled")
def test_a_compiled_step_follows_a_param_group_that_is_added():
    model = network()
    optimizer = torch.optim.SGD([model[0].weight], lr=0.0)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.2))
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for group in (None, model[3].weight):
        if group is not None:
            optimizer.add_param_group({"params": [group]})
        for _ in range(2):
            random_gradients(model)
            f = model[3].weight.grad.clone()
            step()
            wanted = f if group is None else by_hand(attachment.metric, f)
            assert relative_error(model[3].weight.grad, wanted) <= 2e-6


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("compiled", "without_torchs_break")
def test_diagnostics_of_a_compiled_step_say_how_to_get_them(kind):
    model = network()
    optimizer = kind(model.parameters(), lr=torch.tensor(0.01))
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0))
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for _ in range(2):  # the second runs the graph, without the hook's own Python
        random_gradients(model)
        step()
        with pytest.raises(RuntimeError, match="the last step was compiled"):
            attachment.diagnostics()
    attachment.recording = True
    random_gradients(model)
    f = model[0].weight.grad.clone()
    step()
    diagnosed = {each.name: each for each in attachment.diagnostics()}["0.weight"]
    assert diagnosed.ratio == pytest.approx(float(model[0].weight.grad.norm() / f.norm()), rel=1e-5)
    attachment.recording = False
    random_gradients(model)
    optimizer.step()
    assert len(attachment.diagnostics()) == len({each.name for each in attachment.diagnostics()}) > 0


@pytest.mark.parametrize("control", [None, "signs"])
@pytest.mark.usefixtures("compiled")
def test_a_compiled_step_directs_along_two_directions(control):
    metric = (riesz.ReweightedL2(lam=-0.9), riesz.SobolevTilde(0.02))
    model, twin = network(), network()
    for one in (model, twin):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        riesz.attach(optimizer, one, metric=metric, direction=("output", "fan_in"), control=control)
        step = torch.compile(optimizer.step, backend="aot_eager") if one is model else optimizer.step
        for number in range(2):
            torch.manual_seed(number)
            random_gradients(one)
            step()
    assert relative_error(model[0].weight.grad, twin[0].weight.grad) <= 2e-6


@pytest.mark.usefixtures("compiled")
def test_a_step_that_is_compiled_for_any_sizes_directs_every_kind_of_layer():
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 8, 3, groups=2), nn.ConvTranspose2d(8, 6, 3, groups=2), nn.Conv2d(6, 5, 3)]
    models = [nn.Sequential(*copy.deepcopy(layers)).to(memory_format=torch.channels_last) for _ in range(2)]
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.2))
        step = (
            torch.compile(optimizer.step, dynamic=True, backend="aot_eager") if model is models[0] else optimizer.step
        )
        for number in range(2):
            torch.manual_seed(number)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            step()
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))
