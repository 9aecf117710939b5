"""Experiments by name: the paper's, their small forms, and the map of regimes."""

import inspect
from pathlib import Path

from riesz_lab.errors import BadFileError, ConfigError, unknown
from riesz_lab.experiments.experiment import Experiment, read_experiments
from riesz_lab.experiments.library import mini, paper, regimes
from riesz_lab.store.experiment import FILE
from riesz_lab.utils.importing import load_object

EXPERIMENTS: dict[str, Experiment] = paper.EXPERIMENTS | mini.EXPERIMENTS | regimes.EXPERIMENTS


def experiment(name: str) -> Experiment:
    """An experiment by name, the folder of a stored one, or your own as "package.module:function".

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
        folder = Path(name)
        if (folder / FILE).is_file():
            found, broken = read_experiments(folder)
            if folder not in found:
                raise BadFileError(f"{folder / FILE}: {broken[folder]}")
            return found[folder]
        own = "a stored one by its folder, or your own as 'package.module:function'"
        raise ConfigError(unknown("experiment", name, EXPERIMENTS, other=own, listed_by="riesz sweep"))
    return EXPERIMENTS[name]
