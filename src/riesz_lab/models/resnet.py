"""ResNets for CIFAR (He et al., Deep Residual Learning, section 4.2), 6n+2 layers.

A 3x3 conv, three stages of n blocks with 16, 32 and 64 filters, global average pooling, a linear layer. Shortcuts are
option A: where the size changes they subsample and pad with zero channels; they have no parameters.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from riesz_lab.models.layers import he_init


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.padding = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        # In place: batch norm's backward needs its input, not its output.
        return functional.relu(y.add_(shortcut(x, self.stride, self.padding)), inplace=True)


def shortcut(x: Tensor, stride: int, padding: int) -> Tensor:
    """Option A: every second position, and zero channels on both sides; the same where the stride is 1."""
    return x if stride == 1 else functional.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, padding, padding))


class PlainBlock(nn.Module):
    """A block without normalisation: biases, and a learned scale on the branch that starts at 0 (SkipInit)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.scale = nn.Parameter(torch.zeros(1))
        self.stride = stride
        self.padding = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(functional.relu(self.conv1(x))) * self.scale
        return functional.relu(y + shortcut(x, self.stride, self.padding))


class PlainResNet(nn.Module):
    """The same network without normalisation."""

    def __init__(self, blocks: int, channels: int, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1)
        stages = []
        inputs = 16
        for outputs, stride in ((16, 1), (32, 2), (64, 2)):
            for index in range(blocks):
                stages.append(PlainBlock(inputs, outputs, stride if index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(64, classes)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.conv(images))
        logits: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return logits


class ResNet(nn.Module):
    def __init__(self, blocks: int, channels: int, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        stages = []
        inputs = 16
        for outputs, stride in ((16, 1), (32, 2), (64, 2)):
            for index in range(blocks):
                stages.append(Block(inputs, outputs, stride if index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(64, classes)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.conv(images)), inplace=True)
        logits: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return logits
