"""Signal, noise and curvature of the shared part, where they are known: a quadratic with noise that is listed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import riesz_lab
from riesz_lab import cli
from riesz_lab.errors import LabError
from riesz_lab.inspection.gradients import DIRECTIONS, NETWORK, _axes, shared


class Quadratic(nn.Module):
    """1/2 (k_P |P d|^2 + k_Q |Q d|^2) + <noise, w>, d = w - target: its gradient and Hessian are known."""

    def __init__(self, direction: str, shared_curvature: float, rest_curvature: float):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 2, bias=False).double()
        self.norm = nn.BatchNorm2d(3)
        self.target = torch.randn_like(self.conv.weight) + 0.5
        self.axis = _axes(self, dict(self.named_parameters()), direction, "conv")["conv.weight"]
        self.curvatures = shared_curvature, rest_curvature

    def forward(self, noise: Tensor) -> Tensor:
        self.norm(noise[:, 0, :, :, :].float())  # it has buffers, which must be left as they were
        d = self.conv.weight - self.target
        p = shared(d, self.axis)
        bowl = sum(k * part.square().sum() / 2 for k, part in zip(self.curvatures, (p, d - p), strict=True))
        return bowl + (noise * self.conv.weight).flatten(1).sum(1)


def data(noise: float, count: int = 64):
    draws = noise * torch.randn(count, 4, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws -= draws.mean(0)
    return torch.utils.data.TensorDataset(draws, torch.zeros(count))


def modes(model, items, **settings):
    return riesz_lab.gradient_modes(model, items, lambda outputs, _: outputs.mean(), curvature_batch=8, **settings)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("stiff", "flat"), [(10.0, 1.0), (1.0, 4.0), (2.0, 2.0)])
def test_without_noise_the_best_lam_is_the_ratio_of_curvatures(direction, stiff, flat):
    model = Quadratic(direction, stiff, flat)
    found = modes(model, data(0.0), lams=(-0.9, 1.0, flat / stiff - 1))
    mode = next(mode for mode in found.layers if mode.direction == direction)
    d = (model.conv.weight - model.target).detach()
    p = shared(d, model.axis)
    signal = stiff**2 * p.square().sum().item(), flat**2 * (d - p).square().sum().item()
    assert mode.lam == pytest.approx(flat / stiff - 1, abs=1e-9)
    assert mode.lam_error == pytest.approx(0, abs=1e-9)
    assert mode.share == pytest.approx(signal[0] / sum(signal), rel=1e-9)
    assert mode.curvature == pytest.approx(stiff / flat, rel=1e-9)
    decreases = {}
    for lam in (0.0, -0.9, 1.0, flat / stiff - 1):
        c = 1 + lam
        decreases[lam] = (c * signal[0] + signal[1]) ** 2 / (c * c * stiff * signal[0] + flat * signal[1])
    for lam, gain in mode.gains.items():
        assert gain == pytest.approx(decreases[lam] / decreases[0.0] - 1, abs=1e-9)
    assert max(mode.gains.values()) == mode.gains[flat / stiff - 1]
    network = next(mode for mode in found.network if mode.direction == direction)
    assert network.gains == pytest.approx(mode.gains, rel=1e-9)
    assert found.gain(direction, -0.9) == network.gains[-0.9]


def test_signal_and_noise_are_those_of_the_batches_that_were_drawn():
    model, items = Quadratic("output", 3.0, 1.0), data(0.3)
    found = modes(model, items, batch_size=1, batches=64, products=64)
    mode = next(mode for mode in found.layers if mode.direction == "output")
    # Every item is one batch, once; the others are those whose Hessian is taken, which is the same everywhere.
    order = []
    generator = torch.Generator().manual_seed(0)
    while len(order) < 8 * 16:
        order += torch.randperm(64, generator=generator).tolist()
    drawn = [order[16 * group + index] for group in range(8) for index in range(8)]
    d = (model.conv.weight - model.target).detach()
    p = shared(d, model.axis)
    gradients = [3.0 * p + (d - p) + items[index][0] for index in drawn]
    parts = [
        [shared(g, model.axis).flatten() for g in gradients],
        [(g - shared(g, model.axis)).flatten() for g in gradients],
    ]
    signal, energy = [], []
    for part in parts:
        pairs = [float(a @ b) for i, a in enumerate(part) for j, b in enumerate(part) if i != j]
        signal.append(np.mean(pairs))
        energy.append(np.mean([float(a @ a) for a in part]))
    ratios = [s / (e - s) for s, e in zip(signal, energy, strict=True)]
    assert mode.share == pytest.approx(signal[0] / sum(signal), rel=1e-9)
    assert mode.signal_to_noise == pytest.approx(ratios[0] / ratios[1], rel=1e-9)
    best = (signal[0] / (3 * energy[0])) / (signal[1] / energy[1]) - 1
    assert mode.lam == pytest.approx(best, rel=1e-9)


def test_noise_in_the_shared_part_alone_asks_for_damping_and_its_error_covers_the_truth():
    covered = 0
    for seed in range(6):
        model = Quadratic("output", 1.0, 1.0)
        draws = torch.randn(4096, 4, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        noise = torch.stack([2.0 * shared(one, model.axis) for one in draws])
        d = (model.conv.weight - model.target).detach()
        p = shared(d, model.axis)
        # E |P noise|^2 = 4 * (entries of the mean)
        truth = float(p.square().sum()) / (float(p.square().sum()) + 4.0 * 12) - 1
        items = torch.utils.data.TensorDataset(noise, torch.zeros(len(noise)))
        mode = modes(model, items, batch_size=1, batches=256, products=64, seed=seed).layers[0]
        assert mode.lam is not None
        assert mode.lam < 0
        assert mode.signal_to_noise < 1e-3
        covered += abs(mode.lam - truth) <= mode.lam_error
    assert covered >= 5


def test_a_hessian_vector_product_of_a_real_network_is_that_of_finite_differences():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)).double()
    items = torch.utils.data.TensorDataset(torch.randn(8, 2, 4, 4).double(), torch.randint(2, (8,)))
    loss = nn.functional.cross_entropy
    settings = {"batch_size": 8, "batches": 8, "products": 8, "curvature_batch": 8}
    mode = riesz_lab.gradient_modes(model, items, loss, **settings).layers[0]
    images, labels = items[:]

    def gradient():
        return torch.autograd.grad(loss(model(images), labels), model[0].weight)[0]

    g = gradient()
    p = g.mean(0, keepdim=True).expand_as(g)
    h = {}
    for name, part in (("p", p), ("q", g - p)):
        with torch.no_grad():
            model[0].weight += 1e-5 * part
        above = gradient()
        with torch.no_grad():
            model[0].weight -= 2e-5 * part
        h[name] = (above - gradient()) / 2e-5
        with torch.no_grad():
            model[0].weight += 1e-5 * part
    curvature = (p * h["p"]).sum() / p.square().sum() / (((g - p) * h["q"]).sum() / (g - p).square().sum())
    assert mode.curvature == pytest.approx(curvature.item(), rel=1e-5)


def test_the_model_is_left_as_it_was():
    model = Quadratic("output", 1.0, 1.0)
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes(model, data(0.1))
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.conv.weight.grad is None


def test_what_has_no_quadratic_model_has_no_lam():
    model = Quadratic("output", -1.0, 1.0)
    mode = next(mode for mode in modes(model, data(0.0)).layers if mode.direction == "output")
    assert mode.lam is None
    assert math.isfinite(mode.curvature)


def test_a_model_without_conv_weights_and_odd_numbers_of_batches_are_refused():
    items = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.zeros(8))
    with pytest.raises(LabError, match="expected a model with conv weights"):
        riesz_lab.gradient_modes(nn.Linear(2, 1), items, nn.functional.mse_loss)
    with pytest.raises(LabError, match="batches: expected a multiple of 8, got 12"):
        riesz_lab.gradient_modes(nn.Conv2d(1, 1, 1), items, nn.functional.mse_loss, batches=12)


BUILD = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten(), nn.Linear(12, 2))
    data = torch.utils.data.TensorDataset(torch.randn(64, 1, 6, 6), torch.randint(2, (64,)))
    return model, (data, data), nn.functional.cross_entropy

def train(attach, seed):
    return 0.0
"""


def test_the_command_prints_a_table_and_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BUILD)
    assert cli.main(["inspect", "mine.py:build", "--gradients", "-o", "page.html"]) == 0
    out = capsys.readouterr().out
    assert "0.weight     output" in out
    assert "fan_in" in out
    assert NETWORK in out
    page = (tmp_path / "page.html").read_text()
    assert "What gradients share" in page
    assert "Signal to noise and curvature of the shared part, by layer" in page
    assert cli.main(["inspect", "mine.py:train", "--gradients"]) == 1
    assert "expected build()" in capsys.readouterr().err
    assert cli.main(["inspect", "mine.py", "--gradients"]) == 1
