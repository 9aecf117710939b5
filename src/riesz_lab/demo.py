"""Train a small CNN on 4,000 real digits with SGD, ReweightedL2 and SobolevTilde, several seeds each, and compare.

Trials of one seed share their initial weights and the order of their images, so they are compared pair by pair. A trial
that is stored already is not trained again.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from riesz_lab import progress
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.recipes import recipe
from riesz_lab.store import Store, StoredTrial
from riesz_lab.tables import print_table
from riesz_lab.trainer import train

METRICS = {"SGD": "identity", "+ ReweightedL2": "reweighted-l2", "+ SobolevTilde": "sobolev-tilde"}
BASELINE = "SGD"


def demo(
    seeds: int = 5, runs: Path = Path("runs"), progress: Literal["auto", "live", "plain", "none"] = "auto"
) -> None:
    """Run the demo.

    Args:
        seeds: how many seeds per method.
        runs: folder of all trials.
        progress: live in a terminal, plain lines elsewhere, or none.
    """
    # One thread: batches this small gain little from a second, and lose much when another program wants that core.
    torch.set_num_threads(1)
    if seeds < 1:
        raise ConfigError(f"seeds={seeds} cannot be; allowed: 1 or more")
    configs = {
        (method, seed): replace(recipe("demo"), metric=metric, seed=seed)
        for seed in range(seeds)
        for method, metric in METRICS.items()
    }
    print(f"{len(configs)} trials: {len(METRICS)} methods, {seeds} seeds each")
    for number, ((method, seed), config) in enumerate(configs.items(), 1):
        _train_one(f"{number:>2}/{len(configs)} {method:<14} seed {seed}", config, runs, progress)
    store = Store(runs / "demo")
    stored = {trial.config.id: trial for trial in store.trials}
    print()
    report({key: stored[config.id] for key, config in configs.items()})
    print(f"Stored: {(runs / 'demo').resolve()}")


def _train_one(title: str, config: Config, runs: Path, kind: progress.Kind) -> None:
    show = progress.make(kind if kind != "plain" else "none", title, rows=False)
    outcome = train(config, runs=runs, show=show if isinstance(show, progress.Live) else None)
    row = outcome.result["last"]
    told = "diverged" if row is None else progress.told(row)
    if kind != "none":
        print(f"{title}  {told}" + ("" if outcome.trained else "  (stored before)"), flush=True)


def report(trials: dict[tuple[str, int], StoredTrial]) -> None:
    """The table and a sentence per method."""
    scores = {key: trial.score("last") for key, trial in trials.items()}
    rows, sentences = [], []
    for method in METRICS:
        mine = {seed: score for (name, seed), score in scores.items() if name == method and score is not None}
        if not mine:
            rows.append((method, "0", "all diverged", "", "", ""))
            continue
        best = [trial.score("best") for (name, _), trial in trials.items() if name == method]
        pairs = [
            score - base
            for seed, score in mine.items()
            if method != BASELINE and (base := scores[BASELINE, seed]) is not None
        ]
        wins = f"{sum(d > 0 for d in pairs)}/{len(pairs)}" if pairs else ""
        rows.append(
            (
                method,
                str(len(mine)),
                _spread(list(mine.values())),
                _spread([score for score in best if score is not None]),
                _spread(pairs, sign="+") if pairs else "",
                wins,
            )
        )
        if method != BASELINE:
            sentences.append(f"{method.removeprefix('+ ')}: {verdict(pairs)}")
    head = ("method", "seeds", "last test accuracy %", "best %", "difference to SGD", "better in")
    print_table(head, rows, right=(1, 2, 3, 4, 5))
    print("Mean over seeds and standard deviation; differences are taken seed by seed.")
    for sentence in sentences:
        print(sentence)


def verdict(pairs: list[float]) -> str:
    """What may be said of paired differences; with few seeds, often nothing."""
    if len(pairs) < 3:
        return f"{len(pairs)} pairs of trials are too few to say anything."
    from scipy import stats

    mean = statistics.mean(pairs)
    half = float(stats.t.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    interval = f"95% interval {100 * (mean - half):+.2f} to {100 * (mean + half):+.2f} points"
    if abs(mean) <= half:
        return f"no difference can be concluded from {len(pairs)} seeds ({interval})."
    return (
        f"{'better' if mean > 0 else 'worse'} than SGD by {abs(100 * mean):.2f} points here ({interval}); the learning "
        "rate is the same for all and was tuned for none, so this is no general claim."
    )


def _spread(values: list[float], sign: str = "") -> str:
    mean = 100 * statistics.mean(values)
    return f"{mean:{sign}.2f}" + (f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else "")
