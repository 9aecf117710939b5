"""The paper's sweeps; see `experiments.library.paper`."""

from riesz_lab.experiments.library.paper import CHANCE, EXPERIMENTS, methods
from riesz_lab.sweeps.definition import from_experiment

SWEEPS = {name: from_experiment(each) for name, each in EXPERIMENTS.items()}

__all__ = ["CHANCE", "SWEEPS", "methods"]
