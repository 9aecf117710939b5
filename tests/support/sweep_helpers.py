"""A sweep of short trials on data that needs no file."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from lab_helpers import small_config, small_data
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import Arm, Sweep


def write(runs, config, score, status="finished"):
    """A complete trial as the trainer leaves it, without training."""
    trial = Trial(runs, config)
    trial.path.mkdir(parents=True)
    (trial.path / "config.json").write_text(json.dumps(config.to_dict()))
    row = None if score is None else {"epoch": 1, "step": 1, "test_accuracy": score}
    result = {"status": status, "step": 1, "parameters": 1, "score": "test_accuracy", "last": row, "best": row}
    trial.result_file.write_text(json.dumps(result))
    return trial


def data():
    return small_data()


def short(**changes):
    settings = {"dataset": "sweep_helpers:data", "model": "lab_helpers:network", "metric": "identity", "epochs": 20}
    return small_config(**{**settings, **changes})


def two_arms(**settings):
    arms = (Arm("SGD", short()), Arm("ours", short(metric="sobolev-tilde"), "SGD"))
    return Sweep(**{"name": "two", "about": "", "reproduces": "", "arms": arms, "trials": 5, **settings})


def thirty():
    """Three arms, ten seeds: 30 trials of a few seconds."""
    return Sweep(
        name="thirty",
        about="short trials",
        reproduces="nothing",
        arms=(
            Arm("SGD", short()),
            Arm("SobolevTilde", short(metric="sobolev-tilde"), "SGD"),
            Arm("ReweightedL2", short(metric="reweighted-l2"), "SGD"),
        ),
        trials=10,
    )


def six():
    arms = tuple(Arm(arm.label, replace(arm.config, epochs=2), arm.baseline) for arm in thirty().arms)
    return replace(thirty(), arms=arms, trials=2)


def failing():
    """An arm that cannot be trained beside one that can."""
    sweep = six().with_trials(1).only(["SobolevTilde"])
    broken = Arm("broken", short(batch_size=7, model="sweep_helpers:broken_network"), "SGD")
    return Sweep(name="failing", about="one fails", reproduces="nothing", arms=(*sweep.arms, broken), trials=1)


def broken_network(channels, classes):
    raise RuntimeError("this network cannot be built")


def exiting_network(channels, classes):
    sys.exit(0)


def nine():
    return thirty().with_trials(3)


def crash(job, environment, log):
    """A trial's process that writes two lines and is killed."""
    Path(log).write_text("first\nno torch here\n")
    os.kill(os.getpid(), signal.SIGKILL)
