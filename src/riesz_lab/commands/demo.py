"""Train a small CNN on 4,000 real digits with SGD, ReweightedL2 and SobolevTilde, several seeds each, and report.

Trials of one seed share their initial weights and the order of their images, so they are compared pair by pair. Stored
trials are not trained again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from riesz_lab.commands.parsing import parse
from riesz_lab.commands.report import write
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.recipes import recipe
from riesz_lab.report import page, report
from riesz_lab.report.comparison_view import format_comparisons
from riesz_lab.store.trial import Trial
from riesz_lab.training import progress
from riesz_lab.training.trainer import train
from riesz_lab.utils.malloc import keep_freed_memory

METRICS = {"SGD": "identity", "ReweightedL2": "reweighted-l2", "SobolevTilde": "sobolev-tilde"}


def run(arguments: list[str]) -> int:
    keep_freed_memory()
    parse(demo, arguments, prog="riesz demo", description=__doc__)
    return 0


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
        raise ConfigError(f"seeds: expected 1 or more, got {seeds}")
    configs = {
        (method, seed): replace(recipe("demo"), metric=metric, seed=seed)
        for seed in range(seeds)
        for method, metric in METRICS.items()
    }
    print(f"{len(configs)} trials: {len(METRICS)} methods, {seeds} seeds each")
    for number, ((method, seed), config) in enumerate(configs.items(), 1):
        _train_one(f"{number:>2}/{len(configs)} {method:<12} seed {seed}", config, runs, progress)
    evidence = report.read(runs / "demo")
    for table in evidence.tables:
        print(f"\n{format_comparisons(table)}")
    target = runs / "demo" / "report.html"
    print(f"\nStored: {(runs / 'demo').resolve()}")
    write(target, page.html(report.build(evidence, target.parent, "The demo of riesz")))


def _train_one(title: str, config: Config, runs: Path, kind: progress.Kind) -> None:
    show = progress.make(kind if kind != "plain" else "none", title, rows=False)
    outcome = train(config, runs=runs, show=show if isinstance(show, progress.Live) else None)
    Trial(runs, config).add_sweep("demo", len(METRICS) - 1)
    row = outcome.result.last
    scores = outcome.result.status if row is None else progress.format_scores(row)
    if kind != "none":
        print(f"{title}  {scores}" + ("" if outcome.trained else "  (stored before)"), flush=True)
