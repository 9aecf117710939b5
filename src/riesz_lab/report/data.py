"""What a report is made of: results, and the trials' files, each read once however many figures show it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from riesz_lab.config import OWN, Config, parse_metric
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments import (
    EXPERIMENTS,
    ArmResult,
    Experiment,
    Margin,
    Result,
    all_experiments,
    experiment,
    read_experiments,
    result,
)
from riesz_lab.experiments.arm import method, setting
from riesz_lab.experiments.margin import DEFAULT_MARGIN
from riesz_lab.report.benchmarks import Measurement, read_measurements
from riesz_lab.report.labels import REST, by_number, is_as_published, rank
from riesz_lab.store import MADE_BY, Store, StoredTrial

Array = NDArray[np.float64]
Methods = dict[str, list[StoredTrial]]
"""Trials by what is drawn in one colour: the method in a setting, or the arm of an experiment."""
Rows = Literal["history", "updates", "timing"]


class Files:
    """The trials' files, read on first use."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Path, Rows], list[dict[str, Any]]] = {}
        self._weights: dict[Path, dict[str, Array]] = {}

    def rows(self, trial: StoredTrial, file: Rows) -> list[dict[str, Any]]:
        """The lines of one of a trial's files that have an epoch."""
        if (trial.path, file) not in self._rows:
            read = getattr(trial, file)()
            self._rows[trial.path, file] = [row for row in read if isinstance(row.get("epoch"), int)]
        return self._rows[trial.path, file]

    def curve(self, trials: Sequence[StoredTrial], key: str) -> tuple[list[float], Array]:
        """A value of the history by epoch, one row per trial; see `align`."""
        histories = (self.rows(trial, "history") for trial in trials)
        return align(
            {row["epoch"]: float(row[key]) for row in rows if isinstance(row.get(key), int | float)}
            for rows in histories
        )

    def conv_weights(self, trial: StoredTrial) -> dict[str, Array]:
        """The final conv weights of a trial, as (output, input, taps); empty if they cannot be read."""
        if trial.path not in self._weights:
            self._weights[trial.path] = _conv_weights(trial.files.weights_file)
        return self._weights[trial.path]

    def step_times(self, trials: Iterable[StoredTrial]) -> list[float]:
        """Milliseconds of a step, one value per epoch of every trial."""
        times = [row.get("step_ms") for trial in trials for row in self.rows(trial, "timing")]
        return [float(ms) for ms in times if isinstance(ms, int | float) and ms > 0]


def _conv_weights(file: Path) -> dict[str, Array]:
    from riesz_lab.inspection import read_tensors  # and torch

    try:
        tensors = read_tensors(file)
    except LabError:
        return {}
    return {
        name: tensor.double().reshape(tensor.shape[0], tensor.shape[1], -1).numpy()
        for name, tensor in tensors.items()
        if tensor.dim() >= 3 and tensor.is_floating_point() and tensor.numel()
    }


@dataclass
class ReportData:
    """A store, what its trials say, and benchmark results."""

    store: Store
    asked: list[Result] = field(default_factory=list)  # of the experiments that the user named, then of stored ones
    loose: list[Result] = field(default_factory=list)  # of trials that belong to none
    benchmarks: Sequence[Measurement] = ()
    commands: Mapping[str, str] = field(default_factory=dict)  # what `riesz sweep` calls an experiment, by its id
    broken: Mapping[Path, str] = field(default_factory=dict)  # records of experiments that cannot be read
    files: Files = field(default_factory=Files)

    @property
    def results(self) -> list[Result]:
        return [*self.asked, *self.loose]

    @property
    def of_recipes(self) -> list[Result]:
        """Those whose arms are recipes of the lab: the paper's figures and tables are about these."""
        return [found for found in self.results if not is_own(found)]

    @property
    def of_functions(self) -> list[Result]:
        """Those of a user's function."""
        return [found for found in self.results if is_own(found)]

    def named(self, *names: str) -> list[Result]:
        """The results of these experiments, in full or small form."""
        return [found for found in self.results if found.experiment.name.removesuffix("-mini") in names]

    def parts(self, key: Callable[[Config], Config], *beside: str) -> list[Result]:
        """The asked results that are not built in, each divided by what `key` makes of the settings of an arm.

        For the paper's figures and tables: controls, directions and layers that these do not have are left out. So is a
        part whose trials are all in another, or in a built-in one that is drawn `beside` them: experiments share
        trials, and those of controls repeat what they control.
        """
        own = [found for found in self.asked if found.experiment.name not in EXPERIMENTS and not is_own(found)]
        divided = [part for found in own for part in _divide(found, key)]
        kept, drawn = [], [_ids(found) for found in self.named(*beside)]
        for part in sorted(divided, key=lambda part: -len(_ids(part))):
            if not any(_ids(part) <= ids for ids in drawn):
                kept.append(part)
                drawn.append(_ids(part))
        return [part for part in divided if any(part is one for one in kept)]

    @cached_property
    def settings(self) -> dict[Config, Methods]:
        """Complete trials of recipes by setting and method, the plain optimizer first; without those that tuned."""
        settings: dict[Config, Methods] = {}
        for trial in self.store.trials:
            if trial.result is not None and not trial.config.hold_out and trial.config.task != "own":
                methods = settings.setdefault(setting(trial.config), {})
                methods.setdefault(method(trial.config), []).append(trial)
        return {
            base: dict(sorted(methods.items(), key=lambda item: (rank(item[1][0].config), by_number(item[0]))))
            for base, methods in settings.items()
        }

    def settings_with(self, file: Literal["weights_file", "updates_file"]) -> list[tuple[Config, Methods]]:
        """Settings and methods of the trials that have this file."""
        settings = []
        for base, methods in self.settings.items():
            having = {name: [t for t in trials if getattr(t.files, file).exists()] for name, trials in methods.items()}
            if any(having.values()):
                settings.append((base, {name: trials for name, trials in having.items() if trials}))
        return settings

    def settings_of(self, *tasks: str) -> list[tuple[Config, Methods]]:
        """Settings of these tasks."""
        return [(base, methods) for base, methods in self.settings.items() if base.task in tasks]


def read(*folders: Path | str, margin: float = DEFAULT_MARGIN.size, sweeps: Iterable[str] = ()) -> ReportData:
    """Everything below some folders: trials, the experiments stored with them, and the CSV files of benchmarks.

    Args:
        folders: where to look.
        margin: the largest difference that does not matter, for trials of no experiment.
        sweeps: names of experiments to add, built-in or "package.module:function".
    """
    if not 0 < margin < float("inf"):
        raise ConfigError(f"expected margin above 0, in the unit of the scores, got {margin!r}")
    named = {name: experiment(name) for name in sweeps}
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            kind = "which is a file" if path.exists() else f"which does not exist; {MADE_BY}"
            raise LabError(f"expected a folder of trials or benchmark results, got {path}, {kind}")
    measurements = [measurement for path in paths for measurement in read_measurements(path)]
    stored, broken = read_experiments(*paths)
    store = _with_known_metrics(Store(*paths))
    if not store.trials and not store.broken and not broken and not measurements:
        raise LabError(f"no trial is stored below {', '.join(map(str, paths))}; {MADE_BY}")
    commands = {each.id: name for name, each in named.items()}
    more = {"benchmarks": measurements, "broken": broken, "commands": commands}
    return report_data(store, stored.values(), named.values(), margin=margin, **more)


def report_data(
    store: Store,
    stored: Iterable[Experiment] = (),
    named: Iterable[Experiment] = (),
    *,
    margin: float = DEFAULT_MARGIN.size,
    **more: Any,
) -> ReportData:
    """The results that a store allows: of experiments that were named or stored, then of trials of none."""
    named, stored = list(named), list(stored)
    others = [each for each in all_experiments(store.trials, [*named, *stored], Margin(margin)) if each not in named]
    found = [result(each, store) for each in (*named, *others)]
    known = len(named) + sum(each in stored for each in others)
    return ReportData(store, found[:known], found[known:], **more)


def _divide(found: Result, key: Callable[[Config], Config]) -> list[Result]:
    parts: dict[Config, dict[str, ArmResult]] = {}
    for label, each in found.arms.items():
        if each.trials and is_as_published(each.arm.config) and not each.arm.config.hold_out:
            parts.setdefault(key(each.arm.config), {})[label] = each
    return [replace(found, arms=arms) for arms in parts.values()]


def _ids(part: Result) -> set[str]:
    return {trial.config.id for each in part.arms.values() for trial in each.trials.values()}


def _with_known_metrics(store: Store) -> Store:
    """Trials of a metric that this version does not know are broken: they cannot be named or compared."""
    unknown: dict[str, str] = {}
    for metric in {trial.config.metric for trial in store.trials}:
        try:
            parse_metric(metric)
        except ConfigError as error:
            unknown[metric] = str(error)
    store.broken |= {t.path: unknown[t.config.metric] for t in store.trials if t.config.metric in unknown}
    store.trials = [trial for trial in store.trials if trial.config.metric not in unknown]
    return store


def is_own(found: Result) -> bool:
    """Whether a result is of a user's function."""
    return any(each.arm.config.task == "own" for each in found.arms.values())


def trains_itself(found: Result) -> bool:
    """Whether the user's function has a training loop of its own."""
    return any(each.arm.config.optimizer == OWN for each in found.arms.values())


def align(by_trial: Iterable[Mapping[int, Any]]) -> tuple[list[float], Array]:
    """The epochs that every trial has a value of, and the values: one row per trial. Trials without any are dropped."""
    kept = [values for values in by_trial if values]
    if not kept:
        return [], np.zeros((0, 0))
    epochs = sorted(set.intersection(*(set(values) for values in kept)))
    return [float(epoch) for epoch in epochs], np.array([[values[epoch] for epoch in epochs] for values in kept])


def main_methods(methods: Methods, most: int) -> Methods:
    """The methods of the paper's figures, if there are two or more; else the first ones."""
    chosen = {name: trials for name, trials in methods.items() if rank(trials[0].config) < REST}
    return dict(list((chosen if len(chosen) > 1 else methods).items())[:most])


def score_of(methods: Methods) -> tuple[str, bool]:
    """The name of the score of a setting, and whether it is printed in percent."""
    found = next(iter(methods.values()))[0].result
    return ("test_accuracy", True) if found is None else (found.score, found.percent)


def count_collapsed(trials: Sequence[StoredTrial]) -> int:
    return sum(trial.status in ("collapsed", "diverged") for trial in trials)
