"""Stores without training: trials of real sweeps with made-up numbers, complete with histories, weights and updates."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from riesz_lab.experiments import experiment
from riesz_lab.store.files import append_row
from riesz_lab.store.trial import Trial
from riesz_lab.training.update_recorder import BINS

EVERY = (
    "table-cifar-mini", "lambda-mnist-mini", "lambda-fashion-mini", "directions-mini", "variance-mini",
    "regularity-mini", "curves-mini", "controls-mini", "voc-mini", "spade-mini", "regimes-mini",
)  # fmt: skip


def store_sweep(runs, name, trials=3, only=None):
    """Store the trials of a sweep; `only` limits the number of arms."""
    chosen = experiment(name).with_seeds(trials)
    chosen.write(Path(runs))
    for arm in chosen.arms[:only]:
        for config in chosen.configs(arm):
            store_trial(runs, config)
    return Path(runs)


def store_trial(runs, config, epochs=3, score=None, layer="conv1.weight"):
    """One complete trial. Its numbers follow from its id, so that a store is the same every time."""
    rng = np.random.default_rng(int(config.id, 16))
    trial = Trial(runs, config)
    trial.path.mkdir(parents=True, exist_ok=True)
    write_json(trial.path / "config.json", config.to_dict())
    key, base, better = {
        "segmentation": ("test_miou", 0.5, True),
        "generation": ("fid_proxy", 60.0, False),
    }.get(config.task, ("test_accuracy", 0.9, True))
    rows = []
    for epoch in range(1, epochs + 1):
        value = base * (1 + 0.01 * rng.normal() - 0.05 / epoch) if score is None else score
        row = {"epoch": epoch, "step": 10 * epoch, "lr": config.lr, "train_loss": 1 / epoch, key: float(value)}
        if config.task != "generation":
            gap = {"train_accuracy": 0.9 + 0.01 * epoch, "test_loss": 1.1 / epoch, "accuracy_gap": 0.15}
            row = {"test_accuracy": 0.8, **gap, **row}
        rows.append(row)
    trial.history_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    append_row(trial.timing_file, {"epoch": 1, "steps": 10, "step_ms": 5.0 + rng.random()})
    for epoch in range(1, epochs + 1):
        spectrum = rng.random(BINS + 1)
        layers = {layer: {"n": 16, "moved": 0.1, "spectrum": (spectrum / spectrum.sum()).tolist(), "ratio": 1.1}}
        append_row(trial.updates_file, {"epoch": epoch, "layers": layers})
    write_json(trial.path / "environment.json", [{"cpu": "a processor", "packages": {"torch": "2.13.0"}}])
    weight = torch.tensor(rng.normal(size=(16, 12, 3, 3)), dtype=torch.float32)
    result = {
        "status": "finished", "step": 30, "parameters": 1728, "score": key, "higher_is_better": better,
        "last": rows[-1], "best": rows[-1],
    }  # fmt: skip
    (trial.path / "weights.safetensors").write_bytes(save({layer: weight}))
    write_json(trial.path / "result.json", result)
    return trial.path


def change(path, name, **values):
    """Overwrite entries of a stored JSON file, without any check."""
    content = json.loads((path / name).read_text())
    write_json(path / name, {**content, **values})


def write_json(file, value):
    file.write_text(json.dumps(value))
