"""What tasks on scenes share: their data, and the scenes of each batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.data.scenes import catalog
from riesz_lab.data.scenes.batches import SceneBatch, SceneDataset
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
    """A task on scenes."""

    multiple: ClassVar[int] = 1  # height and width must be divisible by it
    train: SceneDataset
    test: SceneDataset

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Scenes | None) -> None:
        cls.check_model(config)
        for name in ("height", "width"):
            size = getattr(config, name)
            if size < 1 or size % cls.multiple:
                raise ConfigError(f"{name}: expected a multiple of {cls.multiple}, got {size}")
        if data is None:
            catalog.load(config.dataset, data_dir, config.label_set)
        elif not isinstance(data, Scenes):
            raise ConfigError(f"data: expected riesz_lab.Scenes for {config.task}, got {type(data).__name__}")

    def __init__(self, config: Config, data_dir: Path, data: Scenes | None, context: Context):
        super().__init__(config, data_dir, data, context)
        data = catalog.load(config.dataset, data_dir, config.label_set) if data is None else data
        self.scenes = data.prepared(config)
        resize = config.fit == "resize"
        view = View(config.height, config.width, resize, augment=config.augment)
        self.train = SceneDataset(self.scenes.train, self.scenes.labels, view)
        view = View(config.height, config.width, resize, whole=not resize)
        self.test = SceneDataset(self.scenes.test, self.scenes.labels, view)
        self.shown: Shown = {}

    def batches(self, epoch: int, first: int) -> Iterator[list[SceneBatch]]:
        seed = self.config.effective_data_seed
        order = batching.epoch_order(seed, epoch, len(self.train))
        indices = self.train_indices(epoch, first)
        keys = [
            [(i, derived("scene", seed, epoch, i)) for i in order[chunk].tolist()]
            for chunks in indices
            for chunk in chunks
        ]
        batches = self.train.batches(keys, self.context.workers)
        for chunks in indices:
            yield [next(batches) for _ in chunks]

    def test_batches(self) -> Iterator[tuple[list[int], SceneBatch]]:
        """This process's share of the test scenes, in their order, with their numbers."""
        chunks: list[list[int]] = [chunk.tolist() for chunk in self.test_indices()]
        batches = self.test.batches([[(i, 0) for i in chunk] for chunk in chunks], self.context.workers)
        yield from zip(chunks, batches, strict=True)

    def shown_of(self, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """The test scenes of a batch that a picture shows, evenly spread over all: (number, position in the batch)."""
        wanted = range(0, len(self.test), -(-len(self.test) // SHOWN))
        return ((number, position) for position, number in enumerate(numbers) if number in wanted)

    def normalised(self, images_NHWC: Tensor, factor: Any, offset: Any) -> Tensor:
        """Bytes as floats on the device: pixel * factor + offset per channel."""
        images = images_NHWC.to(self.context.device, non_blocking=True).permute(0, 3, 1, 2)
        if not self.config.channels_last:
            images = images.contiguous()
        return images.float().mul_(factor).add_(offset)
