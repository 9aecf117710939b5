"""SPADE's discriminator: several PatchGANs (Isola et al.), each on half the size of the one before.

Each judges overlapping patches of (label map, image) pairs. All its features are returned, for feature matching.
"""

from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from riesz_lab.models.layers import check_positive
from riesz_lab.models.spade import SLOPE, initialise

KERNEL, PADDING = 4, 2
WIDEST = 8


class PatchGAN(nn.Module):
    def __init__(self, channels: int, width: int, layers: int):
        super().__init__()
        stages = [nn.Sequential(nn.Conv2d(channels, width, KERNEL, 2, PADDING), nn.LeakyReLU(SLOPE))]
        inputs = width
        for number in range(1, layers):
            outputs = min(2 * inputs, WIDEST * width)
            stride = 1 if number == layers - 1 else 2
            conv = spectral_norm(nn.Conv2d(inputs, outputs, KERNEL, stride, PADDING, bias=False))
            stages.append(nn.Sequential(conv, nn.InstanceNorm2d(outputs), nn.LeakyReLU(SLOPE)))
            inputs = outputs
        stages.append(nn.Sequential(nn.Conv2d(inputs, 1, KERNEL, 1, PADDING)))
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class MultiscaleDiscriminator(nn.Module):
    def __init__(self, channels: int, *, scales: int = 2, width: int = 64, layers: int = 4):
        super().__init__()
        check_positive(scales=scales, width=width, layers=layers)
        self.scales = nn.ModuleList(PatchGAN(channels, width, layers) for _ in range(scales))
        initialise(self)

    def forward(self, pairs: Tensor) -> list[list[Tensor]]:
        """Per scale: the features of each layer, the verdict last."""
        features = []
        for number, patchgan in enumerate(self.scales):
            if number:
                pairs = functional.avg_pool2d(pairs, 3, stride=2, padding=1, count_include_pad=False)
            features.append(patchgan(pairs))
        return features
