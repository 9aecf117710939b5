"""A user's own model, data and loss: what `riesz compare` trains when it is given a `build` function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.errors import ConfigError
from riesz_lab.tasks.base import Context, Task
from riesz_lab.tasks.meters import Meters
from riesz_lab.training import optimizers
from riesz_lab.utils import randomness

FORM = "model, (train, test), loss: an nn.Module, two datasets with a length, and a function loss(outputs, targets)"


class Own(Task):
    """`build()` returns model, (train, test) and loss.

    The score is test accuracy where targets are class numbers and outputs have one column per class, else test loss.
    """

    score = "test_loss"

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Callable[[], Any] | None) -> None:
        if data is None:
            raise ConfigError(f"a trial of {config.model!r} is continued by `riesz compare`, which knows its function")
        optimizers.check(config)

    @classmethod
    def parameters(cls, config: Config) -> int:
        return 0

    def __init__(self, config: Config, data_dir: Path, data: Callable[[], Any], context: Context):
        self.config, self.context = config, context
        randomness.seed_all(randomness.derived("initialisation", config.effective_init_seed))
        model, (self.train, self.test), self.loss = _checked(data())
        model = model.to(context.device)
        self.models = {"model": model}
        self.optimizers = {"model": optimizers.build(config, model)}
        attachment = optimizers.attach(config, self.optimizers["model"], model)
        self.attachments = {} if attachment is None else {"model": attachment}
        self.meters, self.scores = Meters(context.device), Meters(context.device)
        if self._counts_classes():
            self.score = "test_accuracy"
        self.higher_is_better = self.score == "test_accuracy"  # type: ignore[misc]

    @property
    def images(self) -> int:
        return len(self.train)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.config.batch_size)

    def batches(self, epoch: int, first: int) -> Iterator[list[Any]]:
        size, count = self.config.batch_size, len(self.train)
        order = batching.epoch_order(self.config.effective_data_seed, epoch, count)
        for start in range(first * size, count, size):
            mine = batching.share_of(order[start : start + size], self.context.rank, self.context.world)
            yield [self._batch(self.train, part) for part in mine.chunk(self.config.accumulate)]

    def losses(self, part: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
        yield "model", self._measure(self.meters, "train", part)

    def share(self, part: tuple[Tensor, Tensor], parts: list[tuple[Tensor, Tensor]]) -> float:
        return len(part[1]) / sum(len(other[1]) for other in parts)

    @torch.no_grad()
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        self.scores.reset()
        # A process without test items adds up the same names.
        for name in ("test_loss", "test_accuracy") if self.score == "test_accuracy" else ("test_loss",):
            self.scores.add(name, torch.zeros(()), 0)
        mine = batching.shares_of_test(
            len(self.test), self.config.eval_batch_size, self.context.rank, self.context.world
        )
        for chosen in mine:
            self._measure(self.scores, "test", self._batch(self.test, chosen))
            yield None
        yield self.scores.means(self.context.add_up)

    def _measure(self, meters: Meters, split: str, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        outputs = self.models["model"](inputs)
        loss = self.loss(outputs, targets)
        if not isinstance(loss, Tensor) or loss.dim():
            raise ConfigError(f"loss returned {loss!r:.80}; allowed: a tensor with one number, such as a mean")
        meters.add(f"{split}_loss", loss * len(targets), len(targets))
        if self.score == "test_accuracy":
            meters.add(f"{split}_accuracy", (outputs.argmax(1) == targets).sum(), len(targets))
        return loss

    def _batch(self, split: Any, chosen: Tensor) -> tuple[Tensor, Tensor]:
        whole = isinstance(split, TensorDataset)
        inputs, targets = split[chosen] if whole else default_collate([split[i] for i in chosen.tolist()])
        return inputs.to(self.context.device), targets.to(self.context.device)

    @torch.no_grad()
    def _counts_classes(self) -> bool:
        inputs, targets = self._batch(self.test, torch.arange(min(2, len(self.test))))
        if targets.is_floating_point() or targets.dim() != 1:
            return False
        model = self.models["model"].eval()
        before = randomness.state()
        outputs = model(inputs)
        randomness.restore(before)
        return isinstance(outputs, Tensor) and outputs.dim() == 2


def _checked(built: Any) -> Any:
    try:
        model, (train, test), loss = built
        right = isinstance(model, nn.Module) and callable(loss) and len(train) > 0 and len(test) > 0
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ConfigError(f"build returned {type(built).__name__} {built!r:.80}; allowed: {FORM}")
    return model, (train, test), loss
