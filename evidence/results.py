"""The experiments of the protocol, and what their stored trials say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evidence import EXPERIMENTS, TRIALS
from riesz_lab.errors import LabError
from riesz_lab.experiments import Result, read_experiments, result
from riesz_lab.store import Store, StoredTrial


@dataclass(frozen=True)
class Evidence:
    """All that the pages are computed from."""

    trials: list[StoredTrial]
    results: dict[str, Result]  # by the folder of the experiment

    @cached_property
    def planned(self) -> set[str]:
        """The ids of all trials that the experiments ask for."""
        results = self.results.values()
        missing = {config.id for each in results for config, _ in each.missing}
        return missing | {trial.config.id for each in results for trial in each.trials}


def read(*folders: Path) -> Evidence:
    """What the trials in these folders say; in evidence/trials if none is given."""
    return judge(Store(*(folders or (TRIALS,))).trials)


def judge(trials: list[StoredTrial]) -> Evidence:
    experiments, broken = read_experiments(EXPERIMENTS.parent)
    if broken:
        raise LabError("; ".join(broken.values()))
    return Evidence(trials, {path.name: result(experiment, trials) for path, experiment in experiments.items()})
