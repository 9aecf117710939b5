"""The user's function: which of the two forms it has, its name, and the settings it takes. Checked before any trial."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riesz_lab.comparison.build_form import why_no_build
from riesz_lab.comparison.identity import identity, underlying
from riesz_lab.errors import ConfigError

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


def with_settings(function: UserFunction, settings: dict[str, Any]) -> Callable[..., Any]:
    return functools.partial(function.call, **settings) if settings else function.call
