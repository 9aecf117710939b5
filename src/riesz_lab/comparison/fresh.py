"""Stored trials that are trained anew: each stays on disk, out of the way, until the new one is complete.

    RUNS/set-aside/<recipe>/<trial>/before

Whatever ends the training, the next call puts back what was not replaced.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from riesz_lab.errors import BusyError
from riesz_lab.store.trial import Trial, lock
from riesz_lab.sweeps.running.pending import ASIDE


def move_aside(trial: Trial, runs: Path) -> None:
    """Make way for a new trial in place of a complete one."""
    if trial.result_file.exists():
        before = _place(trial, runs)
        before.parent.mkdir(parents=True, exist_ok=True)
        with lock(trial.path):
            trial.path.rename(before)


def settle(trial: Trial, runs: Path) -> None:
    """Remove the former trial if the new one is complete, else put it back; not while another process trains it."""
    before = _place(trial, runs)
    if not before.exists():
        return
    trial.path.mkdir(exist_ok=True)
    with suppress(BusyError), lock(trial.path):
        if trial.result_file.exists():
            shutil.rmtree(before)
        else:
            shutil.rmtree(trial.path)
            before.rename(trial.path)


def _place(trial: Trial, runs: Path) -> Path:
    return runs / ASIDE / trial.path.parent.name / trial.path.name / "before"
