"""Take the complete trials of a folder of runs into evidence/trials, without their weights.

    python -m evidence.collect RUNS

Weights are too large to publish; what `riesz inspect` finds in them is kept as regularity.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from evidence import TRIALS
from riesz_lab.inspection import inspect
from riesz_lab.store import Store, StoredTrial

FILES = ("config.json", "result.json", "history.jsonl", "environment.json", "timing.jsonl", "updates.jsonl")
SWEEPS_FILE = "sweeps.json"
"""The sweeps of a trial, by which reports know how many comparisons to correct for; a later sweep may be added."""


def collect(runs: Path, target: Path = TRIALS) -> list[Path]:
    """Copy every complete trial that is not there yet; returns the new directories."""
    added = []
    for trial in Store(runs).trials:
        goal = target / trial.path.parent.name / trial.path.name
        if trial.result is None:
            continue
        if goal.exists():
            _copy(trial.path / SWEEPS_FILE, goal)
            continue
        part = goal.with_name(goal.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name in (*FILES, SWEEPS_FILE):
            _copy(trial.path / name, part)
        if (trial.path / "weights.safetensors").exists():
            (part / "regularity.json").write_text(json.dumps(_regularity(trial), indent=1) + "\n")
        part.rename(goal)
        added.append(goal)
    return added


def _copy(file: Path, folder: Path) -> None:
    if file.exists():
        shutil.copyfile(file, folder / file.name)


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
