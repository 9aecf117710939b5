"""From a split to batches on the training device.

Nothing here keeps state between batches. Order and augmentation of an epoch follow from (seed, epoch) alone, so a trial
continued in the middle of an epoch sees the same batches.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, default_collate

from riesz_lab.data.images.types import Data, Images
from riesz_lab.errors import LabError
from riesz_lab.utils.randomness import derived

PAD = 4
Batch = tuple[Tensor, Tensor]


def epoch_order(seed: int, epoch: int, count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(derived("order", seed, epoch)))


def epoch_draws(seed: int, epoch: int, count: int) -> Tensor:
    """Per image: how far to shift down and right (0..8) and whether to flip, for a whole epoch at once."""
    generator = torch.Generator().manual_seed(derived("augment", seed, epoch))
    shifts = torch.randint(0, 2 * PAD + 1, (count, 2), generator=generator)
    flips = torch.randint(0, 2, (count, 1), generator=generator)
    return torch.cat([shifts, flips], 1)


def share_of(positions: Tensor, rank: int, world: int) -> Tensor:
    """One process's share of a batch; short ones are padded, so that every process has the same number."""
    if world == 1:
        return positions
    missing = -len(positions) % world
    return torch.cat([positions, positions.repeat(-(-world // len(positions)))[:missing]])[rank::world]


def crop_flip(images_NHWC: Tensor, draws_N3: Tensor) -> Tensor:
    """Pad by 4, crop, flip: one gather for the whole batch.

    Row r and column c of image n come from row `r + down[n]`, column `c' + right[n]` of the padded image, where c' is
    c, or W-1-c if n is flipped.
    """
    _, height, width, _ = images_NHWC.shape
    device = images_NHWC.device
    padded = functional.pad(images_NHWC, (0, 0, PAD, PAD, PAD, PAD))
    down, right, flip = draws_N3.unbind(1)
    rows = torch.arange(height, device=device) + down[:, None]
    columns = torch.arange(width, device=device).expand(len(images_NHWC), width)
    columns = torch.where(flip[:, None].bool(), width - 1 - columns, columns) + right[:, None]
    image = torch.arange(len(images_NHWC), device=device)
    return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]]


class MemorySource:
    """Batches of `Images` that live on the device as uint8."""

    def __init__(self, split: Images, data: Data, *, augment: str, device: torch.device, channels_last: bool):
        if augment == "crop-flip" and split.images_NHWC.dim() != 4:
            raise LabError(f"augment='crop-flip': expected images_NHWC, got shape {tuple(split.images_NHWC.shape)}")
        self.images_NHWC = split.images_NHWC.to(device)
        self.labels_N = split.labels_N.to(device)
        self.augment, self.channels_last = augment, channels_last
        channels = split.images_NHWC.shape[-1]
        mean = torch.tensor(data.mean or (0.0,) * channels)
        std = torch.tensor(data.std or (1.0,) * channels)
        # (pixel / 255 - mean) / std, as one multiplication and one addition.
        self.factor = (1 / (255 * std)).view(1, -1, 1, 1).to(device)
        self.offset = (-mean / std).view(1, -1, 1, 1).to(device)

    def __len__(self) -> int:
        return len(self.labels_N)

    def batches(self, chosen: Sequence[Tensor], draws: Sequence[Tensor] | None) -> Iterator[Batch]:
        """One batch per tensor of indices, augmented by its rows of `epoch_draws` if given."""
        device = self.labels_N.device
        for position, indices in enumerate(chosen):
            indices = indices.to(device, non_blocking=True)
            images_NHWC = self.images_NHWC[indices]
            if draws is not None and self.augment == "crop-flip":
                images_NHWC = crop_flip(images_NHWC, draws[position].to(device, non_blocking=True))
            images_NCHW = images_NHWC.permute(0, 3, 1, 2)
            if not self.channels_last:
                images_NCHW = images_NCHW.contiguous()
            yield images_NCHW.float().mul_(self.factor).add_(self.offset), self.labels_N[indices]


class DatasetSource:
    """Batches of any map-style `torch.utils.data.Dataset` of (image, label)."""

    def __init__(self, split: Dataset[Any], data: Data, *, device: torch.device, channels_last: bool):
        self.split, self.device = split, device
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.mean, self.std = (
            None if values is None else torch.tensor(values).view(1, -1, 1, 1).to(device)
            for values in (data.mean, data.std)
        )

    def __len__(self) -> int:
        return len(self.split)  # type: ignore[arg-type]

    def batches(self, chosen: Sequence[Tensor], draws: Sequence[Tensor] | None) -> Iterator[Batch]:
        # In this process, one batch at a time, so that a dataset that draws at random is repeatable. A separate
        # generator: the loader would otherwise draw from the global one.
        order = [indices.tolist() for indices in chosen]
        for images, labels in DataLoader(
            self.split, batch_sampler=order, collate_fn=_collate, generator=torch.Generator()
        ):
            images = images.to(self.device)
            if images.dim() == 4:
                images = images.contiguous(memory_format=self.format)
            if self.mean is not None and self.std is not None:
                images = (images - self.mean) / self.std
            yield images, labels.to(self.device)


def source(
    split: Images | Dataset[Any], data: Data, *, augment: str, device: torch.device, channels_last: bool
) -> MemorySource | DatasetSource:
    if isinstance(split, Images):
        return MemorySource(split, data, augment=augment, device=device, channels_last=channels_last)
    if augment != "none":
        raise LabError(f"augment: expected 'none' for a Dataset, which augments its own items, got {augment!r}")
    return DatasetSource(split, data, device=device, channels_last=channels_last)


def as_image(item: Any) -> Tensor:
    """An image as float CHW; bytes (uint8 tensors HWC or CHW, PIL images) are scaled to 0..1."""
    if not isinstance(item, Tensor):
        array = np.asarray(item)
        item = torch.from_numpy(array.copy())
        if item.dim() == 2:
            item = item.unsqueeze(-1)
        if item.dim() == 3 and array.dtype == np.uint8:
            item = item.permute(2, 0, 1)
    image: Tensor = item.float()
    return image / 255 if item.dtype == torch.uint8 else image


def _collate(items: list[Any]) -> Batch:
    images, labels = default_collate([(as_image(image), int(label)) for image, label in items])
    return images, labels
