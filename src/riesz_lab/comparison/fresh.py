"""Stored trials that are trained anew: each stays on disk, out of the way, until the new one is complete.

    RUNS/set-aside/<recipe>/<trial>/before

Whatever ends the training, the next call puts back what was not replaced.
"""

import shutil
from pathlib import Path

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
    """Remove the former trial if the new one is complete, else put it back."""
    before = _place(trial, runs)
    if not before.exists():
        return
    if trial.result_file.exists():
        shutil.rmtree(before)
        return
    shutil.rmtree(trial.path, ignore_errors=True)
    before.rename(trial.path)


def _place(trial: Trial, runs: Path) -> Path:
    return runs / ASIDE / trial.path.parent.name / trial.path.name / "before"
