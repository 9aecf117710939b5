"""What `riesz inspect --gradients` predicts for the cells of part 1 of PROTOCOL-2.md, and how that agrees.

    python -m evidence.signs_predict RUNS

writes signs-predictions.json for the cells whose rate of SGD is known. It trains each network for a fifth of SGD's
steps (seed 900, rate held), looks at its gradients, and never at a test score.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence.signs import PART_1, TRIALS_2, Cell, chosen, scores
from evidence.signs_table import complete
from riesz_lab.config import Config
from riesz_lab.store import Store
from riesz_lab.utils import atomic

FILE = Path(__file__).parent / "signs-predictions.json"
ASKED = {"output -0.9": ("output", -0.9), "input -0.9": ("input", -0.9), "fan-in -0.9": ("fan_in", -0.9),
         "output +1": ("output", 1.0)}  # fmt: skip
"""By arm, the direction and the lam whose gain is its prediction."""


def early(config: Config) -> Config:
    """The training whose network is looked at."""
    assert config.train_limit is not None
    steps = config.epochs * config.train_limit // config.batch_size // 5
    return replace(config, recipe="signs-early", schedule="constant", max_steps=steps, seed=900)


def predict(cell: Cell, config: Config, runs: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    from riesz_lab import gradient_modes, models, train
    from riesz_lab.data.images import batches, catalog
    from riesz_lab.data.images.builtin import data_folder

    torch.set_num_threads(1)
    outcome = train(early(config), runs=runs)
    data = catalog.load(config.dataset, data_folder(None)).prepared(config)
    model = models.build(config.model, channels=data.channels, classes=data.classes, seed=900)
    weights = load_file(outcome.path / "weights.safetensors")
    model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
    source = batches.source(data.train, data, augment="none", device=torch.device("cpu"), channels_last=False)
    everything = torch.arange(len(source))
    images, labels = next(iter(source.batches([everything], None)))
    items = torch.utils.data.TensorDataset(images, labels)
    modes = gradient_modes(model, items, torch.nn.functional.cross_entropy, batch_size=config.batch_size)
    return {
        "predicted": {arm: modes.gain(*asked) for arm, asked in ASKED.items()},  # type: ignore[arg-type]
        "modes": [vars(mode) | {"gains": {str(k): v for k, v in mode.gains.items()}} for mode in
                  (*modes.layers, *modes.network)],
    }  # fmt: skip


def agreement(pairs: list[tuple[list[float], list[float]]], seed: int = 0, orders: int = 99_999) -> tuple[float, float]:
    """The mean of Spearman's correlation within cells, and its one-sided p against orders within cells.

    Args:
        pairs: by cell, the predicted and the observed differences of the same arms.
        seed, orders: of the random orders.
    """
    from scipy.stats import rankdata

    ranked = [tuple(rankdata(side) - (len(side) + 1) / 2 for side in pair) for pair in pairs]
    scale = [float(np.sqrt((a @ a) * (b @ b))) for a, b in ranked]
    observed = float(np.mean([a @ b / s for (a, b), s in zip(ranked, scale, strict=True)]))
    rng = np.random.default_rng(seed)
    shuffled = [rng.permuted(np.tile(a, (orders, 1)), axis=1) @ b / s for (a, b), s in zip(ranked, scale, strict=True)]
    at_least = int((np.mean(shuffled, axis=0) >= observed - 1e-12).sum())
    return observed, (at_least + 1) / (orders + 1)


def main(runs: Path) -> None:
    done = scores(Store(runs, TRIALS_2))
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    for cell in PART_1:
        config = chosen(cell, done).get("SGD")
        if config is not None and cell.name not in stored:
            stored[cell.name] = predict(cell, config, runs)
            atomic.write_json(FILE, stored)
            print(cell.name, stored[cell.name]["predicted"], flush=True)
    observed = {}
    for cell in PART_1:
        if cell.name in stored and (by_arm := complete(cell, done)) is not None:
            means = {arm: np.mean([score or 0.1 for score in by_seed.values()]) for arm, by_seed in by_arm.items()}
            observed[cell.name] = {arm: float(means[arm] - means["SGD"]) for arm in ASKED}
    if observed:
        pairs = [([stored[name]["predicted"][arm] for arm in ASKED], [observed[name][arm] for arm in ASKED])
                 for name in observed]  # fmt: skip
        signs = [np.sign(p) == np.sign(o) for predicted, seen in pairs for p, o in zip(predicted, seen, strict=True)]
        print("correlation within cells, p:", agreement(pairs), f"; signs right: {sum(signs)} of {len(signs)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.signs_predict RUNS")
    main(Path(sys.argv[1]))
