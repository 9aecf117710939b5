"""Choosing among stored trials by their settings, and telling what their settings have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from riesz_lab.config import SEEDS, Config
from riesz_lab.errors import ConfigError, unknown
from riesz_lab.store import StoredTrial

NAMES = [field.name for field in dataclasses.fields(Config)]
MORE = ("status", "id", "group")
"""What can be asked for besides settings."""


def select(trials: Iterable[StoredTrial], conditions: Iterable[str]) -> list[StoredTrial]:
    """The trials that meet all conditions, each as name=value; a value may hold * and ?.

    Example: select(store.trials, ["recipe=demo", "metric=sobolev-tilde*", "status=finished"])
    """
    parsed = [_parsed(text) for text in conditions]
    return [trial for trial in trials if all(_meets(trial, name, value) for name, value in parsed)]


def _parsed(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise ConfigError(f"condition {text!r} cannot be read; write name=value, such as recipe=demo or status=failed")
    if name not in NAMES and name not in MORE:
        raise ConfigError(unknown("setting", name, [*MORE, *NAMES]))
    return name, value.strip()


def _meets(trial: StoredTrial, name: str, pattern: str) -> bool:
    value = str(getattr(trial if name == "status" else trial.config, name))
    if name in ("id", "group"):
        return value.startswith(pattern)
    # "sobolev-tilde" stands for it with any parameters, "sobolev-tilde(lam=1.0)" for that one.
    kind = value.partition("(")[0] if name == "metric" else value
    return pattern in (value, kind) or fnmatchcase(value, pattern) or _same_number(value, pattern)


def _same_number(value: str, pattern: str) -> bool:
    try:
        return float(value) == float(pattern)
    except ValueError:
        return False


def distinguishing(groups: dict[str, Config]) -> dict[str, str]:
    """What tells groups apart: the settings in which they are not all equal, in words, by the id of the group."""
    values = {key: config.to_dict() for key, config in groups.items()}
    names = [
        name
        for name in NAMES
        if name not in (*SEEDS, "recipe", "metric") and len({str(one[name]) for one in values.values()}) > 1
    ]
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    return {
        key: ", ".join(f"{name}={one[name]}" for name in names if getattr(groups[key], name) != defaults[name])
        for key, one in values.items()
    }


def record(trial: StoredTrial) -> dict[str, Any]:
    """A trial as one flat record: where, what, how it ended, last and best scores, every setting."""
    flat: dict[str, Any] = {"path": str(trial.path), "id": trial.config.id, "group": trial.config.group}
    flat |= {"status": trial.status, "failure": trial.failure}
    for which in ("last", "best"):
        row = (None if trial.result is None else trial.result.row(which)) or {}
        flat |= {f"{which}_{name}": value for name, value in row.items()}
    settings = trial.config.describe()
    return flat | {name: " ".join(value) if isinstance(value, list) else value for name, value in settings.items()}
