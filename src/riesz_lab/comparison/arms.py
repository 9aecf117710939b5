"""What is compared with what: metrics and settings, crossed.

Settings of the user's function are stored in the config's `model_options`, beside the score's name and direction. A
trial without settings has the id it had before there were any.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import riesz
from riesz_lab.comparison.function import UserFunction
from riesz_lab.config import OWN, Config
from riesz_lab.errors import ConfigError
from riesz_lab.sweeps import Arm
from riesz_lab.sweeps.controls import controls_of
from riesz_lab.sweeps.methods import baseline, method
from riesz_lab.utils.options import parse

RESERVED = ("score", "better")
FIELDS = frozenset(field.name for field in fields(Config)) - {"recipe", "task", "model", "dataset", "model_options"}
OF_ATTACH = ("layers", "direction")
"""Settings of `riesz.attach`, which a comparison passes on in a user's loop too."""
Values = dict[str, Any]


def expand_metrics(metrics: Sequence[str | riesz.Metric]) -> list[str]:
    """Every metric as text; several values of a setting are several metrics.

    Example:
        >>> expand_metrics(["sobolev-tilde(lam=0.1, 1)", "reweighted-l2"])
        ['sobolev-tilde(lam=0.1)', 'sobolev-tilde(lam=1.0)', 'reweighted-l2(lam=1.0)']
    """
    try:
        texts = [text for metric in metrics for text in _expand(str(metric) if not isinstance(metric, str) else metric)]
        names = [str(riesz.metric(text)) for text in texts]
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None
    if plain := [name for name in names if name == "identity"]:
        raise ConfigError(f"metrics: {plain[0]} is the plain optimizer, which every metric is compared with anyway")
    return list(dict.fromkeys(names))


def _expand(text: str) -> Iterator[str]:
    form = re.fullmatch(r"\s*([\w-]+)\s*\((.*)\)\s*", text)
    if form is None:
        yield text
        return
    values: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in form[2].split(","))):
        name, equals, value = part.partition("=")
        if equals:
            values.setdefault(name.strip(), []).append(value.strip())
        elif values:  # another value of the last name
            values[list(values)[-1]].append(part)
        else:
            values[part] = [""]  # refused, with a reason, when the metric is made
    for chosen in itertools.product(*values.values()):
        inside = ", ".join(f"{name}={value}" if value else name for name, value in zip(values, chosen, strict=True))
        yield f"{form[1]}({inside})"


def crossed(settings: Mapping[str, Any]) -> list[Values]:
    """Every combination of settings; a list holds several values of one.

    Example:
        >>> crossed({"lr": [0.1, 0.2], "width": 8})
        [{'lr': 0.1, 'width': 8}, {'lr': 0.2, 'width': 8}]
    """
    lists = [value if isinstance(value, list) else [value] for value in settings.values()]
    for name, values in zip(settings, lists, strict=True):
        if not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(f"{name}: expected one or more different values, got {values}")
    return [dict(zip(settings, chosen, strict=True)) for chosen in itertools.product(*lists)]


def check_settings(function: UserFunction, names: Sequence[str]) -> None:
    """Refuse a setting that would reach nothing, and name one that is needed."""
    for name in names:
        if name in RESERVED and function.trains:
            raise ConfigError(f"setting {name!r}: expected another name; this one names the score of a trial")
        if function.takes(name):
            continue
        if function.trains and name not in OF_ATTACH:
            raise ConfigError(
                f"{function.name!r} has a loop of its own, which does not take the setting {name!r}: write it as "
                f"{function.name}(attach, seed, {name}=...), and use it there"
            )
        if name not in FIELDS:
            raise ConfigError(f"setting {name!r}: neither {function.name!r} nor the lab's loop takes it")
    for name in function.required:
        if name not in names:
            raise ConfigError(f"{function.name!r} needs the setting {name!r}: --set {name}=VALUE")


def base_config(function: UserFunction, score: str, higher_is_better: bool) -> Config:
    """The plain optimizer, with the function as it is."""
    common: dict[str, Any] = {"recipe": function.slug, "task": "own", "model": function.identity, "dataset": "own"}
    if not function.trains:
        return Config(**common)
    # What the number is called and which way is better decide what a stored one means: they name the trial too.
    better = "better=higher" if higher_is_better else "better=lower"
    return Config(**common, optimizer=OWN, model_options=(f"score={score}", better))


def at(function: UserFunction, config: Config, values: Values) -> Config:
    """The config with these settings: of the function if it takes them, else of the lab's loop."""
    own = {name: value for name, value in values.items() if function.takes(name)}
    kept = tuple(text for text in config.model_options if text.partition("=")[0] not in own)
    options = (*kept, *(f"{name}={value!r}" for name, value in own.items()))
    return replace(config, model_options=options, **{k: v for k, v in values.items() if k not in own})


def settings_of(config: Config) -> Values:
    """The settings of the user's function in a config."""
    given = config.model_options
    if config.optimizer == OWN:
        given = tuple(text for text in given if text.partition("=")[0] not in RESERVED)
    return parse("setting", given)


def make_arms(
    function: UserFunction, base: Config, metrics: list[str], combinations: list[Values], controls: bool
) -> tuple[Arm, ...]:
    """The plain optimizer and every metric, at every combination of settings."""
    varying = [name for name in combinations[0] if len({repr(values[name]) for values in combinations}) > 1]
    arms: list[Arm] = []
    for values in combinations:
        where = "".join(f", {name}={format_value(values[name])}" for name in varying)
        arms += _arms(at(function, base, values), metrics, controls, where)
    return tuple(arms)


def _arms(base: Config, metrics: list[str], controls: bool, where: str) -> Iterator[Arm]:
    configs = [base]
    for metric in metrics:
        directed = replace(base, metric=metric)
        configs.append(directed)
        if controls:
            configs += controls_of(directed)
    # Named and paired as the report does with what it finds in the store, so that both say the same.
    names = [method(config) for config in configs]
    for name, config in zip(names, configs, strict=True):
        compared = baseline(config, names)
        yield Arm(name + where, config, None if compared is None else compared + where)


def format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
