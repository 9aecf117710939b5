"""Which parameters are directed, along which axis, and why not the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import riesz
from cases import by_hand, relative_error
from networks import Zoo

WEIGHT = "parametrizations.weight.original"


def report(model=None, parameters=None, **settings):
    model_or_zoo = model or Zoo()
    optimizer = torch.optim.SGD(parameters or model_or_zoo.parameters(), lr=0.1)
    return riesz.attach(optimizer, model_or_zoo, metric=riesz.SobolevTilde(), **settings).report()


def applied(records):
    return {r.name: (r.axis, r.length) for r in records if r.applied}


CONV_OUTPUT = {
    "plain.weight": (0, 8),
    "pointwise.weight": (0, 16),
    "grouped.weight": (0, 2),
    "transposed.weight": (1, 6),
    "grouped_transposed.weight": (1, 4),
    f"spectral.{WEIGHT}": (0, 4),
    f"normed.{WEIGHT}1": (0, 5),
    "own.weight": (0, 6),
    "volume.weight": (0, 3),
}


def test_conv_output_picks_the_output_axis_of_every_kind_of_conv():
    assert applied(report()) == CONV_OUTPUT


def test_all_adds_linear_biases_and_norms_along_their_only_axis():
    assert applied(report(layers="all")) == CONV_OUTPUT | {
        "plain.bias": (0, 8),
        f"normed.{WEIGHT}0": (0, 5),
        "norm.weight": (0, 8),
        "norm.bias": (0, 8),
        "head.weight": (0, 2),
        "head.bias": (0, 2),
    }


def test_conv_input_picks_the_input_axis_of_every_kind_of_conv():
    assert applied(report(direction="input")) == {
        "plain.weight": (1, 3),
        "pointwise.weight": (1, 8),
        "grouped.weight": (1, 4),
        "transposed.weight": (0, 8),
        "grouped_transposed.weight": (0, 3),
        f"spectral.{WEIGHT}": (1, 8),
        f"normed.{WEIGHT}1": (1, 4),
        "own.weight": (1, 4),
        "volume.weight": (1, 2),
        "to_one.weight": (1, 4),
    }


def test_rasterized_takes_whole_tensors():
    records = report(direction="rasterized", layers="all")
    zoo = dict(Zoo().named_parameters())
    assert applied(records) == {
        name: ("rasterized", p.numel()) for name, p in zoo.items() if p.dim() > 0 and name != "words.weight"
    }


def test_an_int_direction_is_that_dim_regardless_of_groups():
    chosen = applied(report(direction=-1))
    assert chosen["plain.weight"] == (3, 3)
    assert applied(report(direction=0))["grouped.weight"] == (0, 8)
    reasons = {r.name: r.reason for r in report(direction=3)}
    assert reasons[f"normed.{WEIGHT}1"] == "no dim 3 in a 3-d parameter"


def test_every_parameter_left_alone_has_its_reason():
    reasons = {r.name: r.reason for r in report() if not r.applied}
    assert reasons == {
        "temperature": "0-d: no axis",
        "plain.bias": "bias of a conv layer, not its weight (layers='conv')",
        "depthwise.weight": "axis of length 1: nothing to smooth along",
        f"normed.{WEIGHT}0": "magnitudes of a conv layer, not its weight (layers='conv')",
        "to_one.weight": "axis of length 1: nothing to smooth along",
        "norm.weight": "not a conv weight (layers='conv')",
        "norm.bias": "not a conv weight (layers='conv')",
        "words.weight": "embedding: its rows are a vocabulary, not channels",
        "head.weight": "not a conv weight (layers='conv')",
        "head.bias": "not a conv weight (layers='conv')",
    }


def test_a_predicate_chooses_by_name_module_and_parameter():
    seen = {}

    def only(name, module, parameter):
        seen[name] = type(module).__name__
        return isinstance(module, nn.Linear) and parameter.dim() == 2

    assert applied(report(layers=only)) == {"head.weight": (0, 2)}
    assert seen[f"spectral.{WEIGHT}"] == "ParametrizedConv2d"


def test_deprecated_norms_by_hooks_are_seen_through():
    with pytest.warns(FutureWarning):
        model = nn.Sequential(
            torch.nn.utils.weight_norm(nn.Conv2d(3, 4, 3, bias=False)),
            torch.nn.utils.spectral_norm(nn.Conv2d(4, 5, 3, bias=False)),
        )
    assert applied(report(model)) == {"0.weight_v": (0, 4), "1.weight_orig": (0, 5)}


def test_without_a_model_three_dims_make_a_conv():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(4, 3, 2)), nn.Parameter(torch.zeros(4, 3))], lr=0.1)
    records = riesz.attach(optimizer, metric=riesz.SobolevTilde()).report()
    assert [(r.name, r.axis, r.applied) for r in records] == [
        ("group 0, parameter 0", 0, True),
        ("group 0, parameter 1", None, False),
    ]
    assert records[1].reason == "2-d: without a model, a conv weight has 3 dims or more (layers='conv')"


def test_names_given_to_the_optimizer_are_used():
    zoo = Zoo()
    optimizer = torch.optim.SGD(zoo.named_parameters(), lr=0.1)
    records = riesz.attach(optimizer, metric=riesz.SobolevTilde()).report()
    assert [r.name for r in records] == [name for name, _ in zoo.named_parameters()]


def test_parameters_of_another_model_are_named_as_such():
    zoo, other = Zoo(), nn.Conv2d(3, 3, 3)
    with pytest.warns(UserWarning, match="parameters that the model does not have"):
        records = report(zoo, [*zoo.parameters(), *other.parameters()])
    assert records[-1].reason == "not a parameter of the model"


def test_centralization_keeps_depthwise_and_leaves_out_what_has_no_other_axis():
    zoo = Zoo()
    optimizer = torch.optim.SGD(zoo.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, zoo, metric=riesz.Centralization(), layers="all")
    told = {r.name: r for r in attachment.report()}
    assert told["depthwise.weight"].applied
    assert told["norm.weight"].reason == "no axis to average over besides the directed one"


def grouped_by_hand(metric, module, f, direction):
    """What the definition says for grouped layers, with each group cut out and directed on its own."""
    transposed = isinstance(module, nn.ConvTranspose2d)
    dim = int((direction == "input") != transposed)
    return torch.cat([by_hand(metric, block, dim) for block in f.chunk(module.groups)])


@pytest.mark.parametrize("direction", ["output", "input"])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_groups_are_directed_one_by_one(kind, direction, memory_format):
    module = kind(6, 9, 3, groups=3, bias=False)
    metric = riesz.SobolevTilde(lam=0.1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    riesz.attach(optimizer, module, metric=metric, direction=direction)
    module.weight.grad = torch.randn_like(module.weight).to(memory_format=memory_format)
    wanted = grouped_by_hand(metric, module, module.weight.grad, direction)
    optimizer.step()
    assert relative_error(module.weight.grad, wanted) <= 2e-6


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_groups_are_centred_one_by_one(kind):
    module = kind(6, 9, 3, groups=3, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    riesz.attach(optimizer, module, metric=riesz.Centralization())
    f = torch.randn_like(module.weight)
    module.weight.grad = f.clone()
    optimizer.step()
    others = (0, 2, 3) if kind is nn.ConvTranspose2d else (1, 2, 3)
    wanted = torch.cat([block - block.mean(others, keepdim=True) for block in f.chunk(3)])
    torch.testing.assert_close(module.weight.grad, wanted)


def test_rasterized_follows_logical_order_whatever_the_strides():
    module = nn.Conv2d(3, 4, 3, bias=False)
    metric = riesz.LaplacianSmoothing(2.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    riesz.attach(optimizer, module, metric=metric, direction="rasterized")
    f = torch.randn_like(module.weight)
    wanted = by_hand(metric, f.flatten()).view_as(f)
    module.weight.grad = f.to(memory_format=torch.channels_last)
    strides = module.weight.grad.stride()
    optimizer.step()
    assert relative_error(module.weight.grad, wanted) <= 2e-6
    assert module.weight.grad.stride() == strides


def test_a_weight_shared_with_an_embedding_is_left_alone_whichever_comes_first():
    for first in (nn.Linear(4, 10, bias=False), nn.Embedding(10, 4)):
        second = nn.Embedding(10, 4) if isinstance(first, nn.Linear) else nn.Linear(4, 10, bias=False)
        second.weight = first.weight
        model = nn.Sequential(first, second, nn.Conv2d(2, 3, 1))
        told = {r.name: r.reason for r in report(model, layers="all")}
        assert told["0.weight"] == "embedding: its rows are a vocabulary, not channels"


def test_a_weight_whose_layers_disagree_is_left_alone():
    model = nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), nn.ConvTranspose2d(6, 4, 3, bias=False), nn.Conv2d(2, 3, 1))
    model[1].weight = model[0].weight
    told = {r.name: r.reason for r in report(model)}
    assert told["0.weight"] == "shared by 0.weight and 1.weight, whose directed axes differ"


class Holding(nn.Module):
    """Registers the weight of its own layer, too: as a parameter, in a list, or in another module."""

    def __init__(self, layer, how):
        super().__init__()
        if how == "before":
            self.kernel = layer.weight
        self.layer = layer
        if how == "after":
            self.kernel = layer.weight
        elif how == "in a list":
            self.kernels = nn.ParameterList([layer.weight])
        elif how == "in another module":
            self.other = nn.Module()
            self.other.weight = layer.weight


@pytest.mark.parametrize("layers", ["conv", "all", lambda name, module, parameter: isinstance(module, nn.Conv2d)])
@pytest.mark.parametrize("how", ["before", "after", "in a list", "in another module"])
def test_a_conv_weight_that_another_module_registers_too_is_directed(how, layers):
    told = report(Holding(nn.Conv2d(6, 4, 3, bias=False, groups=2), how), layers=layers)
    assert [(r.name, r.layer, str(r.where), r.reason) for r in told] == [
        ("layer.weight", "Conv2d", "0 in 2 groups", "")
    ]
    if layers == "all":
        assert applied(report(Holding(nn.ConvTranspose2d(6, 4, 3, bias=False), how), layers="all")) == {
            "layer.weight": (1, 4)
        }


class Mixed(nn.Module):
    """Layers of every kind that keeps weights."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 6)
        self.attention = nn.MultiheadAttention(6, 2, add_bias_kv=True)
        self.unlike = nn.MultiheadAttention(6, 2, bias=False, kdim=4, vdim=4)
        self.lstm = nn.LSTM(6, 5, proj_size=3)
        self.cell = nn.GRUCell(3, 7, bias=False)
        self.plain = nn.RNN(7, 8, bias=False)
        self.normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 9, bias=False))
        self.embedding = nn.Embedding(10, 9)
        self.token = nn.Parameter(torch.zeros(3, 9))


WEIGHTS = {
    "conv.weight": "0",
    "linear.weight": "0",
    "attention.in_proj_weight": "0 in 3 groups",
    "attention.out_proj.weight": "0",
    "unlike.q_proj_weight": "0",
    "unlike.k_proj_weight": "0",
    "unlike.v_proj_weight": "0",
    "unlike.out_proj.weight": "0",
    "lstm.weight_ih_l0": "0 in 4 groups",
    "lstm.weight_hh_l0": "0 in 4 groups",
    "lstm.weight_hr_l0": "0",
    "cell.weight_ih": "0 in 3 groups",
    "cell.weight_hh": "0 in 3 groups",
    "plain.weight_ih_l0": "0",
    "plain.weight_hh_l0": "0",
    f"normed.{WEIGHT}1": "0",
}
OTHERS = {
    "conv.bias": "0",
    "norm.weight": "0",
    "norm.bias": "0",
    "linear.bias": "0",
    "attention.in_proj_bias": "0 in 3 groups",
    "attention.out_proj.bias": "0",
    "lstm.bias_ih_l0": "0 in 4 groups",
    "lstm.bias_hh_l0": "0 in 4 groups",
    f"normed.{WEIGHT}0": "0",
    "token": "0",
}


def test_layers_weights_is_conv_and_linear_weights_and_nothing_one_dimensional():
    records = report(Mixed(), layers="weights")
    assert {r.name: str(r.where) for r in records if r.applied} == WEIGHTS
    reasons = {r.name: r.reason for r in records if not r.applied}
    assert reasons["norm.weight"] == reasons[f"normed.{WEIGHT}0"] == "one-dimensional (layers='weights')"
    assert reasons["token"] == "not a weight of a conv or linear layer (layers='weights')"
    assert reasons["embedding.weight"].startswith("embedding")
    alone = torch.optim.SGD(Mixed().parameters(), lr=0.1)
    report_ = riesz.attach(alone, metric=riesz.SobolevTilde(), layers="weights").report()
    assert all(r.applied == (len(r.shape) > 1 and max(r.shape[0], 1) > 1) for r in report_)


def test_layers_all_is_every_parameter_but_embeddings():
    records = report(Mixed(), layers="all")
    assert {r.name: str(r.where) for r in records if r.applied} == WEIGHTS | OTHERS
    assert {r.name for r in records if not r.applied} == {"embedding.weight", "attention.bias_k", "attention.bias_v"}


@pytest.mark.parametrize("metric", [riesz.SobolevTilde(0.1), riesz.ReweightedL2(2.0)], ids=str)
def test_fused_projections_are_directed_one_by_one(metric):
    model = nn.ModuleList([nn.MultiheadAttention(6, 2), nn.LSTM(4, 5)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=metric, layers="all")
    parts = {"in_proj_weight": 3, "in_proj_bias": 3, "weight_ih_l0": 4, "bias_hh_l0": 4}
    wanted = {}
    for name, parameter in model.named_parameters():
        parameter.grad = torch.randn_like(parameter)
        if name[2:] in parts:
            wanted[name] = torch.cat([by_hand(metric, f) for f in parameter.grad.chunk(parts[name[2:]])])
    optimizer.step()
    assert len(wanted) == 4
    for name, g in wanted.items():
        assert relative_error(model.get_parameter(name).grad, g) <= 2e-6, name


def test_a_weight_that_only_one_of_its_layers_is_chosen_for_is_left_alone_for_the_true_reason():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), nn.Conv2d(4, 4, 3, bias=False), nn.Conv2d(2, 3, 1))
    model[1].weight = model[0].weight
    told = {r.name: r.reason for r in report(model, layers=lambda name, module, parameter: name != "1.weight")}
    assert told["0.weight"] == "shared by 0.weight and 1.weight; 1.weight: not chosen by the predicate"


def test_magnitudes_of_a_weight_norm_are_told_from_a_weight_of_their_shape():
    model = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 8, 1, bias=False)))
    assert applied(report(model)) == {f"0.{WEIGHT}1": (0, 8)}
    assert applied(report(model, layers="all", direction="input")) == {f"0.{WEIGHT}0": (0, 8)}


def test_lazy_layers_that_are_not_asked_for_do_not_matter():
    model = nn.Sequential(nn.Conv2d(2, 3, 1, bias=False), nn.LazyLinear(2, bias=False))
    records = report(model)
    assert applied(records) == {"0.weight": (0, 3)}
    assert records[1].reason == "not a conv weight (layers='conv')"
