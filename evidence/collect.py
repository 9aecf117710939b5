"""Take the complete trials of a folder of runs into evidence/trials, without their weights.

    python -m evidence.collect RUNS

Weights are too large to publish; what `riesz inspect` finds in them is kept as regularity.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

from evidence import TRIALS, results
from riesz_lab.errors import LabError
from riesz_lab.inspection import inspect
from riesz_lab.store import Store, StoredTrial
from riesz_lab.utils import atomic

FILES = ("config.json", "history.jsonl", "environment.json", "timing.jsonl", "updates.jsonl")


def collect(runs: Path, target: Path = TRIALS) -> list[Path]:
    """Copy every complete trial of the protocol that is not there yet; returns the new directories.

    Trials that it does not plan, such as those at a rate that a wider grid has not confirmed, are left where they are.
    """
    planned = results.read(runs, target).planned
    there = {trial.config.id: trial for trial in Store(target).trials}
    added = []
    for trial in Store(runs).trials:
        if trial.result is None or trial.config.id not in planned:
            continue
        stored = there.get(trial.config.id)
        if stored is None:
            goal = target / trial.path.parent.name / trial.path.name
            atomic.make_directory(goal.parent)
            atomic.write_directory(goal, partial(_copy, trial))
            added.append(goal)
        elif stored.result != trial.result:
            raise LabError(f"{trial.path}: expected the result that {stored.path} has, got another one")
    return added


def _copy(trial: StoredTrial, folder: Path) -> None:
    """Its result last: a copy that is cut off is no complete trial."""
    if (trial.path / "weights.safetensors").exists():
        (folder / "regularity.json").write_text(json.dumps(_regularity(trial), indent=1) + "\n")
    for name in (*FILES, trial.files.result_file.name):
        if (trial.path / name).exists():
            shutil.copyfile(trial.path / name, folder / name)


def _regularity(trial: StoredTrial) -> list[dict[str, object]]:
    """Per layer and direction: excess correlation of neighbours, its p against random order, and the common part."""
    inspection = inspect(trial.path / "weights.safetensors")
    return [
        {
            "layer": layer.name,
            "shape": list(layer.shape),
            "direction": direction,
            "order": regularity.order,
            "p": regularity.p,
            "level": regularity.level,
            "level_error": regularity.level_error,
        }
        for direction in ("output", "input")
        for layer, regularity in inspection.along(direction)
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.collect RUNS")
    new = collect(Path(sys.argv[1]))
    print(f"{len(new)} trials added to {TRIALS}")
