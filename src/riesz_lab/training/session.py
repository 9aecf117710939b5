"""A trial in this process: its task, with the models wrapped for the hardware, and how far it has come."""

from dataclasses import dataclass, field
from typing import Any

import torch

from riesz_lab.config import Config
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import Context, Task
from riesz_lab.training import parallel
from riesz_lab.training.progress import Progress
from riesz_lab.training.update_recorder import UpdateRecorder
from riesz_lab.utils import randomness


@dataclass
class State:
    """Where a trial is: `batch` of `epoch` is next, `step` steps are done."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class Session:
    """What the loop, the log and the checkpoints of a trial share."""

    def __init__(self, config: Config, task: Task, context: Context, fabric: Any, trial: Trial, show: Progress):
        self.config, self.task, self.context = config, task, context
        self.fabric, self.trial, self.show = fabric, trial, show
        self.is_main: bool = fabric.is_global_zero  # whether this process writes the trial's files
        self.state = State()
        self.steps = min(config.epochs * task.steps_per_epoch, config.max_steps or 2**63)  # of the whole trial
        # As they are before they are wrapped: these are saved. The wrapped ones are in `task.models`.
        self.models = dict(task.models)
        randomness.seed_all(randomness.derived("training", config.effective_data_seed, fabric.global_rank))
        names = parallel.parameter_names(self.models)
        for name, model in self.models.items():
            task.models[name] = fabric.setup_module(torch.compile(model) if config.compile else model)
        parallel.rebind_parameters(task.optimizers.values(), names, self.models)
        self.sharded = parallel.is_sharded(self.models)
        # Where weights are sharded, no process has whole ones to record.
        self.recorder = UpdateRecorder({}, {}) if self.sharded else UpdateRecorder(self.models, task.attachments)
        self.optimizers = {name: fabric.setup_optimizers(optimizer) for name, optimizer in task.optimizers.items()}
