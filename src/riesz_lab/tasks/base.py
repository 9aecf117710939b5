"""What a task is.

The trainer does the same for every task: for each batch it asks for losses, one per optimizer, and after each it runs
backward and the optimizer's step. So a network with one loss and a pair of adversarial networks are written alike:

    def losses(self, part):           # of a batch: all of it, unless gradients are accumulated
        yield "generator", ...        # the trainer steps the generator here
        yield "discriminator", ...    # and the discriminator here
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import riesz
from riesz_lab import models as model_zoo
from riesz_lab.config import Config
from riesz_lab.data.images import batches as batching
from riesz_lab.tasks import optimizers
from riesz_lab.tasks.meters import Meters


@dataclass(frozen=True)
class Context:
    """Where a task runs."""

    device: torch.device  # of this process
    rank: int = 0  # this process and the number of processes; each takes its share of every batch
    world: int = 1
    add_up: Callable[[Tensor], Tensor] = lambda local: local  # the sum of a tensor over all processes
    workers: int = 0  # processes that decode images for this one


class Task(ABC):
    """Data, models, optimizers, losses and scores of one kind of experiment."""

    score: str  # the score trials are compared by, a key of what `evaluate` yields at last
    higher_is_better: bool = True  # whether more of it is better
    percent: bool = True  # whether it is a fraction that is printed in percent
    channels_last: ClassVar[bool] = True  # whether the config's setting of this name applies to the models
    train: Any  # the two splits
    test: Any

    def __init__(self, config: Config, data_dir: Path, data: Any, context: Context):
        """Load the data, build models and optimizers."""
        self.config, self.context = config, context
        self.models: dict[str, nn.Module] = {}  # by name; the trainer wraps them in place
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.attachments: dict[str, riesz.Attachment] = {}  # the metric on each optimizer that has one
        self.meters = Meters(context.device)  # means of the current epoch of training

    @classmethod
    @abstractmethod
    def check(cls, config: Config, data_dir: Path, data: Any) -> None:
        """Raise if the trial cannot start: missing data, unknown model. Cheap: it runs before anything is created."""

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[list[Any]]:
        """The batches of an epoch from number `first` on, each as the parts it is computed in."""

    @abstractmethod
    def losses(self, part: Any) -> Iterator[tuple[str, Tensor]]:
        """The loss of each optimizer on a part of a batch, one for each, in the order of their steps; also feeds the
        meters. The next is asked for once the step before it is done, for all parts of the batch."""

    @abstractmethod
    def size(self, part: Any) -> int:
        """What a part of a batch counts: items, or pixels."""

    @abstractmethod
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        """Yield None now and then, so that the trainer may stop in between; at last the scores, by name."""

    def pictures(self) -> dict[str, bytes]:
        """PNG files of the last evaluation, by name."""
        return {}

    def collapsed(self, history: list[dict[str, Any]]) -> str | None:
        """Why a finished trial did not succeed, judged by its rows; None if it is one."""
        return None

    # -- shared by all tasks -------------------------------------------------------------------------------------------

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.config.batch_size)

    def share(self, part: Any, parts: list[Any]) -> float:
        return self.size(part) / max(1, sum(map(self.size, parts)))

    @staticmethod
    def check_model(config: Config) -> None:
        """Raise if the model or the optimizer cannot be built."""
        model_zoo.check(config.model, task=config.task, options=config.model_options)
        optimizers.check(config)

    def build_model(self, *, channels: int, classes: int) -> nn.Module:
        config, shape = self.config, {"channels": channels, "classes": classes}
        options, seed = config.model_options, config.effective_init_seed
        return model_zoo.build(config.model, seed=seed, task=config.task, options=options, **shape)

    def add_models(self, models: Mapping[str, nn.Module], rates: Mapping[str, float | None] | None = None) -> None:
        """Move models to the device, and build and direct their optimizers; `rates` override the config's."""
        for name, model in models.items():
            model = model.to(self.context.device)
            if self.channels_last and self.config.channels_last:
                model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.models[name] = model
            self.optimizers[name] = optimizers.build(self.config, model, lr=(rates or {}).get(name))
            attachment = optimizers.attach(self.config, self.optimizers[name], model)
            if attachment is not None:
                self.attachments[name] = attachment

    def train_indices(self, epoch: int, first: int) -> list[tuple[Tensor, ...]]:
        """Positions in the epoch's order: this process's share of each batch from number `first` on, by part."""
        count, size = len(self.train), self.config.batch_size
        shares = (
            batching.share_of(torch.arange(start, min(start + size, count)), self.context.rank, self.context.world)
            for start in range(first * size, count, size)
        )
        return [share.chunk(self.config.accumulate) for share in shares]

    def test_indices(self) -> list[Tensor]:
        """This process's share of the test images, in batches; none if there are fewer images than processes."""
        share = torch.arange(len(self.test))[self.context.rank :: self.context.world]
        return [chunk for chunk in torch.split(share, self.config.eval_batch_size) if len(chunk)]


class SupervisedTask(Task):
    """A task with one model and batches of (inputs, targets)."""

    score_names: tuple[str, ...] = ("test_loss", "test_accuracy")

    def __init__(self, config: Config, data_dir: Path, data: Any, context: Context):
        super().__init__(config, data_dir, data, context)
        self.scores = Meters(context.device)

    @abstractmethod
    def measure(self, meters: Meters, split: str, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean loss of a batch; it and the other scores are added to the meters."""

    @abstractmethod
    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test items."""

    def losses(self, part: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
        yield "model", self.measure(self.meters, "train", part)

    def size(self, part: tuple[Tensor, Tensor]) -> int:
        return len(part[1])

    @torch.no_grad()
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        self.scores.reset(*self.score_names)
        for batch in self.test_batches():
            self.measure(self.scores, "test", batch)
            yield None
        yield self.scores.means(self.context.add_up)
