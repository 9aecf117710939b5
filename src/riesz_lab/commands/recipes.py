"""`riesz recipes`: the list, and what each one costs."""

from __future__ import annotations

import tyro

from riesz_lab.config import Config
from riesz_lab.data import DATASETS
from riesz_lab.data.scenes.catalog import SCENES
from riesz_lab.recipes import RECIPES
from riesz_lab.recipes.costs import MEASURED_ON, hours
from riesz_lab.tasks import task_class
from riesz_lab.utils.tables import print_table


def run(arguments: list[str]) -> int:
    tyro.cli(_list, prog="riesz recipes", description="List the recipes and what they cost.", args=arguments)
    return 0


def _list() -> None:
    rows = []
    for name, make in RECIPES.items():
        config = make()
        train, _ = images(config)
        steps = config.epochs * -(-train // config.batch_size)
        parameters = task_class(config.task).parameters(config)
        rows.append(
            (
                name,
                config.dataset,
                f"{train:,}",
                config.model,
                f"{parameters:,}",
                config.optimizer,
                f"{config.lr:g}",
                str(config.batch_size),
                str(config.epochs),
                f"{steps:,}",
                duration(hours(config, *images(config))),
            )
        )
    head = ("recipe", "data", "images", "model", "parameters", "optimizer", "lr", "batch", "epochs", "steps", "cost")
    print_table(head, rows, right=(2, 4, 6, 7, 8, 9, 10))
    print(f"cost: one trial on {MEASURED_ON}, evaluation included; a rough estimate.")
    print("Train one with: riesz train RECIPE --seed 0 [--metric sobolev-tilde]")


def images(config: Config) -> tuple[int, int]:
    """How many images are trained on and tested on."""
    known = DATASETS if config.task == "classification" else SCENES
    train, test = known[config.dataset].images
    if config.swap_splits:
        train, test = test, train
    return min(train, config.train_limit or train), min(test, config.test_limit or test)


def duration(time: float) -> str:
    if time < 1.5:
        return f"{max(1, round(60 * time))} min"
    return f"{time:.0f} h" if time < 48 else f"{time / 24:.0f} days"
