"""What is read off the rows of a table."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator

import riesz
from riesz_lab.config import Config
from riesz_lab.statistics import Comparison
from riesz_lab.sweeps import ArmResult, SweepResult


def metrics(table: SweepResult) -> Iterator[ArmResult]:
    """The rows that are compared and have a metric; SGD at another rate is none."""
    return (row for row in table.rows.values() if row.comparison is not None and row.arm.config.metric != "identity")


def gains(table: SweepResult, row: ArmResult) -> dict[Hashable, float | None]:
    """By seed, the difference to the baseline; None where either trial diverged."""
    assert row.arm.baseline is not None
    base = table.rows[row.arm.baseline].scores
    return {
        seed: None if score is None or base[seed] is None else score - base[seed]  # type: ignore[operator]
        for seed, score in row.scores.items()
        if seed in base
    }


def compared(row: ArmResult) -> Comparison:
    assert row.comparison is not None
    return row.comparison


def train_accuracy(row: ArmResult) -> float | None:
    """The mean accuracy on training images in the last epoch, as seen while training."""
    results = (trial.result for trial in row.trials.values() if trial.status == "finished")
    known = [one.last["train_accuracy"] for one in results if one and one.last and "train_accuracy" in one.last]
    return statistics.fmean(known) if known else None


def strength(config: Config) -> float:
    """lam as the protocol counts it: that of ReweightedL2, the scale of SobolevTilde, 0 of plain SGD."""
    metric = riesz.metric(config.metric)
    if isinstance(metric, riesz.ReweightedL2):
        return metric.lam
    return metric.scale if isinstance(metric, riesz.SobolevTilde) else 0.0


def lengthening(row: ArmResult) -> tuple[float, float] | None:
    """The factor by which the metric lengthens the gradient of a layer at the last step of an epoch: the least and
    greatest median over epochs, of all layers and trials."""
    by_layer: dict[tuple[Hashable, str], list[float]] = {}
    for seed, trial in row.trials.items():
        for epoch in trial.updates():
            for name, layer in epoch["layers"].items():
                if layer.get("ratio") is not None:  # null where a gradient was zero or not finite
                    by_layer.setdefault((seed, name), []).append(layer["ratio"])
    medians = list(map(statistics.median, by_layer.values()))
    return (min(medians), max(medians)) if medians else None
