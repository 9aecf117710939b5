"""What a sweep would do, and what it would cost."""

from __future__ import annotations

from pathlib import Path

from riesz_lab.commands.recipes import duration
from riesz_lab.config import Config
from riesz_lab.recipes.costs import MEASURED_ON
from riesz_lab.sweeps import costs
from riesz_lab.sweeps.definition import Sweep
from riesz_lab.sweeps.running import pending as plan
from riesz_lab.utils.tables import print_table


def tell(sweep: Sweep, runs: Path, *, retry_failed: bool = False) -> None:
    """Print the arms, their trials and their cost. Nothing is touched."""
    configs = sweep.all_configs()
    todo = plan.make(configs, runs, retry_failed=retry_failed, set_aside=False)
    rows = []
    for arm in sweep.arms:
        trials = sweep.configs(arm)
        left = sum(config.id in todo.waiting for config in trials)
        hours = (costs.cpu_hours(arm.config), costs.gpu_hours(arm.config))
        rows.append(
            (arm.label, arm.config.recipe, _setting(arm.config), str(len(trials)), str(left), *map(_told, hours))
        )
    print(f"{sweep.name}: {sweep.about}. In the paper: {sweep.reproduces}.")
    print_table(("arm", "recipe", "setting", "trials", "to run", "CPU, each", "GPU, each"), rows, right=(3, 4, 5, 6))
    waiting = list(todo.waiting.values())
    cpu, gpu = ([estimate(config) for config in waiting] for estimate in (costs.cpu_hours, costs.gpu_hours))
    print(
        f"{len(configs)} trials, {len(todo.done)} complete, {len(todo.failed)} failed, {len(waiting)} to run: about "
        f"{_hours(cpu)} on two cores, or {_hours(gpu)} on one GPU."
    )
    if None in cpu or None in gpu:
        print(
            f"Not in these sums, since their cost is not known: {cpu.count(None)} trials on a CPU, "
            f"{gpu.count(None)} on a GPU."
        )
    print(f"CPU: {MEASURED_ON}; a rough estimate. GPU: {costs.GPU_ASSUMED}.")
    for path, why in todo.aside.items():
        print(f"damaged: {path} ({why}); it would be set aside and trained anew")


def _setting(config: Config) -> str:
    more = [config.direction, config.layers] if config.metric != "identity" else []
    more += [config.control] if config.control != "none" else []
    more += [f"first {config.smooth_epochs} epochs"] if config.smooth_epochs is not None else []
    return ", ".join([config.metric, *map(str, more), f"lr {config.lr:g}"])


def _hours(each: list[float | None]) -> str:
    if each and all(one is None for one in each):
        return "an unknown time"
    total = sum(one or 0.0 for one in each)
    return f"{total:,.0f} hours" if total >= 10 else f"{total:.2g} hours"


def _told(hours: float | None) -> str:
    return "?" if hours is None else duration(hours)
