"""A user's function as what an arm trains: its form, its name, the settings it takes, and how a worker imports it.

Settings of the function are stored in the config's `model_options`, beside the score's name and direction. A trial
without settings has the id it had before there were any.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riesz_lab.config import OWN, Config
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments.build_form import why_no_build
from riesz_lab.experiments.identity import identity, underlying
from riesz_lab.experiments.trainable import Trainable
from riesz_lab.experiments.user_loop import run_user_loop
from riesz_lab.store import StoredTrial
from riesz_lab.store.trial import Trial
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train
from riesz_lab.utils.importing import load_object
from riesz_lab.utils.options import parse

if TYPE_CHECKING:
    from riesz_lab.experiments.running.worker import TrialJob

RESERVED = ("score", "better")
"""The first options of a trial whose loop is the user's; the others are settings of the function."""
TRAIN = ["attach", "seed"]


@dataclass(frozen=True)
class UserFunction:
    """A function that is compared."""

    call: Callable[..., Any]  # the function
    name: str  # what it is called
    trains: bool  # True for train(attach, seed), False for build()
    defaults: dict[str, Any]  # its settings by name; None for one without a default
    required: tuple[str, ...]  # those without a default
    takes_any: bool  # whether it takes any setting (`**settings`)

    def takes(self, name: str) -> bool:
        return name in self.defaults or (self.takes_any and self.trains)

    @property
    def slug(self) -> str:
        """The folder of its trials."""
        stem = Path(getattr(getattr(underlying(self.call), "__code__", None), "co_filename", "")).stem
        slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{stem}-{self.name}").strip("-")
        return f"compare-{slug}"[:60].rstrip("-")

    @property
    def identity(self) -> str:
        """The function's file and name, with a hash of all that it is made of."""
        return identity(self.call, self.name)

    @property
    def seeding(self) -> str:
        """The line of its source that sets a seed, in words; empty if none is seen."""
        try:
            lines, first = inspect.getsourcelines(underlying(self.call))
        except (OSError, TypeError):
            return ""
        for number, line in enumerate(lines, first):
            if re.search(r"\b(manual_seed|seed_everything|random\.seed|set_seed)\(", line):
                return f"line {number}: {line.strip()}"
        return ""


def inspect_function(call: Callable[..., Any]) -> UserFunction:
    """Read a function's form; a ConfigError if it has none of the two."""
    name = str(getattr(underlying(call), "__name__", type(call).__name__))
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{call!r} cannot be compared: {error}") from None
    named = [each for each in parameters if each.kind in (0, 1, 3)]
    needed = [each.name for each in named if each.default is each.empty]
    trains = needed[:2] == TRAIN
    # A setting without a default must be given: train(attach, seed, lr).
    if not trains and needed:
        raise ConfigError(
            f"{name!r}: expected train(attach, seed), or build() without arguments, got the arguments "
            f"{', '.join(needed)}"
        )
    settings = [each for each in named if each.name not in (TRAIN if trains else ())]
    if not trains:
        _check_build(call, name)
    return UserFunction(
        call=call,
        name=name,
        trains=trains,
        defaults={each.name: None if each.default is each.empty else each.default for each in settings},
        required=tuple(each.name for each in settings if each.default is each.empty),
        takes_any=any(each.kind is each.VAR_KEYWORD for each in parameters),
    )


def _check_build(call: Callable[..., Any], name: str) -> None:
    """A training loop without (attach, seed) would run to its end before its result is seen to be no model."""
    if why := why_no_build(underlying(call)):
        raise ConfigError(
            f"{name!r} takes no arguments, so it should be build() and return model, (train, test), loss; it {why}. "
            f"If it is a training loop, write {name}(attach, seed), call attach(optimizer, model) and return the score"
        )


def settings_of(config: Config) -> dict[str, Any]:
    """The settings of the user's function in a config."""
    given = config.model_options
    if config.optimizer == OWN:
        given = tuple(text for text in given if text.partition("=")[0] not in RESERVED)
    return parse("setting", given)


@dataclass
class FunctionTrainable(Trainable):
    """A function of the user's, trained in this process."""

    function: UserFunction
    _first: dict[str, tuple[int, object]] = field(default_factory=dict)  # seed and outcome of each group's first trial

    def train(self, config: Config, job: TrialJob) -> bool:
        return train_user_trial(self.function, config, job)

    def for_workers(self) -> Trainable:
        return NamedFunction(reference_to(self.function.call), os.getcwd(), self)

    def look_at(self, trial: StoredTrial) -> None:
        """Two seeds with the same weights and scores: the function sets a seed itself, and n trials are one."""
        if not self.function.trains or trial.result is None or trial.result.last is None:
            return
        # Of a stored trial the weights may have been deleted, to save space: its scores remain.
        file, config = trial.files.weights_file, trial.config
        weights = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else str(config.seed)
        outcome = (trial.result.last, weights)
        seed, first = self._first.setdefault(config.group, (config.seed, outcome))
        if seed != config.seed and first == outcome:
            where = f" ({self.function.seeding})" if self.function.seeding else ""
            raise LabError(
                f"seeds {seed} and {config.seed} of {self.function.name!r} give the same weights and scores: more "
                f"trials would say nothing. Random generators are seeded before each call; remove the seeding in the "
                f"function{where}, or use its argument `seed` there"
            )


@dataclass
class NamedFunction(Trainable):
    """The same in a process of its own, which imports the function and works in the caller's folder."""

    reference: str  # path/to/file.py:train or package.module:train
    folder: str
    here: FunctionTrainable | None  # it stays in the caller's process

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"here": None}

    def train(self, config: Config, job: TrialJob) -> bool:
        os.chdir(self.folder)
        function = inspect_function(load_object("function", self.reference))
        if function.identity != config.model:
            raise LabError(
                f"{self.reference} is not the function that the comparison began with: expected {config.model}, got "
                f"{function.identity}. Its file, or one that it imports, was changed meanwhile: run the same again"
            )
        return train_user_trial(function, config, job)

    def look_at(self, trial: StoredTrial) -> None:
        if self.here is not None:
            self.here.look_at(trial)


def train_user_trial(function: UserFunction, config: Config, job: TrialJob) -> bool:
    settings = settings_of(config)
    call = functools.partial(function.call, **settings) if settings else function.call
    if not function.trains:
        hardware = Hardware(accelerator=job.accelerator)
        return train(config, data=call, runs=job.runs, hardware=hardware, save_every=job.save_every).trained
    score, better = (text.partition("=")[2] for text in config.model_options[:2])
    run_user_loop(Trial(job.runs, config), call, function.name, score, better == "higher", tuning=config.hold_out > 0)
    return True


def reference_to(call: Callable[..., Any]) -> str:
    """The name that another process imports this function by; a ConfigError says why there is none."""
    name = getattr(call, "__qualname__", type(call).__name__)
    if reason := _unreachable(call):
        raise ConfigError(
            f"workers: expected 1, in this process, since {name!r} {reason}, so that no other process can import it; "
            "for more, write it as a function at the top level of a file"
        )
    module = sys.modules[call.__module__]
    # A module of a package is imported by its name, for its relative imports; a script by its file.
    if "." in call.__module__:
        return f"{call.__module__}:{name}"
    return f"{Path(str(module.__file__)).resolve()}:{name}"


def _unreachable(call: Any) -> str:
    if not isinstance(call, types.FunctionType):
        return f"is a {type(call).__name__}"
    if call.__name__ == "<lambda>":
        return "is a lambda"
    if "<locals>" in call.__qualname__:
        return "is defined within another function"
    module = sys.modules.get(call.__module__)
    if module is None or not getattr(module, "__file__", None):
        return "was typed at a prompt or in a notebook"
    found: Any = module
    for part in call.__qualname__.split("."):
        found = getattr(found, part, None)
    return "" if found is call else f"is not what {call.__module__}.{call.__qualname__} names"
