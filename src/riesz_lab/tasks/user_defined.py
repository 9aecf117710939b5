"""A user's model, data and loss: what `riesz compare` trains when it is given a `build` function."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset, default_collate

from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.data.images.types import shuffled
from riesz_lab.errors import ConfigError
from riesz_lab.tasks import optimizers
from riesz_lab.tasks.base import Context, SupervisedTask
from riesz_lab.tasks.meters import Meters
from riesz_lab.utils import randomness

FORM = "model, (train, test), loss: an nn.Module, two datasets with a length, and a function loss(outputs, targets)"


class UserDefined(SupervisedTask):
    """`build()` returns model, (train, test) and loss.

    The score is test accuracy where targets are class numbers and outputs have one column per class, else test loss.
    """

    channels_last: ClassVar[bool] = False

    @classmethod
    def check(cls, config: Config, data_dir: Path, data: Callable[[], Any] | None) -> None:
        if data is None:
            raise ConfigError(
                f"a trial of {config.model!r} can only be continued with `riesz compare FILE.py:FUNCTION`"
            )
        optimizers.check(config)

    def __init__(self, config: Config, data_dir: Path, data: Callable[[], Any], context: Context):
        super().__init__(config, data_dir, data, context)
        randomness.seed_all(randomness.derived("initialisation", config.effective_init_seed))
        model, (train, test), self.loss = checked(data(), getattr(getattr(data, "func", data), "__name__", "build"))
        self.train, self.test = _held_out(train, config.hold_out) if config.hold_out else (train, test)
        self.add_models({"model": model})
        self.higher_is_better = self.percent = self._classifies()
        self.score = "test_accuracy" if self.higher_is_better else "test_loss"
        self.score_names = ("test_loss", "test_accuracy") if self.higher_is_better else ("test_loss",)

    def batches(self, epoch: int, first: int) -> Iterator[list[Any]]:
        order = batching.epoch_order(self.config.effective_data_seed, epoch, len(self.train))
        for chunks in self.train_indices(epoch, first):
            yield [self._batch(self.train, order[chunk]) for chunk in chunks]

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self._batch(self.test, chosen) for chosen in self.test_indices())

    def measure(self, meters: Meters, split: str, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        outputs = self.models["model"](inputs)
        loss = self.loss(outputs, targets)
        if not isinstance(loss, Tensor) or loss.dim():
            raise ConfigError(f"loss: expected a tensor with one number, such as a mean, got {loss!r:.80}")
        meters.add(f"{split}_loss", loss * len(targets), len(targets))
        if self.score == "test_accuracy":
            meters.add(f"{split}_accuracy", (outputs.argmax(1) == targets).sum(), len(targets))
        return loss

    def _batch(self, split: Any, chosen: Tensor) -> tuple[Tensor, Tensor]:
        whole = isinstance(split, TensorDataset)
        inputs, targets = split[chosen] if whole else default_collate([split[i] for i in chosen.tolist()])
        return inputs.to(self.context.device), targets.to(self.context.device)

    @torch.no_grad()
    def _classifies(self) -> bool:
        inputs, targets = self._batch(self.test, torch.arange(min(2, len(self.test))))
        if targets.is_floating_point() or targets.dim() != 1:
            return False
        model = self.models["model"].eval()
        before = randomness.state()
        outputs = model(inputs)
        randomness.restore(before)
        return isinstance(outputs, Tensor) and outputs.dim() == 2


def _held_out(train: Any, count: int) -> tuple[Any, Any]:
    """For tuning: test on items taken out of the training data; the test data is not touched."""
    if count >= len(train):
        raise ConfigError(f"hold_out: expected fewer than the {len(train)} training items, got {count}")
    order = shuffled(len(train), "hold out").tolist()
    return Subset(train, order[count:]), Subset(train, order[:count])


def checked(built: Any, name: str) -> Any:
    try:
        model, (train, test), loss = built
        right = isinstance(model, nn.Module) and callable(loss) and len(train) > 0 and len(test) > 0
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ConfigError(
            f"{name!r} takes no attach and seed, so it was called as build(): expected {FORM}; got "
            f"{type(built).__name__} {built!r:.80}. If it is a training loop, write {name}(attach, seed)"
        )
    return model, (train, test), loss
