"""What riesz directs in a network with every kind of convolution, and why it leaves the rest alone."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import riesz

model = nn.ModuleDict(
    {
        "plain": nn.Conv2d(3, 8, 3),
        "pointwise": nn.Conv2d(8, 16, 1),
        "grouped": nn.Conv2d(16, 8, 3, groups=4),
        "depthwise": nn.Conv2d(8, 8, 3, groups=8),
        "transposed": nn.ConvTranspose2d(8, 6, 2),
        "grouped_transposed": nn.ConvTranspose2d(6, 8, 2, groups=2),
        "spectral": spectral_norm(nn.Conv2d(8, 4, 3)),
        "norm": nn.BatchNorm2d(4),
        "words": nn.Embedding(10, 4),
        "head": nn.Linear(4, 2),
    }
)
for layers in ("conv", "all"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde(), layers=layers)
    print(f"layers={layers!r}\n{attachment.report()}\n")
