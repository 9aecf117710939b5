"""Diagnostics: length and angle of the last step, exact or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import riesz
from training import backward, impersonate, network


@pytest.mark.parametrize("control", [None, "norm", "permuted"])
def test_diagnostics_recovered_from_the_directed_gradient_agree_with_recorded_ones(control):
    figures = []
    for recording in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05), control=control)
        attachment.recording = recording
        backward(model, 0)
        f = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        diagnoses = attachment.diagnostics()
        figures.append([(d.ratio, d.cosine) for d in diagnoses])
        for d in diagnoses:
            g = dict(model.named_parameters())[d.name].grad
            assert d.ratio == pytest.approx((g.norm() / f[d.name].norm()).item(), rel=1e-4)
            cosine = nn.functional.cosine_similarity(f[d.name].flatten(), g.flatten(), dim=0)
            assert d.cosine == pytest.approx(cosine.item(), rel=1e-4)
    assert torch.allclose(torch.tensor(figures[0]), torch.tensor(figures[1]), rtol=1e-4)


def test_diagnostics_say_why_a_gradient_cannot_be_recovered():
    model = nn.Sequential(nn.Conv2d(2, 512, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(blend=0.0))
    with pytest.raises(RuntimeError, match="was not directed"):
        attachment.diagnostics()
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="smooths it too strongly"):
        attachment.diagnostics()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="its gradient is gone"):
        attachment.diagnostics()
    attachment.metric = riesz.Centralization()
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="a projection cannot be undone"):
        attachment.diagnostics()
    attachment.recording = True
    optimizer.step()
    assert len(attachment.diagnostics()) == 1


def test_diagnostics_describe_the_last_step_or_raise():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05))
    backward(model, 0)
    optimizer.step()
    assert len(attachment.diagnostics()) == 2
    model[0].weight.grad.mul_(2)
    diagnoses = attachment.diagnostics()
    assert [d.name for d in diagnoses] == ["3.weight"]
    assert diagnoses.notes == ("0.weight: its gradient was changed after the step directed it",)
    model[3].weight.grad = torch.randn_like(model[3].weight)
    with pytest.raises(RuntimeError, match="changed after the step"):
        attachment.diagnostics()
    attachment.recording = True
    optimizer.step()
    assert len(attachment.diagnostics()) == 2
    attachment.metric = riesz.SobolevTilde(0.5)
    with pytest.raises(RuntimeError, match="was not directed by this metric"):
        attachment.diagnostics()
    optimizer.step()
    attachment.enabled = False
    optimizer.step()
    with pytest.raises(RuntimeError, match="was not directed"):
        attachment.diagnostics()


def test_diagnostics_do_not_take_a_later_gradient_for_the_one_of_the_step():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05))
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    impersonate(model[0].weight)
    with pytest.raises(RuntimeError, match="changed after the step"):
        attachment.diagnostics()


def test_diagnostics_of_a_zero_gradient_under_the_norm_control_are_finite():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05), control="norm")
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    optimizer.step()
    (diagnosis,) = attachment.diagnostics()
    assert (diagnosis.ratio, diagnosis.cosine) == (1.0, 1.0)


def test_diagnostics_do_not_depend_on_the_size_of_the_gradient():
    cosines = []
    for size in (1.0, 1e-85):
        model = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(0.05))
        attachment.recording = True
        grad = torch.linspace(-1, 2, model[0].weight.numel(), dtype=torch.float64).sin()
        model[0].weight.grad = size * grad.view_as(model[0].weight)
        optimizer.step()
        cosines.append(attachment.diagnostics()[0].cosine)
    assert cosines[0] < 0.999
    assert cosines[1] == pytest.approx(cosines[0], rel=1e-9)
