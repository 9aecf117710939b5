"""Fréchet distance between features of real and generated images, through torchmetrics, with a choice of features.

`fid_inception` is the published FID: Inception's features through torch-fidelity, with its weights from a local file.
`fid_proxy` takes a small fixed network of random weights instead. It falls as images come to look alike in colour,
edges and texture, and needs no file; it is comparable with itself at one size of images and on one set of scenes, and
with no published FID.
"""

import importlib.util
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from riesz_lab import models
from riesz_lab.errors import BadFileError, ConfigError, LabError, first_line
from riesz_lab.models import pretrained
from riesz_lab.utils.tensor_files import read_tensors

PROXY_SEED = 20210501
"""Fixed: another seed is another score."""


class ProxyFeatures(nn.Module):
    """Three random conv layers; the features are the mean activations of all their filters."""

    filters = (16, 24, 24)
    num_features = sum(filters)

    def __init__(self) -> None:
        super().__init__()
        inputs, layers = 3, []
        for outputs in self.filters:
            conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
            nn.init.kaiming_normal_(conv.weight)
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)
            layers.append(conv)
            inputs = outputs
        self.layers = nn.ModuleList(layers)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Images as bytes."""
        x = images.float() / 127.5 - 1
        means = []
        for conv in self.layers:
            x = functional.relu(conv(x))
            means.append(x.mean((2, 3)))
        return torch.cat(means, 1)


class FID:
    """torchmetrics' score, fed with images in -1..1; real images are added once and kept."""

    def __init__(self, **options: Any):
        # On first use: importing it takes seconds.
        from torchmetrics.image.fid import FrechetInceptionDistance

        self.torchmetrics = FrechetInceptionDistance(reset_real_features=False, sync_on_compute=False, **options)
        self.finite = True

    def add(self, images: Tensor, *, real: bool) -> None:
        """Add images as bytes, so that real and generated ones are rounded alike."""
        # NaN would become a byte like any other.
        self.finite &= bool(images.isfinite().all())
        self.torchmetrics.update(as_bytes(images), real=real)

    def forget_generated(self) -> None:
        self.torchmetrics.reset()
        self.finite = True

    def distance(self) -> float:
        """The score; NaN if an image was not finite."""
        return float(self.torchmetrics.compute()) if self.finite else math.nan

    def diversity(self) -> float:
        """Variance of the generated images' features over that of the real ones': 1 is as diverse, 0 is all alike."""
        return self._variance("fake") / max(self._variance("real"), 1e-12) if self.finite else math.nan

    def _variance(self, which: str) -> float:
        """Trace of the covariance of the features."""
        total, products, count = (
            getattr(self.torchmetrics, f"{which}_features_{part}") for part in ("sum", "cov_sum", "num_samples")
        )
        return float((products.trace() - total.square().sum() / count) / (count - 1))


def as_bytes(images: Tensor) -> Tensor:
    """Images in -1..1 as uint8."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def check(kind: str, weights: str, data_dir: Path) -> None:
    """Raise if the score cannot be computed here."""
    if kind == "proxy":
        return
    if missing := [name for name in ("torch_fidelity", "torchvision") if importlib.util.find_spec(name) is None]:
        raise LabError(
            f"fid='inception' needs {' and '.join(missing)}, not installed here: pip install 'riesz[fid]'. Without, "
            "fid='proxy' runs everywhere, and is comparable with no published FID"
        )
    if not weights:
        raise ConfigError(
            "fid='inception' needs fid_weights: the file weights-inception-2015-12-05-6726825d.pth that torch-fidelity "
            "publishes"
        )
    pretrained.find(weights, data_dir, "fid_weights")


def build(kind: str, weights: str, data_dir: Path, device: torch.device) -> FID:
    if kind == "proxy":
        score = FID(feature=models.seeded(ProxyFeatures, PROXY_SEED))
    else:
        score = _inception(pretrained.find(weights, data_dir, "fid_weights"))
    score.torchmetrics.to(device)
    return score


def _inception(path: Path) -> FID:
    # torch-fidelity would run any code in the file: it is read as tensors here, and rewritten for it.
    tensors = read_tensors(path)
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / "inception.pth"
        torch.save(tensors, clean)
        try:
            return FID(feature=2048, feature_extractor_weights_path=str(clean))
        except (RuntimeError, KeyError) as error:
            raise BadFileError(f"{path} does not hold Inception's weights: {first_line(error)}") from None
