"""Recipes by name: functions that return complete configs."""

from collections.abc import Callable

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError, unknown
from riesz_lab.recipes import mini, paper, scenes

RECIPES: dict[str, Callable[[], Config]] = {**paper.RECIPES, **scenes.PAPER, **mini.RECIPES, **scenes.MINI}


def recipe(name: str) -> Config:
    """The config of a recipe.

    Example:
        >>> from riesz_lab import recipe
        >>> recipe("cifar10-resnet56-b8").batch_size
        8
    """
    if name not in RECIPES:
        raise ConfigError(unknown("recipe", name, RECIPES, listed_by="riesz recipes"))
    return RECIPES[name]()
