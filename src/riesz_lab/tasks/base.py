"""What a task is.

The trainer does the same for every task: for each batch it asks for losses, one per optimizer, and in between it runs
backward and the optimizer's step. So a network with one loss and a pair of networks that play against each other are
written the same way:

    def losses(self, batch):
        yield "generator", ...        # the trainer steps the generator here
        yield "discriminator", ...    # and the discriminator here
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import riesz
from riesz_lab.config import Config
from riesz_lab.tasks.meters import Meters


@dataclass(frozen=True)
class Context:
    """Where a task runs.

    Attributes:
        device: of this process.
        rank, world: this process and how many there are; each takes its share of every batch.
        add_up: the sum of a tensor over all processes.
        workers: processes that decode images for this one.
    """

    device: torch.device
    rank: int = 0
    world: int = 1
    add_up: Callable[[Tensor], Tensor] = lambda local: local
    workers: int = 0


class Task(ABC):
    """Data, models, optimizers, losses and scores of one kind of experiment.

    Attributes:
        score: the score trials are compared by, a key of what `evaluate` returns.
        higher_is_better: whether more of it is better.
        models, optimizers: by name; the trainer wraps the models in place.
        attachments: the metric on each optimizer that has one.
        meters: what the task measures while it trains; they are reset after each epoch.
    """

    score: str
    higher_is_better: ClassVar[bool] = True

    models: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    attachments: dict[str, riesz.Attachment]
    meters: Meters

    @classmethod
    @abstractmethod
    def check(cls, config: Config, data_dir: Path, data: Any) -> None:
        """Raise if the trial cannot start: missing data, unknown model. Cheap: it runs before anything is created."""

    @abstractmethod
    def __init__(self, config: Config, data_dir: Path, data: Any, context: Context):
        """Load the data, build models and optimizers."""

    @classmethod
    @abstractmethod
    def parameters(cls, config: Config) -> int:
        """How many numbers a recipe trains, without making them."""

    @property
    @abstractmethod
    def images(self) -> int:
        """Training images per epoch."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[list[Any]]:
        """The batches of an epoch from number `first` on, each as the parts it is computed in."""

    @abstractmethod
    def losses(self, part: Any) -> Iterator[tuple[str, Tensor]]:
        """The loss of each optimizer on a part of a batch, in the order of their steps; also feeds the meters."""

    @abstractmethod
    def share(self, part: Any, parts: list[Any]) -> float:
        """The weight of a part in its batch."""

    @abstractmethod
    def evaluate(self) -> Iterator[dict[str, float] | None]:
        """Yield None now and then, so that the trainer may stop in between; at last the scores, by name."""

    def pictures(self) -> dict[str, bytes]:
        """What the last evaluation has to show: PNG files by name."""
        return {}

    def collapsed(self, history: list[dict[str, Any]]) -> str | None:
        """Why a trial that came to its end is no success, judged by its rows; None if it is one."""
        return None
