"""What is left to do, as the trials' directories tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.store import read_trial
from riesz_lab.store.trial import Trial, lock

ASIDE = "set-aside"
"""Folder below the runs where damaged trials are moved to; deep enough that the store does not read them."""


@dataclass
class Plan:
    """Trials by id.

    Attributes:
        waiting: to be trained; new ones and interrupted ones.
        interrupted: how many of them have begun.
        done: status of the complete ones.
        failed: reason of those that failed.
        aside: where damaged ones were moved to, and why.
    """

    waiting: dict[str, Config] = field(default_factory=dict)
    interrupted: int = 0
    done: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    aside: dict[Path, str] = field(default_factory=dict)


def make(configs: list[Config], runs: Path, *, retry_failed: bool = False, set_aside: bool = True) -> Plan:
    """Look at every trial's directory.

    Args:
        configs: the trials.
        runs: folder of all trials.
        retry_failed: try those again that failed.
        set_aside: move damaged directories out of the way, so that their trials can be trained anew.
    """
    plan = Plan()
    for config in configs:
        path = Trial(runs, config).path
        if not (path / "config.json").exists():
            plan.waiting[config.id] = config
            continue
        try:
            stored = read_trial(path)
        except LabError as error:
            plan.aside[_moved(path, runs) if set_aside else path] = str(error)
            plan.waiting[config.id] = config
            continue
        if stored.result is not None:
            plan.done[config.id] = stored.status
        elif stored.failure is not None and not retry_failed:
            plan.failed[config.id] = stored.failure
        else:
            plan.waiting[config.id] = config
            plan.interrupted += 1
    return plan


def _moved(path: Path, runs: Path) -> Path:
    folder = Path(runs) / ASIDE / path.parent.name / path.name
    folder.mkdir(parents=True, exist_ok=True)
    target = next(folder / str(n) for n in range(10**6) if not (folder / str(n)).exists())
    with lock(path):
        path.rename(target)
    return target
