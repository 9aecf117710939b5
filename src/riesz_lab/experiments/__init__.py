"""Experiments: what is asked, how its trials are run, and what they say.

An *experiment* has *arms*, settings whose trials differ by their seeds alone; an arm names the arm it is compared with.
It is stored before the first trial. All other state is in the trials' directories: a run can be stopped, killed, and
started again at any moment. Its *result* is a pure function of both.

    experiment, arm, margin   the record of what is asked
    tuning, stopping          which trials are missing, and what those that are stored conclude
    result                    both, as one record: everything that is printed is a rendering of it
    loose                     the plain question, asked of trials that belong to no experiment
    library                   experiments by name
"""

from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.experiment import (
    Experiment,
    Fixed,
    Pilot,
    Score,
    Seeds,
    Tuning,
    UntilSure,
    read_experiments,
)
from riesz_lab.experiments.library import EXPERIMENTS, experiment
from riesz_lab.experiments.loose import all_experiments
from riesz_lab.experiments.margin import Margin
from riesz_lab.experiments.result import ArmResult, Result, result

__all__ = [
    "EXPERIMENTS",
    "Arm",
    "ArmResult",
    "Experiment",
    "Fixed",
    "Margin",
    "Pilot",
    "Result",
    "Score",
    "Seeds",
    "Tuning",
    "UntilSure",
    "all_experiments",
    "experiment",
    "read_experiments",
    "result",
]
