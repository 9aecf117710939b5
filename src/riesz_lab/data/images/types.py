"""Images, datasets, and their division into splits."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from riesz_lab.errors import ConfigError
from riesz_lab.utils.randomness import derived

if TYPE_CHECKING:
    from typing_extensions import Self

    from riesz_lab.config import Config


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


class Splits:
    """A training and a test split of any kind."""

    train: Any
    test: Any

    def limited(self, train: int | None, test: int | None) -> "Self":
        """The first so many images of a fixed shuffle: the same ones for every seed."""
        return replace(self, train=_limited(self.train, train), test=_limited(self.test, test))  # type: ignore[type-var]

    def held_out(self, count: int) -> "Self":
        """Test on `count` images taken out of the training split; the test split is not touched."""
        total = len(self.train)
        if count >= total:
            raise ConfigError(f"hold_out: expected fewer than the {total} training images, got {count}")
        order = shuffled(total, "hold out")
        return replace(self, train=take(self.train, order[count:]), test=take(self.train, order[:count]))  # type: ignore[type-var]

    def prepared(self, config: "Config") -> "Self":
        data = replace(self, train=self.test, test=self.train) if config.swap_splits else self  # type: ignore[type-var]
        data = data.limited(config.train_limit, config.test_limit)
        return data.held_out(config.hold_out) if config.hold_out else data


@dataclass(frozen=True)
class Data(Splits):
    """A training and a test split of images, with what a model and a normalisation need.

    Attributes:
        train, test: `Images`, or any map-style `torch.utils.data.Dataset` of (image_CHW, label).
        classes: number of classes.
        channels: channels of an image.
        mean, std: per channel, of pixel values in 0..1; None leaves float images as they are.
    """

    train: Images | Dataset[Any]
    test: Images | Dataset[Any]
    classes: int
    channels: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def take(split: Any, chosen: Tensor) -> Any:
    if isinstance(split, Images):
        return Images(split.images_NHWC[chosen], split.labels_N[chosen])
    if isinstance(split, tuple):
        return tuple(split[index] for index in chosen.tolist())
    return Subset(split, chosen.tolist())


def _limited(split: Any, count: int | None) -> Any:
    total = len(split)
    return split if count is None or count >= total else take(split, shuffled(total, "limit")[:count])


def shuffled(count: int, purpose: str) -> Tensor:
    """The same order of so many items for every seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(derived(purpose, count)))
