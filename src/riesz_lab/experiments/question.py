"""The question that `riesz compare` asks, checked before anything is trained: metrics and settings, crossed."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import riesz
from riesz_lab.config import OWN, Config
from riesz_lab.errors import ConfigError
from riesz_lab.experiments.arm import Arm, baseline, controls_of, format_values, method, with_settings
from riesz_lab.experiments.experiment import Experiment, Fixed, Pilot, Score, Seeds, Tuning, UntilSure
from riesz_lab.experiments.function import RESERVED, TRAIN, UserFunction, inspect_function
from riesz_lab.experiments.margin import Margin, read_margin
from riesz_lab.experiments.planning import PILOT
from riesz_lab.experiments.tuning import is_number
from riesz_lab.store.result import is_percent
from riesz_lab.utils import randomness

FIELDS = frozenset(field.name for field in fields(Config)) - {"recipe", "task", "model", "dataset", "model_options"}
OF_ATTACH = ("layers", "direction")
"""Settings of `riesz.attach`, which a comparison passes on in a user's loop too."""
Values = dict[str, Any]


def ask(
    function: Callable[..., Any],
    *,
    metrics: str | riesz.Metric | Sequence[str | riesz.Metric],
    seeds: int,
    controls: bool,
    score: str,
    higher_is_better: bool,
    margin: float | str | Margin,
    tune: str | Sequence[str],
    tune_seeds: int,
    until_sure: bool,
    budget: int,
    plan: bool,
    settings: Mapping[str, Any],
) -> tuple[UserFunction, Experiment]:
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
    names = expand_metrics([metrics] if isinstance(metrics, str | riesz.Metric) else metrics)
    tune = [tune] if isinstance(tune, str) else tune  # one name, not its letters
    check_settings(user, [*settings, *tune])
    grid = start_grid(user, tune, dict(settings))
    combinations = crossed({name: value for name, value in settings.items() if name not in grid})
    base = base_config(user, score, higher_is_better)
    tuning = None
    if grid:
        own = tuple(name for name in grid if user.takes(name))
        tuning = Tuning(grid=grid, own=own, seeds=tune_seeds, hold_out=_held_out_count(user))
    return user, Experiment(
        name=base.recipe,
        question=f"{user.name}, with and without",
        arms=make_arms(user, base, names, combinations, controls),
        score=Score(score, higher_is_better, is_percent(score)) if user.trains else None,
        margin=size,
        seeds=Seeds(count=PILOT if plan else seeds),
        tuning=tuning,
        stopping=Pilot(PILOT) if plan else UntilSure(budget) if until_sure else Fixed(),
    )


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
        if name in TRAIN and (function.trains or not function.takes(name)):
            raise ConfigError(f"setting {name!r}: expected another name; every trial is given its own {name}")
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


def make_arms(
    function: UserFunction, base: Config, metrics: list[str], combinations: list[Values], controls: bool
) -> tuple[Arm, ...]:
    """The plain optimizer and every metric, at every combination of settings."""
    varying = [name for name in combinations[0] if len({repr(values[name]) for values in combinations}) > 1]
    arms: list[Arm] = []
    for values in combinations:
        where = "".join(f", {format_values({name: values[name]})}" for name in varying)
        at_values = with_settings(base, values, [name for name in values if function.takes(name)])
        arms += _arms(at_values, metrics, controls, where)
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


def start_grid(function: UserFunction, names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The grid to start with: the values given, or multiples of the function's own."""
    grid: dict[str, tuple[Any, ...]] = {}
    for name in names:
        given = settings.get(name, function.defaults.get(name))
        if given is None and not function.trains and not function.takes(name):
            given = getattr(Config(), name, None)
        values: list[Any] = given if isinstance(given, list) else [given]
        if len(values) == 1 and is_number(values[0]) and values[0] > 0:
            values = list(dict.fromkeys(_times(values[0], factor) for factor in Tuning().factors))
        if len(set(map(repr, values))) < 2:
            raise ConfigError(
                f"tune: expected a grid for {name!r}, such as --set {name}=0.01,0.03,0.1, or a number above 0 as its "
                f"default in {function.name!r}; got {values[0]!r}"
            )
        grid[name] = tuple(sorted(values) if all(map(is_number, values)) else values)
    return grid


def _held_out_count(function: UserFunction) -> int:
    """What marks a trial as one that tunes: the training items held out, or 1 where the user's loop holds them out."""
    if function.trains:
        return 1
    randomness.seed_all(0)
    _, (train, _), _ = function.call()
    return max(1, len(train) // 10)


def _times(value: Any, factor: float) -> Any:
    """A multiple of a number; a count stays a count."""
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor
