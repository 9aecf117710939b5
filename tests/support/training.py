"""A small conv network, its data and its backward pass: the loop that hooks are tested in."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(16, 3)
    )


def batch(step: int, size: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, 2, 6, 6, generator=generator), torch.randint(3, (size,), generator=generator)


def loss_of(model: nn.Module, step: int) -> Tensor:
    images, labels = batch(step)
    return nn.functional.cross_entropy(model(images), labels)


def backward(model: nn.Module, step: int) -> Tensor:
    loss = loss_of(model, step)
    loss.backward()
    return loss


def conv_gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.dim() == 4 and p.grad is not None]


def impersonate(parameter: nn.Parameter) -> None:
    """Replace a gradient by a new tensor of ones with the id, and as many writes, of the one that is freed."""
    assert parameter.grad is not None
    identity, version = id(parameter.grad), parameter.grad._version
    parameter.grad = None
    others = [torch.ones_like(parameter)]
    while id(others[-1]) != identity:
        assert len(others) < 10_000, "the id of a freed tensor was not given away again"
        others.append(torch.ones_like(parameter))
    gradient = others[-1].detach_()
    while gradient._version < version:
        gradient.mul_(1.0)
    parameter.grad = gradient
