"""A model with every kind of layer the scope must tell apart."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


class ScaledConv2d(nn.Conv2d):
    """A user's own subclass."""


class Zoo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.plain = nn.Conv2d(3, 8, 3)
        self.pointwise = nn.Conv2d(8, 16, 1, bias=False)
        self.grouped = nn.Conv2d(16, 8, 3, groups=4, bias=False)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.transposed = nn.ConvTranspose2d(8, 6, 2, bias=False)
        self.grouped_transposed = nn.ConvTranspose2d(6, 8, 2, groups=2, bias=False)
        self.spectral = spectral_norm(nn.Conv2d(8, 4, 3, bias=False))
        self.normed = weight_norm(nn.Conv1d(4, 5, 3, bias=False))
        self.own = ScaledConv2d(4, 6, 3, bias=False)
        self.volume = nn.Conv3d(2, 3, 2, bias=False)
        self.to_one = nn.Conv2d(4, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.words = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)
