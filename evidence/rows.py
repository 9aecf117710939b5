"""What is read off the rows of a table."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator

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


def lengthening(row: ArmResult) -> tuple[float, float] | None:
    """The least and greatest factor by which the metric lengthens a layer's gradient: of all trials, medians over
    epochs."""
    by_layer: dict[tuple[Hashable, str], list[float]] = {}
    for seed, trial in row.trials.items():
        for epoch in trial.updates():
            for name, layer in epoch["layers"].items():
                if layer.get("ratio") is not None:  # null where a gradient was zero or not finite
                    by_layer.setdefault((seed, name), []).append(layer["ratio"])
    medians = list(map(statistics.median, by_layer.values()))
    return (min(medians), max(medians)) if medians else None
