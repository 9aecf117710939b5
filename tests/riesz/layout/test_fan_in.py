"""The fan-in of an output: one axis through all that leads to it, in logical order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import riesz
from cases import LAYOUTS, METRICS, laid_out, relative_error
from networks import Zoo
from riesz.backends import direct_
from riesz.backends.reference import dense
from riesz.layout.axis import Axis, ColumnView

CONVS = {
    "plain": nn.Conv2d(4, 6, 3),
    "grouped": nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": nn.Conv2d(4, 4, 3, groups=4),
    "transposed": nn.ConvTranspose2d(4, 6, 3),
    "grouped transposed": nn.ConvTranspose2d(4, 6, 3, groups=2),
}


def filters(conv: nn.Module, weight: Tensor) -> Tensor:
    """Each output's filter as a row: its inputs and positions in row-major order."""
    if isinstance(conv, nn.ConvTranspose2d):
        groups = conv.groups
        blocks = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        return blocks.transpose(1, 2).reshape(conv.out_channels, -1)
    return weight.reshape(conv.out_channels, -1)


def directed(conv: nn.Module, f: Tensor, backend: str = "auto", **settings) -> Tensor:
    optimizer = torch.optim.SGD([conv.weight], lr=0.0)
    riesz.attach(optimizer, conv, backend=backend, **settings)
    conv.weight.grad = f
    optimizer.step()
    return conv.weight.grad


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_fan_in_is_the_dense_matrix_on_every_filter(kind, metric):
    conv = CONVS[kind].double()
    f = torch.randn_like(conv.weight)
    rows = filters(conv, f)
    wanted = rows @ dense(metric, rows.shape[1])
    for backend in ("cpu", "eager", "reference"):
        got = directed(conv, f.clone(), backend, metric=metric, direction="fan_in")
        assert relative_error(filters(conv, got), wanted) <= 1e-12, backend


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["plain", "grouped transposed"])
def test_fan_in_is_read_in_logical_order_however_memory_lies(kind, layout):
    conv, metric = CONVS[kind].double(), riesz.SobolevTilde(0.02)
    f = torch.randn_like(conv.weight)
    wanted = directed(conv, f.clone(), metric=metric, direction="fan_in").clone()
    gradient = laid_out(f, layout)
    conv.weight.data = laid_out(conv.weight.data, layout)
    got = directed(conv, gradient, metric=metric, direction="fan_in")
    assert got.stride() == gradient.stride()
    assert relative_error(got, wanted) <= 1e-14


@pytest.mark.parametrize("kind", CONVS)
def test_centralization_is_the_limit_of_damping_the_mean_of_the_fan_in(kind):
    conv = CONVS[kind].double()
    f = torch.randn_like(conv.weight)
    centred = directed(conv, f.clone(), metric=riesz.Centralization(), layers=lambda *_: True).clone()
    for gap in (1e-3, 1e-6, 1e-12):
        metric = riesz.ReweightedL2(lam=gap - 1)
        got = directed(conv, f.clone(), metric=metric, direction="fan_in")
        assert relative_error(got, centred) <= gap + 1e-14


def test_complex_gradients_are_directed_part_by_part():
    f, axis = torch.randn(4, 3, 2, dtype=torch.complex128), Axis(1, groups=2, fan_in=True)
    got, parts = f.clone(), [f.real.clone(), f.imag.clone()]
    direct_([ColumnView.open(part, axis) for part in (got, *parts)], riesz.SobolevTilde(0.02), "auto")
    assert relative_error(got, torch.complex(*parts)) <= 1e-14


def test_every_kind_of_conv_has_its_fan_in_and_one_entry_per_output_has_none():
    zoo = Zoo()
    optimizer = torch.optim.SGD(zoo.parameters(), lr=0.1)
    records = riesz.attach(optimizer, zoo, metric=riesz.Sobolev(), direction="fan_in", layers="all").report()
    lengths = {r.name: r.length for r in records if r.applied}
    assert all(r.axis == "fan_in" for r in records if r.applied)
    assert lengths["plain.weight"] == 3 * 9
    assert lengths["grouped.weight"] == zoo.grouped.weight[0].numel()
    assert lengths["grouped_transposed.weight"] == 3 * zoo.grouped_transposed.weight[0, 0].numel()
    assert lengths["head.weight"] == zoo.head.in_features
    reasons = {r.name: r.reason for r in records if not r.applied}
    assert reasons["plain.bias"] == reasons["norm.weight"] == "one entry per output: no fan-in"


def test_centralization_names_its_direction_where_fan_in_is_asked():
    conv = nn.Conv2d(4, 6, 3)
    with pytest.raises(ValueError, match="its direction is 'output'"):
        riesz.attach(torch.optim.SGD(conv.parameters(), lr=0.1), conv, metric="centralization", direction="fan_in")
