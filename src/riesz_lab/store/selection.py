"""Choose stored trials by their settings; name the settings in which groups differ."""

import dataclasses
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from riesz_lab.config import SEEDS, Config
from riesz_lab.errors import ConfigError, unknown
from riesz_lab.store import StoredTrial

NAMES = [field.name for field in dataclasses.fields(Config)]
MORE = ("status", "id", "group")
"""Names that can be selected by, besides settings."""


def select(trials: Iterable[StoredTrial], conditions: Iterable[str]) -> list[StoredTrial]:
    """The trials that meet all conditions, each as name=value; a value may hold * and ?.

    Example: select(store.trials, ["recipe=demo", "metric=sobolev-tilde*", "status=finished"])
    """
    parsed = [_parse(text) for text in conditions]
    return [trial for trial in trials if all(_meets(trial, name, value) for name, value in parsed)]


def _parse(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise ConfigError(f"condition: expected name=value, such as recipe=demo or status=failed, got {text!r}")
    if name not in NAMES and name not in MORE:
        names, other = [*MORE, *NAMES], f"one of {', '.join(MORE)}"
        raise ConfigError(unknown("condition", name, names, other=other, listed_by="riesz train demo --help"))
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
    """The settings in which groups differ, in words, by the id of the group."""
    values = {key: config.to_dict() for key, config in groups.items()}
    names = [
        name
        for name in NAMES
        if name not in (*SEEDS, "recipe", "metric") and len({str(settings[name]) for settings in values.values()}) > 1
    ]
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    return {
        key: ", ".join(f"{name}={settings[name]}" for name in names if getattr(groups[key], name) != defaults[name])
        for key, settings in values.items()
    }


def record(trial: StoredTrial) -> dict[str, Any]:
    """A trial as one flat record: path, ids, status, last and best scores, every setting."""
    flat: dict[str, Any] = {"path": str(trial.path), "id": trial.config.id, "group": trial.config.group}
    flat |= {"status": trial.status, "failure": trial.failure}
    if trial.result is not None:
        for which, row in (("last", trial.result.last), ("best", trial.result.best)):
            flat |= {f"{which}_{name}": value for name, value in (row or {}).items()}
    settings = trial.config.describe()
    return flat | {name: " ".join(value) if isinstance(value, list) else value for name, value in settings.items()}
