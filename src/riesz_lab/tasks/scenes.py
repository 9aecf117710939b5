"""What tasks on scenes share: their data, and who gets which scene of which batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.data.scenes import catalog as scene_catalog
from riesz_lab.data.scenes.batches import Key, SceneBatch, SceneDataset
from riesz_lab.data.scenes.scene import Scenes
from riesz_lab.data.scenes.views import View
from riesz_lab.errors import ConfigError
from riesz_lab.tasks.base import Context, Task
from riesz_lab.utils.randomness import derived

SHOWN = 4
"""Test scenes in a picture."""
Shown = dict[int, tuple[Tensor, Tensor, Tensor]]
"""Three pictures in a row, by the number of their scene."""


class SceneTask(Task):
    """A task on scenes.

    Attributes:
        scenes: the dataset.
        train, test: its splits, decoded.
    """

    scenes: Scenes
    train: SceneDataset
    test: SceneDataset

    @classmethod
    def check_scenes(cls, config: Config, data_dir: Path, data: Any, *, multiple: int) -> None:
        """Raise if scenes are missing or cannot be brought to a size divisible by `multiple`."""
        for name in ("height", "width"):
            size = getattr(config, name)
            if size < 1 or size % multiple:
                raise ConfigError(f"{name}={size} cannot be; allowed: multiples of {multiple}")
        if data is None:
            scene_catalog.load(config.dataset, data_dir, config.label_set)
        elif not isinstance(data, Scenes):
            raise ConfigError(f"data is a {type(data).__name__}; allowed for {config.task}: riesz_lab.Scenes")

    def _load(self, config: Config, data_dir: Path, data: Scenes | None, context: Context) -> None:
        self.config, self.context = config, context
        found = scene_catalog.load(config.dataset, data_dir, config.label_set) if data is None else data
        self.scenes = found.prepared(config)
        labels, resize = self.scenes.labels, config.fit == "resize"
        view = View(config.height, config.width, resize, augment=config.augment)
        self.train = SceneDataset(self.scenes.train, labels, view)
        self.test = SceneDataset(self.scenes.test, labels, View(config.height, config.width, resize, whole=not resize))

    @property
    def images(self) -> int:
        return len(self.train)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.config.batch_size)

    def batches(self, epoch: int, first: int) -> Iterator[list[SceneBatch]]:
        seed, count, size = self.config.effective_data_seed, len(self.train), self.config.batch_size
        order = batching.epoch_order(seed, epoch, count)
        keys: list[list[Key]] = []
        parts: list[int] = []
        for start in range(first * size, count, size):
            positions = torch.arange(start, min(start + size, count))
            mine = order[batching.share_of(positions, self.context.rank, self.context.world)]
            chunks = mine.chunk(self.config.accumulate)
            keys += [[(i, derived("scene", seed, epoch, i)) for i in chunk.tolist()] for chunk in chunks]
            parts.append(len(chunks))
        made = self.train.batches(keys, self.context.workers)
        for number in parts:
            yield [next(made) for _ in range(number)]

    def test_batches(self) -> Iterator[tuple[list[int], SceneBatch]]:
        """This process's share of the test scenes, in their order, with their numbers."""
        mine = batching.shares_of_test(
            len(self.test), self.config.eval_batch_size, self.context.rank, self.context.world
        )
        chunks = [chunk.tolist() for chunk in mine]
        made = self.test.batches([[(i, 0) for i in chunk] for chunk in chunks], self.context.workers)
        yield from zip(chunks, made, strict=True)

    def shown_of(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """Which of these test scenes a picture shows, evenly spread over all: (number, position)."""
        wanted = set(range(0, len(self.test), -(-len(self.test) // SHOWN)))
        return ((number, position) for position, number in enumerate(numbers) if number in wanted)

    def _normalised(self, images_NHWC: Tensor, factor: Tensor, offset: Tensor) -> Tensor:
        """Bytes as floats on the device: pixel * factor + offset per channel."""
        images = images_NHWC.to(self.context.device, non_blocking=True).permute(0, 3, 1, 2)
        if not self.config.channels_last:
            images = images.contiguous()
        return images.float().mul_(factor).add_(offset)

    def _placed(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model on its device, in its memory format."""
        model = model.to(self.context.device)
        if self.config.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model
