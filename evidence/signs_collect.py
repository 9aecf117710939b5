"""Take the complete trials of PROTOCOL-2.md into evidence/trials-2, without their weights.

    python -m evidence.signs_collect RUNS

`digest.txt` stands for all scores: a test computes it again.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import partial
from pathlib import Path

from evidence.signs import TRIALS_2
from riesz_lab.errors import LabError
from riesz_lab.store import Store, StoredTrial
from riesz_lab.utils import atomic

FILES = ("config.json", "history.jsonl", "environment.json", "result.json")
"""The result last: a copy that is cut off is no complete trial."""
RECIPES = ("signs", "signs-resnet", "signs-claim")


def collect(runs: Path, target: Path = TRIALS_2) -> list[Path]:
    """Copy every complete trial that is not there yet; returns the new directories."""
    there = {trial.config.id: trial for trial in Store(target).trials}
    added = []
    for trial in Store(runs).trials:
        if trial.result is None or trial.config.recipe not in RECIPES:
            continue
        stored = there.get(trial.config.id)
        if stored is None:
            goal = target / trial.path.parent.name / trial.path.name
            atomic.make_directory(goal.parent)
            atomic.write_directory(goal, partial(_copy, trial))
            added.append(goal)
        elif stored.result != trial.result:
            raise LabError(f"{trial.path}: expected the result that {stored.path} has, got another one")
    (target / "digest.txt").write_text(digest(target) + "\n")
    return added


def _copy(trial: StoredTrial, folder: Path) -> None:
    for name in FILES:
        shutil.copyfile(trial.path / name, folder / name)


def digest(target: Path = TRIALS_2) -> str:
    """A hash of the id, the status, the history and the score of every trial."""
    rows = sorted(
        f"{trial.config.id} {trial.status} {trial.score()!r} {trial.history()!r}" for trial in Store(target).trials
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.signs_collect RUNS")
    new = collect(Path(sys.argv[1]))
    print(f"{len(new)} trials added to {TRIALS_2}")
