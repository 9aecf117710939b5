"""Part 5 of PROTOCOL-2.md: stored trials of the first protocol, read again. Not planned: no test counts.

python -m evidence.reread    writes REREAD.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import stats

import riesz
from evidence import TRIALS
from riesz_lab.config import Config
from riesz_lab.store import Store

FILE = Path(__file__).parent / "REREAD.md"


def interval(values: list[float]) -> tuple[float, float, float]:
    """The mean over seeds and its 95% interval."""
    mean = float(np.mean(values))
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def scores(trials: Path = TRIALS) -> dict[Config, float]:
    """The accuracy in points of every trial that finished, of those that compare metrics without a control."""
    found = {}
    for trial in Store(trials).trials:
        score = trial.score()
        if trial.status == "finished" and score is not None and trial.config.control == "none":
            found[trial.config] = 100 * score
    return found


def pooled(found: Mapping[Config, float], batch_size: int) -> dict[int, float]:
    """By seed, the mean difference from SGD over all rates and both metrics of the regimes."""
    chosen = {c: s for c, s in found.items() if c.recipe == "evidence-regimes" and c.batch_size == batch_size}
    plain = {(c.lr, c.seed): s for c, s in chosen.items() if c.metric == "identity"}
    differences = defaultdict(list)
    for config, score in chosen.items():
        if config.metric != "identity" and (config.lr, config.seed) in plain:
            differences[config.seed].append(score - plain[config.lr, config.seed])
    return {seed: float(np.mean(values)) for seed, values in sorted(differences.items())}


def slopes(found: Mapping[Config, float], recipe: str) -> dict[str, dict[int, float]]:
    """By metric and seed, the slope of accuracy over lam in points per unit, by least squares."""
    points: dict[str, dict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for config, score in found.items():
        if config.recipe != recipe or config.lr != 0.01 or config.momentum != 0.9 or config.hold_out:
            continue
        metric = riesz.metric(config.metric)
        if isinstance(metric, riesz.ReweightedL2):
            points["ReweightedL2"][config.seed][metric.lam] = score
        elif isinstance(metric, riesz.SobolevTilde) and metric.lam == 1:
            points["SobolevTilde, lam as scale"][config.seed][metric.scale] = score
        elif isinstance(metric, riesz.Identity):
            for name in ("ReweightedL2", "SobolevTilde, lam as scale"):
                points[name][config.seed][0.0] = score
    return {
        name: {seed: float(np.polyfit(list(by_lam), list(by_lam.values()), 1)[0]) for seed, by_lam in by_seed.items()}
        for name, by_seed in points.items()
    }


def page(trials: Path = TRIALS) -> str:
    found = scores(trials)
    rows = []
    for size in (8, 128):
        by_seed = pooled(found, size)
        rows.append((f"CIFAR-10, batch {size}: both metrics at lam = 1 minus SGD, all rates", "points", by_seed))
    for recipe, name in (("fashion-cnn", "Fashion-MNIST"), ("mnist-cnn", "MNIST")):
        for metric, by_seed in slopes(found, recipe).items():
            rows.append((f"{name}, {metric}: slope of accuracy over lam = 0, 1, 5, 20", "points per unit", by_seed))
    lines = [
        "# Stored trials, read again",
        "",
        "**Not planned.** These questions came after the trials had been seen, so no interval here is a test: they say",
        "where to look next, and nothing more. Each number is a mean over seeds of one number per seed, with a 95%",
        "interval. Computed by `python -m evidence.reread`.",
        "",
        "| what | unit | seeds | mean | 95% interval |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, unit, by_seed in rows:
        mean, low, high = interval(list(by_seed.values()))
        digits = 3 if "per" in unit else 2
        lines.append(
            f"| {what} | {unit} | {len(by_seed)} | {mean:+.{digits}f} | {low:+.{digits}f} to {high:+.{digits}f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(page())
    print(page())
