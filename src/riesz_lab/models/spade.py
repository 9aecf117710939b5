"""SPADE's generator (Park et al., Semantic Image Synthesis with Spatially-Adaptive Normalization), as its authors
configure it for Cityscapes: no encoder of style, so that an image follows from its label map alone.

A label map, at 1/32 of the size, becomes the first features. Residual blocks follow, with a doubling of the size after
most of them; in each, batch norm's scale and shift are computed, pixel by pixel, from the label map. The blocks' convs
have spectral norm.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from riesz_lab.models.layers import check_positive

STRIDE = 32
SLOPE = 0.2


class SPADE(nn.Module):
    """normalised * (1 + gamma(label map)) + beta(label map)."""

    def __init__(self, channels: int, labels: int, hidden: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.shared = nn.Conv2d(labels, hidden, 3, padding=1)
        self.gamma = nn.Conv2d(hidden, channels, 3, padding=1)
        self.beta = nn.Conv2d(hidden, channels, 3, padding=1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        shared = functional.relu(self.shared(labels))
        return torch.addcmul(self.beta(shared), self.norm(x), 1 + self.gamma(shared))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, labels: int, hidden: int):
        super().__init__()
        middle = min(inputs, outputs)
        self.norm_0 = SPADE(inputs, labels, hidden)
        self.conv_0 = spectral_norm(nn.Conv2d(inputs, middle, 3, padding=1))
        self.norm_1 = SPADE(middle, labels, hidden)
        self.conv_1 = spectral_norm(nn.Conv2d(middle, outputs, 3, padding=1))
        self.learned_shortcut = inputs != outputs
        if self.learned_shortcut:
            self.norm_s = SPADE(inputs, labels, hidden)
            self.conv_s = spectral_norm(nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = self.conv_0(functional.leaky_relu(self.norm_0(x, labels), SLOPE))
        y = self.conv_1(functional.leaky_relu(self.norm_1(y, labels), SLOPE))
        shortcut = self.conv_s(self.norm_s(x, labels)) if self.learned_shortcut else x
        out: Tensor = shortcut + y
        return out


class Generator(nn.Module):
    def __init__(self, labels: int, width: int, hidden: int):
        super().__init__()
        self.first = nn.Conv2d(labels, 16 * width, 3, padding=1)
        sizes = (16, 16, 16, 8, 4, 2, 1)
        self.blocks = nn.ModuleList(
            Block(width * a, width * b, labels, hidden) for a, b in zip((16, *sizes), sizes, strict=False)
        )
        # As the authors: the size doubles after every block but the second and the last.
        self.doubled = (True, False, True, True, True, True, False)
        self.last = nn.Conv2d(width, 3, 3, padding=1)
        initialise(self)

    def forward(self, labels: Tensor) -> Tensor:
        """Images in -1..1 for label maps (one channel per label, and one for edges) of a size divisible by 32."""
        height, width = labels.shape[-2:]
        x = self.first(_sized(labels, height // STRIDE, width // STRIDE))
        for block, doubled in zip(self.blocks, self.doubled, strict=True):
            x = block(x, _sized(labels, *x.shape[-2:]))
            if doubled:
                x = functional.interpolate(x, scale_factor=2, mode="nearest")
        return torch.tanh(self.last(functional.leaky_relu(x, SLOPE)))


def initialise(model: nn.Module) -> None:
    """As the authors: Xavier with a gain of 0.02, biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            # By name: reading the weight of a conv with spectral norm would advance its power iteration.
            weight = next(p for name, p in module.named_parameters() if name != "bias")
            nn.init.xavier_normal_(weight, gain=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def spade(channels: int, classes: int, *, width: int = 64, hidden: int = 128) -> nn.Module:
    """The generator. `channels` of label maps in; `width` filters at full size, 16 times as many at the smallest;
    `hidden` filters between a label map and a norm's scale and shift. `classes` is the images' channels: 3."""
    check_positive(width=width, hidden=hidden)
    if classes != 3:
        raise ValueError(f"classes: expected 3, the channels of an image, got {classes}")
    return Generator(channels, width, hidden)


def _sized(labels: Tensor, height: int, width: int) -> Tensor:
    if labels.shape[-2:] == (height, width):
        return labels
    return functional.interpolate(labels, size=(height, width), mode="nearest")
