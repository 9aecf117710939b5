"""How far apart two images are to VGG-19 (Johnson et al.; weights and layers as pix2pixHD and SPADE)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from riesz_lab.models import pretrained

# Numbers are filters of a 3x3 conv; 0 is a 2x2 max pooling. Up to relu5_1.
LAYERS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512)
TAKEN = {1: 1 / 32, 6: 1 / 16, 11: 1 / 8, 20: 1 / 4, 29: 1.0}
"""relu1_1, relu2_1, relu3_1, relu4_1, relu5_1 by torchvision's numbers, and their weights."""


class PerceptualLoss(nn.Module):
    """Weighted L1 distance of features; images in -1..1, as its authors feed them. Never trained."""

    def __init__(self, weights: Path):
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for filters in LAYERS:
            if filters == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.ReLU()]
            inputs = filters
        self.features = nn.Sequential(*layers)
        pretrained.load_into(self, weights, extra=("features.", "classifier."))
        self.requires_grad_(False).eval()

    def forward(self, fake: Tensor, real: Tensor) -> Tensor:
        loss = fake.new_zeros(())
        for number, layer in enumerate(self.features):
            fake = layer(fake)
            with torch.no_grad():
                real = layer(real)
            if number in TAKEN:
                loss = loss + TAKEN[number] * functional.l1_loss(fake, real)
        return loss
