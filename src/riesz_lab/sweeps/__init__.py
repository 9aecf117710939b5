"""Sweeps: named sets of trials, how they are run, and their results.

A *sweep* has *arms*, settings whose trials differ by their seeds alone; an arm names the arm it is compared with. All
state is in the trials' directories: a sweep can be stopped, killed, and run again at any moment.
"""

import inspect

from riesz_lab.errors import ConfigError, unknown
from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.library import EXPERIMENTS
from riesz_lab.sweeps.definition import Sweep, from_experiment
from riesz_lab.sweeps.results import ArmResult, SweepResult, results
from riesz_lab.utils.importing import load_object

SWEEPS: dict[str, Sweep] = {name: from_experiment(each) for name, each in EXPERIMENTS.items()}


def sweep(name: str) -> Sweep:
    """A sweep by name, or your own as "package.module:function".

    Example:
        >>> from riesz_lab.sweeps import sweep
        >>> len(sweep("controls").arms)
        9
    """
    if ":" in name:
        make = load_object("sweep", name)
        try:
            inspect.signature(make).bind()
        except TypeError as error:
            raise ConfigError(f"sweep {name!r}: expected a function that needs no argument: {error}") from None
        loaded = make()
        if not isinstance(loaded, Sweep):
            raise ConfigError(f"sweep {name!r}: expected a riesz_lab.sweeps.Sweep, got {type(loaded).__name__}")
        return loaded
    if name not in SWEEPS:
        own = "your own as 'package.module:function'"
        raise ConfigError(unknown("sweep", name, SWEEPS, other=own, listed_by="riesz sweep"))
    return SWEEPS[name]


__all__ = ["SWEEPS", "Arm", "ArmResult", "Sweep", "SweepResult", "results", "sweep"]
