"""ResNet encoders with bottlenecks (He et al., Deep Residual Learning, table 1), under torchvision's names.

The stride of a stage is on its 3x3 conv, as in torchvision (v1.5). With the default width, an encoder of depth 50 has
the 23,508,032 parameters of torchvision's resnet50 without its last layer, and takes its weights.
"""

from torch import Tensor, nn
from torch.nn import functional

from riesz_lab.models.layers import he_init

STAGES = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Bottlenecks per stage by depth."""
EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = functional.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        shortcut = x if self.downsample is None else self.downsample(x)
        return functional.relu(y.add_(shortcut), inplace=True)


class Encoder(nn.Module):
    """Features at 1/2, 1/4, 1/8, 1/16 and 1/32 of the size."""

    def __init__(self, channels: int, depth: int, width: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for number, blocks in enumerate(STAGES[depth], 1):
            filters = width * 2 ** (number - 1)
            stage = []
            for index in range(blocks):
                stage.append(Bottleneck(inputs, filters, 2 if index == 0 and number > 1 else 1))
                inputs = EXPANSION * filters
            setattr(self, f"layer{number}", nn.Sequential(*stage))
        self.widths = (width, *(EXPANSION * width * 2**i for i in range(4)))
        """Channels of the five features."""
        he_init(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        x = functional.relu(self.bn1(self.conv1(images)), inplace=True)
        features = [x]
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for number in range(1, 5):
            x = self.get_submodule(f"layer{number}")(x)
            features.append(x)
        return features
