"""What is asked, checked before anything is trained; and the list of its trials, without training any."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import riesz
from riesz_lab.comparison.arms import base_config, check_settings, crossed, expand_metrics, make_arms
from riesz_lab.comparison.function import UserFunction, inspect_function
from riesz_lab.comparison.margin import Margin, read_margin
from riesz_lab.comparison.planning import PILOT
from riesz_lab.comparison.trials import seconds_of
from riesz_lab.comparison.tuning import Grid, start_grid, tuning_configs
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.store import Store, StoredTrial
from riesz_lab.sweeps import Sweep
from riesz_lab.training.progress import clock
from riesz_lab.utils.amounts import count
from riesz_lab.utils.tables import table


@dataclass(frozen=True)
class Question:
    """A comparison that may be run."""

    function: UserFunction  # the user's
    margin: Margin  # the largest difference that does not matter
    sweep: Sweep  # the arms, before they are tuned, and the number of seeds
    grid: Grid  # the values to tune with at first; empty if nothing is tuned
    tune_seeds: int  # trials per arm and point of the grid
    budget: int | None  # the most seeds; None if their number is fixed


def ask(
    function: Callable[..., Any],
    *,
    metrics: Sequence[str | riesz.Metric],
    seeds: int,
    controls: bool,
    score: str,
    higher_is_better: bool,
    margin: float | str,
    tune: Sequence[str],
    tune_seeds: int,
    until_sure: bool,
    budget: int,
    plan: bool,
    settings: Mapping[str, Any],
) -> Question:
    """Check all that `riesz_lab.compare` is given; a ConfigError names what is wrong."""
    user, size = inspect_function(function), read_margin(margin)
    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more (3 or more for a conclusion), got {seeds!r}")
    if tune_seeds < 1:
        raise ConfigError(f"tune_seeds: expected 1 or more, got {tune_seeds!r}")
    if until_sure and budget < PILOT:
        raise ConfigError(f"budget: expected {PILOT} or more pairs, got {budget!r}")
    if until_sure and plan:
        raise ConfigError("expected until_sure or plan, got both: a plan runs three seeds and stops")
    if not user.trains and (score != "score" or not higher_is_better):
        raise ConfigError(
            f"score and its direction are for train(attach, seed); {user.name!r} is trained by the lab's loop, "
            "which scores test accuracy, or else test loss"
        )
    if user.trains:
        size.check(score)
    names = expand_metrics(metrics)
    check_settings(user, [*settings, *tune])
    grid = start_grid(user, tune, dict(settings))
    combinations = crossed({name: value for name, value in settings.items() if name not in grid})
    base = base_config(user, score, higher_is_better)
    arms = make_arms(user, base, names, combinations, controls)
    count = PILOT if plan else seeds
    sweep = Sweep(name=base.recipe, about=f"{user.name}, with and without", reproduces="", arms=arms, trials=count)
    return Question(user, size, sweep, grid, tune_seeds, budget if until_sure else None)


def list_trials(question: Question, runs: Path, workers: int) -> str:
    """The trials of a question, which of them are stored, and what the others would take. Nothing is written."""
    folder = runs / question.sweep.name
    stored = {trial.config.id: trial for trial in Store(folder).trials if trial.result is not None}
    rows, waiting = [], 0
    for stage, label, configs in _stages(question):
        done = sum(config.id in stored for config in configs)
        waiting += len(configs) - done
        rows.append((stage, label, str(len(configs)), str(done)))
    lines = [table(("", "arm", "trials", "stored"), rows, right=(2, 3))]
    if question.grid:
        values = "; ".join(f"{name} {', '.join(map(str, each))}" for name, each in question.grid.items())
        lines.append(f"Tuning begins with {values}, and extends the grid where a best value lies at its edge.")
        lines.append("The compared trials have the best values: which of them are stored is known after tuning.")
    fewer = ", fewer if it is sure before" if question.budget else ""
    more = ", more if the grid is extended" if question.grid else ""
    cost = _estimate(list(stored.values()), waiting, workers)
    lines.append(f"{count(waiting, 'trial')} to run{fewer}{more}: {cost}.")
    return "\n".join(lines)


def _stages(question: Question) -> list[tuple[str, str, list[Config]]]:
    stages = []
    if question.grid:
        points = list(itertools.product(*question.grid.values()))
        configs = tuning_configs(question.function, question.sweep.arms, question.grid, points, question.tune_seeds)
        stages += [
            ("tuning", arm.label, [config for each, _, config in configs if each is arm]) for arm in question.sweep.arms
        ]
    sweep = question.sweep if question.budget is None else replace(question.sweep, trials=question.budget)
    return [*stages, *(("comparison", arm.label, sweep.configs(arm)) for arm in sweep.arms)]


def _estimate(stored: list[StoredTrial], waiting: int, workers: int) -> str:
    times = [sum(map(seconds_of, trial.timing())) for trial in stored]
    if not times:
        return "their time is known after the first"
    return f"about {clock(waiting * sum(times) / len(times) / workers)}, as the {len(times)} stored ones took"
