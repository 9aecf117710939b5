"""VGG for CIFAR (Simonyan and Zisserman, configurations A, B and D) with batch norm.

The paper does not say how it fits 32x32 images. Ours is the usual way: the five poolings leave 1x1x512, and one linear
layer takes the place of the three.
"""

from __future__ import annotations

from torch import Tensor, nn

# Numbers are filters of a 3x3 conv; 0 is a 2x2 max pooling.
LAYERS = {
    11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    13: (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
}


class VGG(nn.Module):
    def __init__(self, depth: int, channels: int, classes: int):
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for filters in LAYERS[depth]:
            if filters == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU(inplace=True)]
            inputs = filters
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).flatten(1))


def vgg11(channels: int, classes: int) -> nn.Module:
    return VGG(11, channels, classes)


def vgg13(channels: int, classes: int) -> nn.Module:
    return VGG(13, channels, classes)


def vgg16(channels: int, classes: int) -> nn.Module:
    return VGG(16, channels, classes)
