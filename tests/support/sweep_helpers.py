"""A sweep of short trials on data that needs no file."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from lab_helpers import small_config, small_data
from riesz_lab.experiments import Arm, Experiment, Seeds
from riesz_lab.store.trial import Trial


def write(runs, config, score, status="finished", best=None):
    """A complete trial as the trainer leaves it, without training; `best` is the best score if it is not the last."""
    trial = Trial(runs, config)
    trial.path.mkdir(parents=True)
    (trial.path / "config.json").write_text(json.dumps(config.to_dict()))
    row = None if score is None else {"epoch": 1, "step": 1, "test_accuracy": score}
    top = row if best is None else {"epoch": 1, "step": 1, "test_accuracy": best}
    result = {"status": status, "step": 1, "parameters": 1, "score": "test_accuracy", "last": row, "best": top}
    trial.result_file.write_text(json.dumps(result))
    return trial


def data():
    return small_data()


def short(**changes):
    settings = {"dataset": "sweep_helpers:data", "model": "lab_helpers:network", "metric": "identity", "epochs": 20}
    return small_config(**{**settings, **changes})


def two_arms(**settings):
    arms = (Arm("SGD", short()), Arm("ours", short(metric="sobolev-tilde"), "SGD"))
    return Experiment(**{"name": "two", "question": "does it help?", "arms": arms, **settings})


def thirty():
    """Three arms, ten seeds: 30 trials of a few seconds."""
    return Experiment(
        name="thirty",
        question="short trials",
        arms=(
            Arm("SGD", short()),
            Arm("SobolevTilde", short(metric="sobolev-tilde"), "SGD"),
            Arm("ReweightedL2", short(metric="reweighted-l2"), "SGD"),
        ),
        seeds=Seeds(count=10),
    )


def six():
    arms = tuple(Arm(arm.label, replace(arm.config, epochs=2), arm.baseline) for arm in thirty().arms)
    return replace(thirty(), arms=arms, seeds=Seeds(count=2))


def failing():
    """An arm that cannot be trained beside one that can."""
    broken = Arm("broken", short(batch_size=7, model="sweep_helpers:broken_network"), "SGD")
    return Experiment(name="failing", question="one fails", arms=(*six().arms[:2], broken), seeds=Seeds(count=1))


def broken_network(channels, classes):
    raise RuntimeError("this network cannot be built")


def exiting_network(channels, classes):
    sys.exit(0)


def nine():
    return thirty().with_seeds(3)


def crash(job, environment, log):
    """A trial's process that writes two lines and is killed."""
    Path(log).write_text("first\nno torch here\n")
    os.kill(os.getpid(), signal.SIGKILL)
