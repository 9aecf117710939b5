"""`riesz recipes`: the list, and what each one costs."""

from riesz_lab.commands.parsing import parse
from riesz_lab.data.sizes import images
from riesz_lab.recipes import RECIPES
from riesz_lab.recipes.costs import MEASURED_ON, format_hours, hours, parameters
from riesz_lab.utils.terminal import print_table


def run(arguments: list[str]) -> int:
    parse(_list, arguments, prog="riesz recipes", description="List the recipes and what they cost.")
    return 0


def _list() -> None:
    rows = []
    for name, make in RECIPES.items():
        config = make()
        train, _ = images(config)
        size = "?" if (trained := parameters(config)) is None else f"{trained:,}"
        method = (config.optimizer, f"{config.lr:g}", f"{config.batch_size}", f"{config.epochs}")
        steps = f"{config.epochs * -(-train // config.batch_size):,}"
        cost = format_hours(hours(config))
        rows.append((name, config.dataset, f"{train:,}", config.model, size, *method, steps, cost))
    head = ("recipe", "data", "images", "model", "parameters", "optimizer", "lr", "batch", "epochs", "steps", "cost")
    print_table(head, rows, right=(2, 4, 6, 7, 8, 9, 10))
    print(f"cost: one trial on {MEASURED_ON}, evaluation included; a rough estimate.")
    print("Train one with: riesz train RECIPE --seed 0 [--metric sobolev-tilde]")
