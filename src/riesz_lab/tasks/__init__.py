"""Tasks by name. A task supplies data, models, optimizers, losses and scores; the trainer is the same for all."""

from riesz_lab.errors import ConfigError, unknown
from riesz_lab.tasks.base import Context, Task
from riesz_lab.tasks.classification import Classification
from riesz_lab.tasks.generation import Generation
from riesz_lab.tasks.segmentation import Segmentation
from riesz_lab.tasks.user_defined import UserDefined

TASKS: dict[str, type[Task]] = {
    "classification": Classification,
    "segmentation": Segmentation,
    "generation": Generation,
    "own": UserDefined,
}


def task_class(name: str) -> type[Task]:
    if name not in TASKS:
        raise ConfigError(unknown("task", name, TASKS))
    return TASKS[name]


__all__ = ["TASKS", "Classification", "Context", "Generation", "Segmentation", "Task", "UserDefined", "task_class"]
