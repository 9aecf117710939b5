"""U-Net (Ronneberger et al.) whose contracting path is a ResNet.

Each step of the expanding path doubles the size by a 2x2 transposed conv, joins the encoder's features of that size,
and runs two 3x3 convs over both. The last step has no features to join; a 1x1 conv then classifies every pixel.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from riesz_lab.models.encoder import STAGES, Encoder
from riesz_lab.models.layers import check_positive

STRIDE = 32
"""The encoder halves five times."""


class Up(nn.Module):
    def __init__(self, inputs: int, skip: int, outputs: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.conv1 = nn.Conv2d(outputs + skip, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, skip: Tensor | None) -> Tensor:
        x = self.up(x)
        if skip is not None:
            x = torch.cat([x, skip], 1)
        x = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(x)), inplace=True)


class UNet(nn.Module):
    def __init__(self, channels: int, classes: int, depth: int, width: int):
        super().__init__()
        self.encoder = Encoder(channels, depth, width)
        *skips, inputs = self.encoder.widths
        ups = []
        for number, skip in enumerate((*reversed(skips), 0)):
            outputs = max(8, 4 * width >> number)
            ups.append(Up(inputs, skip, outputs))
            inputs = outputs
        self.decoder = nn.ModuleList(ups)
        self.head = nn.Conv2d(inputs, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of every pixel; images of any size, padded to a multiple of the encoder's stride."""
        height, width = images.shape[-2:]
        padded = functional.pad(images, (0, -width % STRIDE, 0, -height % STRIDE))
        *skips, x = self.encoder(padded)
        for up, skip in zip(self.decoder, (*reversed(skips), None), strict=True):
            x = up(x, skip)
        logits: Tensor = self.head(x)[..., :height, :width]
        return logits


def unet(channels: int, classes: int, *, depth: int = 50, width: int = 64) -> nn.Module:
    """U-Net on a ResNet of this depth (14, 26, 50, 101 or 152) whose first conv has `width` filters."""
    if depth not in STAGES:
        raise ValueError(f"depth: expected one of {', '.join(map(str, STAGES))}, got {depth!r}")
    check_positive(width=width)
    return UNet(channels, classes, depth, width)
