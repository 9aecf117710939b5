"""Image classification: cross entropy, accuracy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional

from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.data.images import catalog as datasets
from riesz_lab.data.images.types import Data
from riesz_lab.tasks.base import Context, SupervisedTask
from riesz_lab.tasks.meters import Meters


class Classification(SupervisedTask):
    score = "test_accuracy"

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Data | None) -> None:
        if data is None:
            datasets.check(config.dataset, data_dir)
        cls.check_model(config)

    def __init__(self, config: Config, data_dir: Path, data: Data | None, context: Context):
        super().__init__(config, data_dir, data, context)
        self.data = (datasets.load(config.dataset, data_dir) if data is None else data).prepared(config)
        where: dict[str, Any] = {"device": context.device, "channels_last": config.channels_last}
        self.train = batching.source(self.data.train, self.data, augment=config.augment, **where)
        self.test = batching.source(self.data.test, self.data, augment="none", **where)
        self.add_models({"model": self.build_model(channels=self.data.channels, classes=self.data.classes)})

    def batches(self, epoch: int, first: int) -> Iterator[list[batching.Batch]]:
        seed, count = self.config.effective_data_seed, len(self.train)
        order = batching.epoch_order(seed, epoch, count)
        draws = batching.epoch_draws(seed, epoch, count)
        indices = self.train_indices(epoch, first)
        parts = [chunk for chunks in indices for chunk in chunks]
        batches = self.train.batches([order[chunk] for chunk in parts], [draws[chunk] for chunk in parts])
        for chunks in indices:
            yield [next(batches) for _ in chunks]

    def test_batches(self) -> Iterator[batching.Batch]:
        yield from self.test.batches(self.test_indices(), None)

    def measure(self, meters: Meters, split: str, batch: batching.Batch) -> Tensor:
        images, labels = batch
        logits = self.models["model"](images)
        loss = functional.cross_entropy(logits, labels)
        meters.add(f"{split}_loss", loss * len(labels), len(labels))
        meters.add(f"{split}_accuracy", (logits.argmax(1) == labels).sum(), len(labels))
        return loss
