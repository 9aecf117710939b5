"""Experiments by name: the paper's, their small forms, and the map of regimes."""

import inspect

from riesz_lab.errors import ConfigError, unknown
from riesz_lab.experiments.experiment import Experiment
from riesz_lab.experiments.library import mini, paper, regimes
from riesz_lab.utils.importing import load_object

EXPERIMENTS: dict[str, Experiment] = paper.EXPERIMENTS | mini.EXPERIMENTS | regimes.EXPERIMENTS


def experiment(name: str) -> Experiment:
    """An experiment by name, or your own as "package.module:function".

    Example:
        >>> from riesz_lab.experiments import experiment
        >>> len(experiment("controls").arms)
        9
    """
    if ":" in name:
        make = load_object("experiment", name)
        try:
            inspect.signature(make).bind()
        except TypeError as error:
            raise ConfigError(f"experiment {name!r}: expected a function that needs no argument: {error}") from None
        loaded = make()
        if not isinstance(loaded, Experiment):
            raise ConfigError(f"experiment {name!r}: expected a riesz_lab Experiment, got {type(loaded).__name__}")
        return loaded
    if name not in EXPERIMENTS:
        own = "your own as 'package.module:function'"
        raise ConfigError(unknown("experiment", name, EXPERIMENTS, other=own, listed_by="riesz sweep"))
    return EXPERIMENTS[name]
