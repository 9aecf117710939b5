"""The conv weights of the networks measured, and a ResNet-56 to train."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Shape = tuple[int, ...]


def resnet56() -> list[Shape]:
    shapes: list[Shape] = [(16, 3, 3, 3)]
    width = 16
    for out in (16, 32, 64):
        for _ in range(9):
            shapes += [(out, width, 3, 3), (out, out, 3, 3)]
            width = out
    return shapes


def resnet20() -> list[Shape]:
    shapes = resnet56()
    return [shapes[0], *shapes[1:7], *shapes[19:25], *shapes[37:43]]


def resnet18() -> list[Shape]:
    shapes: list[Shape] = [(64, 3, 7, 7)]
    width = 64
    for out in (64, 128, 256, 512):
        shapes += [(out, width, 3, 3), *[(out, out, 3, 3)] * 3]
        if out != width:
            shapes.append((out, width, 1, 1))
        width = out
    return shapes


def convnext_t() -> list[Shape]:
    """Its pointwise layers are linear in some implementations; here they are convolutions of size 1."""
    widths = (96, 192, 384, 768)
    shapes: list[Shape] = [(96, 3, 4, 4)]
    for width, depth in zip(widths, (3, 3, 9, 3), strict=True):
        shapes += [(width, 1, 7, 7), (4 * width, width, 1, 1), (width, 4 * width, 1, 1)] * depth
    return [*shapes, *((out, into, 2, 2) for into, out in pairwise(widths))]


def vgg16() -> list[Shape]:
    widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    return [(out, into, 3, 3) for into, out in pairwise(widths)]


def resnet50() -> list[Shape]:
    return _bottlenecks((3, 4, 6, 3), widening=1)


def _bottlenecks(blocks: tuple[int, ...], widening: int) -> list[Shape]:
    shapes: list[Shape] = [(64, 3, 7, 7)]
    width = 64
    for stage, count in enumerate(blocks):
        out = 256 << stage
        middle = widening * out // 4
        for block in range(count):
            shapes += [(middle, width, 1, 1), (middle, middle, 3, 3), (out, middle, 1, 1)]
            if block == 0:
                shapes.append((out, width, 1, 1))
            width = out
    return shapes


def wide_resnet152() -> list[Shape]:
    """ResNet-152 with its inner convolutions twice as wide: 172 million conv weights."""
    return _bottlenecks((3, 8, 36, 3), widening=2)


def unet() -> list[Shape]:
    down = [3, 64, 128, 256, 512, 1024]
    shapes: list[Shape] = []
    for into, out in pairwise(down):
        shapes += [(out, into, 3, 3), (out, out, 3, 3)]
    for into in (1024, 512, 256, 128):
        # The up-convolution is transposed, (in, out, 2, 2): along its output it is measured by its dim 0 like the rest.
        shapes += [(into, into // 2, 2, 2), (into // 2, into, 3, 3), (into // 2, into // 2, 3, 3)]
    return [*shapes, (2, 64, 1, 1)]


NETWORKS = {
    "ResNet-56": resnet56(),
    "VGG-16": vgg16(),
    "ResNet-50": resnet50(),
    "U-Net": unet(),
    "2048x2048x3x3": [(2048, 2048, 3, 3)],
}

COMPARED = {
    "ResNet-20": resnet20(),
    "ResNet-56": resnet56(),
    "ResNet-18": resnet18(),
    "ResNet-50": resnet50(),
    "VGG-16": vgg16(),
    "ConvNeXt-T": convnext_t(),
    "U-Net": unet(),
}
"""Those that `benchmarks.compare` takes."""


def gradients(shapes: list[Shape]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) * 1e-3 for shape in shapes]


class Block(nn.Module):
    def __init__(self, into: int, out: int):
        super().__init__()
        stride = out // into
        self.first, self.second = (
            nn.Conv2d(into, out, 3, stride, 1, bias=False),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.extra = out - into

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.second(functional.relu(self.norm1(self.first(x)))))
        if self.extra:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra // 2, self.extra // 2))
        return functional.relu(x + y)


class ResNet56(nn.Sequential):
    """The CIFAR ResNet with 56 layers and shortcuts without parameters."""

    def __init__(self) -> None:
        widths = [16] * 10 + [32] * 9 + [64] * 9
        super().__init__(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            *(Block(into, out) for into, out in pairwise(widths)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
