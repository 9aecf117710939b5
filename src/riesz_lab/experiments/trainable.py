"""What an arm trains, behind one interface: driver, executors, tuning, stopping rules and display serve all alike.

    RecipeTrainable     a config of the lab's own tasks
    FunctionTrainable   a function of the user's; see `experiments.function`

Another kind needs a subclass of `Trainable` that other processes can unpickle, and a `Config` that names it: the
config is a trial's identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from riesz_lab.config import Config
from riesz_lab.store import StoredTrial
from riesz_lab.tasks import task_class
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train

if TYPE_CHECKING:
    from riesz_lab.experiments.running.worker import TrialJob


class Trainable(ABC):
    """What trains the trials of an experiment."""

    @abstractmethod
    def train(self, config: Config, job: TrialJob) -> bool:
        """Train a trial to its end, or continue it, and store its result; False if it was complete already."""

    def check(self, configs: Iterable[Config], data_dir: Path, hardware: Hardware) -> None:  # noqa: B027
        """Raise if a trial of these cannot start: missing data, unknown model. Cheap: nothing is created yet."""

    def for_workers(self) -> Trainable:
        """Itself, as other processes can import it; a ConfigError says why they cannot."""
        return self

    def look_at(self, trial: StoredTrial) -> None:  # noqa: B027
        """Raise if a complete trial shows that further ones would say nothing."""


class RecipeTrainable(Trainable):
    """A trial of the lab's own tasks, as `riesz train` trains it."""

    def train(self, config: Config, job: TrialJob) -> bool:
        hardware = Hardware(accelerator=job.accelerator)
        return train(config, runs=job.runs, data_dir=job.data_dir, hardware=hardware, save_every=job.save_every).trained

    def check(self, configs: Iterable[Config], data_dir: Path, hardware: Hardware) -> None:
        for config in {config.group: config for config in configs}.values():
            task_class(config.task).check(config, data_dir, None)
            hardware.check(config)
