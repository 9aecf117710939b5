"""Three 3x3 conv layers of 32, 64 and 128 filters with ReLU and max pooling; with or without normalisation."""

from torch import Tensor, nn

from riesz_lab.models.layers import conv_stack, he_init


class ThreeLayerCNN(nn.Module):
    """Mean pooling and one linear layer on top, so images of any size of 8x8 or more fit."""

    def __init__(self, norm: bool, channels: int, classes: int):
        super().__init__()
        self.features = conv_stack(channels, (32, 0, 64, 0, 128, 0), norm=norm)
        self.head = nn.Linear(128, classes)
        he_init(self)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).mean((2, 3)))
        return logits
