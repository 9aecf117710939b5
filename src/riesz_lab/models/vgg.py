"""VGG for CIFAR (Simonyan and Zisserman, configurations A, B and D) with batch norm.

The paper does not say how it fits 32x32 images. This is the usual choice: the five poolings leave 1x1x512, and one
linear layer replaces the three.
"""

from torch import Tensor, nn

from riesz_lab.models.layers import conv_stack, he_init

FILTERS = {
    11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    13: (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
}


class VGG(nn.Module):
    def __init__(self, depth: int, channels: int, classes: int):
        super().__init__()
        self.features = conv_stack(channels, FILTERS[depth], norm=True)
        self.head = nn.Linear(512, classes)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits
