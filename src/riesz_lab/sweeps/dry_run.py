"""The trials of a sweep and their cost, without running any."""

from pathlib import Path

from riesz_lab.config import SEEDS, Config
from riesz_lab.errors import printable
from riesz_lab.recipes import RECIPES
from riesz_lab.sweeps import costs
from riesz_lab.sweeps.definition import Sweep
from riesz_lab.sweeps.methods import PLAIN
from riesz_lab.sweeps.running.pending import find_pending
from riesz_lab.utils.amounts import count
from riesz_lab.utils.tables import print_table


def print_dry_run(sweep: Sweep, runs: Path, *, retry_failed: bool = False) -> None:
    """Print the arms, their trials and their cost. Nothing is changed."""
    configs = sweep.all_configs()
    pending = find_pending(configs, runs, retry_failed=retry_failed, set_aside=False)
    rows = []
    for arm in sweep.arms:
        trials = sweep.configs(arm)
        left = sum(config.id in pending.waiting for config in trials)
        hours = (costs.cpu_hours(arm.config), costs.gpu_hours(arm.config))
        each = map(costs.format_hours, hours)
        rows.append((arm.label, arm.config.recipe, _setting(arm.config), str(len(trials)), str(left), *each))
    paper = f" In the paper: {sweep.reproduces}." if sweep.reproduces else ""
    print(f"{sweep.name}: {sweep.about}{'' if sweep.about.endswith('?') else '.'}{paper}")
    print_table(("arm", "recipe", "setting", "trials", "to run", "CPU, each", "GPU, each"), rows, right=(3, 4, 5, 6))
    waiting = list(pending.waiting.values())
    cpu, gpu = ([estimate(config) for config in waiting] for estimate in (costs.cpu_hours, costs.gpu_hours))
    print(
        f"{count(len(configs), 'trial')}, {len(pending.done)} complete, {len(pending.failed)} failed, "
        f"{len(waiting)} to run: about {costs.format_sum(cpu)} on two cores, or {costs.format_sum(gpu)} on one GPU."
    )
    if None in cpu or None in gpu:
        print(
            f"Not in these sums, since their cost is not known: {count(cpu.count(None), 'trial')} on a CPU, "
            f"{gpu.count(None)} on a GPU."
        )
    print(f"CPU: {costs.MEASURED_ON}; a rough estimate. GPU: {costs.GPU_ASSUMED}.")
    for path, reason in pending.aside.items():
        print(printable(f"damaged: {path} ({reason}); it would be set aside and trained anew"))


def _setting(config: Config) -> str:
    parts = [config.metric]
    if config.metric != "identity":
        parts += [str(config.direction), config.layers]
    if config.control != "none":
        parts.append(config.control)
    if config.smooth_epochs is not None:
        parts.append(f"first {config.smooth_epochs} epochs")
    return ", ".join([*parts, f"lr {config.lr:g}", *_changes(config)])


def _changes(config: Config) -> list[str]:
    """The settings besides those of the method that are not the recipe's: what is run is not what its name says."""
    if config.recipe not in RECIPES:
        return []
    usual, ours = RECIPES[config.recipe]().to_dict(), config.to_dict()
    method = (*PLAIN, *SEEDS, "recipe", "lr")
    return [f"{name}={_format(ours[name])}" for name in ours if name not in method and ours[name] != usual[name]]


def _format(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
