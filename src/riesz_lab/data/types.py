"""What a loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from riesz_lab.errors import ConfigError
from riesz_lab.randomness import derived


@dataclass(frozen=True)
class Images:
    """Labelled images in memory.

    Attributes:
        images_NHWC: uint8.
        labels_N: int64.
    """

    images_NHWC: Tensor
    labels_N: Tensor

    def __len__(self) -> int:
        return len(self.labels_N)


@dataclass(frozen=True)
class Data:
    """A training and a test split, and what a model and a normalisation must know of them.

    Attributes:
        train, test: `Images`, or any map-style `torch.utils.data.Dataset` of (image_CHW, label).
        classes: number of classes.
        channels: channels of an image.
        mean, std: per channel, of pixel values in 0..1; None leaves user's float images as they are.
    """

    train: Images | Dataset[Any]
    test: Images | Dataset[Any]
    classes: int
    channels: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def swapped(self) -> Data:
        return replace(self, train=self.test, test=self.train)

    def limited(self, train: int | None, test: int | None) -> Data:
        """The first so many images of a fixed shuffle: the same ones for every seed."""
        return replace(self, train=_limited(self.train, train), test=_limited(self.test, test))

    def held_out(self, count: int) -> Data:
        """Test on `count` images taken out of the training split; the test split is not touched."""
        total = len(self.train)  # type: ignore[arg-type]
        if count >= total:
            raise ConfigError(f"hold_out={count} cannot be: there are {total} training images; allowed: below that")
        order = _shuffle(total, "hold out")
        return replace(self, train=take(self.train, order[count:]), test=take(self.train, order[:count]))


def take(split: Images | Dataset[Any], chosen: Tensor) -> Images | Dataset[Any]:
    if isinstance(split, Images):
        return Images(split.images_NHWC[chosen], split.labels_N[chosen])
    return Subset(split, chosen.tolist())


def _limited(split: Images | Dataset[Any], count: int | None) -> Images | Dataset[Any]:
    total = len(split)  # type: ignore[arg-type]
    return split if count is None or count >= total else take(split, _shuffle(total, "limit")[:count])


def _shuffle(count: int, purpose: str) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(derived(purpose, count)))
