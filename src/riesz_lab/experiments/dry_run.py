"""The trials of an experiment, which of them are stored, and what the others would take; nothing is written."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from riesz_lab.config import SEEDS, Config
from riesz_lab.experiments.arm import PLAIN, format_values
from riesz_lab.experiments.driver import stored_trials
from riesz_lab.experiments.experiment import Experiment
from riesz_lab.experiments.running.jobs import find_pending
from riesz_lab.experiments.tuning import tune
from riesz_lab.recipes import RECIPES
from riesz_lab.store import StoredTrial
from riesz_lab.training.progress import clock
from riesz_lab.utils.amounts import count
from riesz_lab.utils.terminal import table


def dry_run(experiment: Experiment, runs: Path, slots: int, *, retry_failed: bool = True) -> str:
    """A row per arm and stage, and a sum.

    Args:
        experiment: what would be run.
        runs: folder of all trials.
        slots: trials at once.
        retry_failed: whether failed trials would be trained again.
    """
    complete = stored_trials(experiment, runs)
    stages = _stages(experiment, complete)
    configs = {config.id: config for _, _, trials in stages for config in trials}
    pending = find_pending(configs.values(), runs, retry_failed=retry_failed, set_aside=False)
    head = ("", "arm", "setting", "trials", "stored")
    rows = [
        (stage, label, _setting(trials), str(len(trials)), str(sum(config.id in complete for config in trials)))
        for stage, label, trials in stages
    ]
    lines = [f"{experiment.name}: {experiment.description}", table(head, rows, right=(3, 4))]
    if experiment.tuning:
        tuned = tune(experiment, complete)
        grid = tuned.grid
        values = "; ".join(f"{name} {', '.join(_format(value) for value in each)}" for name, each in grid.items())
        lines.append(f"Tuning begins with {values}, and extends the grid where a best value lies at its edge.")
        if tuned.why_not:
            lines.append("The compared trials have the best values: which of them are stored is known after tuning.")
    fewer = ", fewer if it is sure before" if experiment.stopping.most else ""
    more = ", more if the grid is extended" if experiment.tuning and tuned.why_not else ""
    failed = f", {len(pending.failed)} failed" if pending.failed else ""
    left = len(pending.waiting)
    lines.append(
        f"{count(len(configs), 'trial')}, {len(pending.done)} complete{failed}, {left} to run{fewer}{more}: "
        f"{_estimate(pending.done, left, slots)}."
    )
    lines += [f"damaged: {path} ({reason}); it would be set aside" for path, reason in pending.aside.items()]
    return "\n".join(lines)


def _stages(experiment: Experiment, complete: Mapping[str, StoredTrial]) -> list[tuple[str, str, list[Config]]]:
    stages: list[tuple[str, str, list[Config]]] = []
    final = "comparison" if experiment.tuning else ""
    experiment = experiment.with_seeds(experiment.stopping.most)
    arms = experiment.chosen
    if experiment.tuning is not None:
        tuned = tune(experiment, complete)
        for arm in arms:
            points = [config for config, _ in tuned.missing[arm.label]]
            points += [trial.config for point in tuned.points[arm.label] for trial in point.trials]
            stages.append(("tuning", arm.label, points))
        own = experiment.tuning.own
        arms = tuple(arm.at(tuned.best.get(arm.label, {}), own) for arm in arms)
    return [*stages, *((final, arm.label, experiment.configs(arm)) for arm in arms)]


def _estimate(stored: Mapping[str, StoredTrial], waiting: int, slots: int) -> str:
    times = [trial.seconds for trial in stored.values()]
    if not any(times):
        return "their time is known after the first" if waiting else "nothing to train"
    return f"about {clock(waiting * sum(times) / len(times) / slots)}, as the {len(times)} stored ones took"


def _setting(trials: list[Config]) -> str:
    """What is trained, where it is a recipe: its method, and all that is not the recipe's."""
    config = replace(trials[0], hold_out=0)
    if config.recipe not in RECIPES:
        return config.recipe if config.task != "own" else ""
    parts = [config.metric] if config.metric != "identity" else ["plain"]
    parts += [f"{name}={getattr(config, name)}" for name in PLAIN if name != "metric" and _changed(config, name)]
    usual = RECIPES[config.recipe]().to_dict()
    others = (name for name in usual if name not in (*PLAIN, *SEEDS, "recipe"))
    changed = {name: value for name in others if (value := config.to_dict()[name]) != usual[name] or name == "lr"}
    shown = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in changed.items()}
    return ", ".join(filter(None, (config.recipe, *parts, format_values(shown))))


def _changed(config: Config, name: str) -> bool:
    return bool(getattr(config, name) != PLAIN[name])


def _format(value: object) -> str:
    return f"{value:g}" if type(value) is float else str(value)
