"""Which trials of a sweep are left to train, read from their directories."""

from dataclasses import dataclass, field
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.store import read_trial
from riesz_lab.store.trial import Trial, lock

ASIDE = "set-aside"
"""Folder below the runs for damaged trials; they lie too deep there for the store to read them."""


@dataclass
class Pending:
    """The trials of a sweep, by id."""

    waiting: dict[str, Config] = field(default_factory=dict)  # to be trained; new ones and interrupted ones
    interrupted: int = 0  # how many of the waiting ones have begun
    done: dict[str, str] = field(default_factory=dict)  # the status of complete ones
    failed: dict[str, str] = field(default_factory=dict)  # the reason of failed ones
    aside: dict[Path, str] = field(default_factory=dict)  # where damaged ones were moved to, and why


def find_pending(configs: list[Config], runs: Path, *, retry_failed: bool = False, set_aside: bool = True) -> Pending:
    """Read every trial's directory.

    Args:
        configs: the trials.
        runs: folder of all trials.
        retry_failed: train failed trials again.
        set_aside: move damaged directories out of the way, so that their trials can be trained anew.
    """
    pending = Pending()
    for config in configs:
        trial = Trial(runs, config)
        if not trial.config_file.exists():
            pending.waiting[config.id] = config
            continue
        try:
            stored = read_trial(trial.path)
        except LabError as error:
            pending.aside[_set_aside(trial.path, runs) if set_aside else trial.path] = str(error)
            pending.waiting[config.id] = config
            continue
        if stored.result is not None:
            pending.done[config.id] = stored.status
        elif stored.failure is not None and not retry_failed:
            pending.failed[config.id] = stored.failure
        else:
            pending.waiting[config.id] = config
            pending.interrupted += 1
    return pending


def _set_aside(path: Path, runs: Path) -> Path:
    folder = Path(runs) / ASIDE / path.parent.name / path.name
    folder.mkdir(parents=True, exist_ok=True)
    target = next(folder / str(n) for n in range(10**6) if not (folder / str(n)).exists())
    with lock(path):
        path.rename(target)
    return target
