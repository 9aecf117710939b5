"""The distance of two images to VGG-19 (Johnson et al.; weights and layers as in pix2pixHD and SPADE)."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from riesz_lab.models import pretrained
from riesz_lab.models.layers import conv_stack

FILTERS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512)
"""Up to relu5_1."""
WEIGHTS = {1: 1 / 32, 6: 1 / 16, 11: 1 / 8, 20: 1 / 4, 29: 1.0}
"""relu1_1, relu2_1, relu3_1, relu4_1, relu5_1 by torchvision's numbers, and their weights."""


class PerceptualLoss(nn.Module):
    """Weighted L1 distance of features; images in -1..1, as its authors feed them. Never trained."""

    def __init__(self, weights: Path):
        super().__init__()
        self.features = conv_stack(3, FILTERS, norm=False)
        pretrained.load_into(self, weights, extra=("features.", "classifier."))
        self.requires_grad_(False).eval()

    def forward(self, fake: Tensor, real: Tensor) -> Tensor:
        loss = fake.new_zeros(())
        for number, layer in enumerate(self.features):
            fake = layer(fake)
            with torch.no_grad():
                real = layer(real)
            if number in WEIGHTS:
                loss = loss + WEIGHTS[number] * functional.l1_loss(fake, real)
        return loss
