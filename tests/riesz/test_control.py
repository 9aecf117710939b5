"""The controls: "norm" keeps lengths and only turns, "permuted" takes another order, "signs" flips channels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import riesz
from cases import by_hand, relative_error
from riesz.backends.reference import dense
from riesz.control import permutation, signs
from training import backward, batch, network


def test_norm_control_keeps_each_norm_and_only_turns():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.02), control="norm")
    backward(model, 0)
    f = model[0].weight.grad.clone()
    model[3].weight.grad.zero_()
    optimizer.step()
    g = model[0].weight.grad
    wanted = by_hand(riesz.SobolevTilde(0.02), f)
    assert relative_error(g, wanted * (f.double().norm() / wanted.norm())) <= 2e-6
    assert (model[3].weight.grad == 0).all()


def test_norm_control_leaves_non_finite_gradients_visible():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(), control="norm")
    backward(model, 0)
    model[0].weight.grad[0, 0, 0, 0] = torch.inf
    optimizer.step()
    assert not torch.isfinite(model[0].weight.grad).all()


@pytest.mark.parametrize("direction", ["output", "rasterized"])
def test_permuted_control_is_conjugation_by_one_fixed_permutation(direction):
    def step(f):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        metric = riesz.SobolevTilde(0.02, blend=0.0)
        riesz.attach(optimizer, model, metric=metric, control="permuted", direction=direction)
        model[0].weight.grad = f.clone()
        optimizer.step()
        return model[0].weight.grad

    f = torch.randn(6, 2, 3, 3)
    g = step(f)
    assert torch.equal(g, step(f))
    n = 6 if direction == "output" else f.numel()
    matrix = torch.stack([step(column.view_as(f)).flatten() for column in torch.eye(f.numel())])
    if direction == "output":
        matrix = matrix.view(6, 18, 6, 18)[:, 0, :, 0]
    kernel = riesz.SobolevTilde(0.02, blend=0.0).kernel(n)
    plain = torch.stack([kernel.roll(i) for i in range(n)])
    torch.testing.assert_close(matrix.double(), matrix.double().T, atol=1e-4, rtol=1e-4)
    eigenvalues, wanted = (torch.linalg.eigvalsh(m.double()) for m in (matrix, plain))
    torch.testing.assert_close(eigenvalues, wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(matrix.double(), plain, atol=1e-2)


def relabel(model):
    """Rename the channels of a network without skip connections, so that the permuted order becomes the true one."""
    first, norm, _, second, _, head = model
    for conv, name, following in ((first, "0.weight", second), (second, "3.weight", head)):
        order = permutation(name, conv.out_channels, torch.device("cpu"))
        per_channel = [conv.weight, conv.bias, *([norm.weight, norm.bias] if conv is first else [])]
        with torch.no_grad():
            for parameter in per_channel:
                parameter.copy_(parameter[order])
            inputs = following.weight.unflatten(1, (conv.out_channels, -1))  # several pixels of a channel, in the head
            following.weight.copy_(inputs[:, order].view_as(following.weight))


def test_without_skip_connections_a_fixed_order_from_the_start_only_names_the_channels_anew():
    """So it cannot lose a benefit there: initial weights under any names are equally likely."""

    def train(model, control):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.02), control=control)
        for step in range(5):
            optimizer.zero_grad()
            images, labels = batch(step)
            nn.functional.cross_entropy(model(images.double()), labels).backward()
            optimizer.step()
        return model

    renamed, permuted, plain = (network().double() for _ in range(3))
    relabel(renamed)
    train(renamed, None)
    train(permuted, "permuted")
    train(plain, None)
    assert relative_error(permuted[3].weight, plain[3].weight) > 1e-3
    relabel(permuted)
    for wanted, got in zip(renamed.parameters(), permuted.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float16, 1.0),
        (torch.float16, 1e-3),
        (torch.bfloat16, 1.0),
        (torch.bfloat16, 1e-24),
        (torch.float32, 1e-24),
        (torch.float32, 1e20),
    ],
)
def test_norm_control_keeps_norms_in_every_dtype_and_range(dtype, size):
    model = nn.Conv2d(4, 512, 1, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.SobolevTilde(1.0, blend=0.0), control="norm")
    signs = torch.randint(2, (512, 4, 1, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
    model.weight.grad = (signs * size).to(dtype)
    wanted = model.weight.grad.double().norm().item()
    optimizer.step()
    assert model.weight.grad.double().norm().item() == pytest.approx(wanted, rel=1e-3 if dtype.itemsize == 2 else 1e-5)


def test_permutations_differ_by_name_and_ignore_wrappers():
    cpu = torch.device("cpu")
    first = permutation("a.weight", 50, cpu)
    assert not torch.equal(first, permutation("b.weight", 50, cpu))
    assert torch.equal(first, permutation("module.a.weight", 50, cpu))
    assert torch.equal(first, permutation("_orig_mod.a.weight", 50, cpu))


@pytest.mark.parametrize("direction", ["output", "input", "fan_in", "rasterized"])
@pytest.mark.parametrize("metric", [riesz.ReweightedL2(lam=-0.9), riesz.SobolevTilde(0.02)])
def test_signs_control_is_conjugation_by_one_fixed_diagonal_of_signs(direction, metric):
    f = torch.randn(6, 2, 3, 3, dtype=torch.float64)
    model = network().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=metric, control="signs", direction=direction)
    model[0].weight.grad = f.clone()
    optimizer.step()
    lines = {"output": f.flatten(1).T, "input": f.movedim(1, -1).reshape(-1, 2), "fan_in": f.flatten(1)}
    columns = lines.get(direction, f.reshape(1, -1))
    n = columns.shape[1]
    diagonal = torch.diag(signs("0.weight", n, f.device).double())
    wanted = columns @ (diagonal @ dense(metric, n) @ diagonal)
    got = model[0].weight.grad
    lines = {"output": got.flatten(1).T, "input": got.movedim(1, -1).reshape(-1, 2), "fan_in": got.flatten(1)}
    assert relative_error(lines.get(direction, got.reshape(1, -1)), wanted) <= 1e-12
    assert diagonal.trace() == n % 2  # half of them each: no part of the mean is left in the direction they give


def test_signs_control_leaves_a_random_direction_of_the_mean_alone():
    """Of a gradient that all channels share, damping the mean takes nine tenths; around random signs it takes none."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    riesz.attach(optimizer, model, metric=riesz.ReweightedL2(lam=-0.9), control="signs")
    model[0].weight.grad = torch.randn(1, 2, 3, 3).repeat(6, 1, 1, 1)
    f = model[0].weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model[0].weight.grad, f)
