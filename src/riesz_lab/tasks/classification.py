"""Image classification: cross entropy, accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from riesz_lab import data as datasets
from riesz_lab import models
from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.data.images.types import Data
from riesz_lab.tasks.base import Context, Task
from riesz_lab.tasks.meters import Meters
from riesz_lab.training import optimizers


class Classification(Task):
    score = "test_accuracy"

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Data | None) -> None:
        if data is None:
            datasets.check(config.dataset, data_dir)
        models.check(config.model, options=config.model_options)
        optimizers.check(config)

    @classmethod
    def parameters(cls, config: Config) -> int:
        channels = datasets.DATASETS[config.dataset].channels
        return models.count(config.model, channels=channels, classes=10, options=config.model_options)

    def __init__(self, config: Config, data_dir: Path, data: Data | None, context: Context):
        self.config = config
        self.context = context
        self.data = (datasets.load(config.dataset, data_dir) if data is None else data).prepared(config)
        self.train = self._source(self.data.train, config.augment)
        self.test = self._source(self.data.test, "none")
        model = models.build(
            config.model,
            channels=self.data.channels,
            classes=self.data.classes,
            seed=config.effective_init_seed,
            options=config.model_options,
        ).to(context.device)
        if config.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.models = {"model": model}
        self.optimizers = {"model": optimizers.build(config, model)}
        attachment = optimizers.attach(config, self.optimizers["model"], model)
        self.attachments = {} if attachment is None else {"model": attachment}
        self.meters = Meters(context.device)
        self.scores = Meters(context.device)

    @property
    def images(self) -> int:
        return len(self.train)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.config.batch_size)

    def batches(self, epoch: int, first: int) -> Iterator[list[batching.Batch]]:
        seed, count, size = self.config.effective_data_seed, len(self.train), self.config.batch_size
        order = batching.epoch_order(seed, epoch, count)
        draws = batching.epoch_draws(seed, epoch, count)
        parts: list[tuple[Tensor, Tensor]] = []
        sizes: list[int] = []
        for start in range(first * size, count, size):
            mine = batching.share_of(
                torch.arange(start, min(start + size, count)), self.context.rank, self.context.world
            )
            chunks = mine.chunk(self.config.accumulate)
            parts += [(order[chunk], draws[chunk]) for chunk in chunks]
            sizes.append(len(chunks))
        made = self.train.batches([p[0] for p in parts], [p[1] for p in parts])
        for number in sizes:
            yield [next(made) for _ in range(number)]

    def losses(self, part: batching.Batch) -> Iterator[tuple[str, Tensor]]:
        images, labels = part
        yield "model", self._measure(self.meters, "train", self.models["model"](images), labels)

    def share(self, part: batching.Batch, parts: list[batching.Batch]) -> float:
        return len(part[1]) / sum(len(other[1]) for other in parts)

    @torch.no_grad()
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        self.scores.reset()
        # A process without test images adds up the same names.
        for name in ("test_loss", "test_accuracy"):
            self.scores.add(name, torch.zeros(()), 0)
        mine = batching.shares_of_test(
            len(self.test), self.config.eval_batch_size, self.context.rank, self.context.world
        )
        for images, labels in self.test.batches(mine, None):
            self._measure(self.scores, "test", self.models["model"](images), labels)
            yield None
        yield self.scores.means(self.context.add_up)

    @staticmethod
    def _measure(meters: Meters, split: str, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss; it and the number of right answers are added to the meters."""
        loss = functional.cross_entropy(logits, labels)
        meters.add(f"{split}_loss", loss * len(labels), len(labels))
        meters.add(f"{split}_accuracy", (logits.argmax(1) == labels).sum(), len(labels))
        return loss

    def _source(self, split: Any, augment: str) -> batching.MemorySource | batching.DatasetSource:
        return batching.source(
            split, self.data, augment=augment, device=self.context.device, channels_last=self.config.channels_last
        )
