"""What trained weights show along the output channels: correlation of neighbours, and of all filters.

Trials of one seed start from the same weights, so a method is compared with SGD seed by seed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.sweeps import Arm, SweepResult

Layers = Mapping[Hashable, list[dict[str, Any]]]
"""The layers of an arm's trials by seed, as evidence.collect stores them."""

Arms = Mapping[str, tuple[Arm, Layers]]
"""The arms of a sweep, by label."""

QUANTITIES = {"level": "correlation of all filters", "order": "correlation of neighbours beyond it"}

MARGIN = 0.01
"""A difference in correlation that does not matter."""

WORDS = {"better": "higher", "worse": "lower"}
"""Verdicts on a correlation, which is neither good nor bad."""

HEADER = (
    "## Regularity of trained weights",
    "",
    "Along the output channels, mean over layers and seeds: *level* is the correlation of all pairs of filters, which"
    " re-weighted L2 assumes; *order* is the correlation of neighbours beyond it, which a Sobolev metric assumes, zero"
    " on average in random order of the channels. Trials of one seed start from the same weights, so both are compared"
    " with those of SGD seed by seed, with 95% intervals; verdicts are Holm-corrected.",
    "",
    "| sweep | arm | seeds | level | level minus SGD's | order | order minus SGD's |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def measure(tables: Iterable[SweepResult]) -> dict[str, Arms]:
    """The layers along the output channels, by sweep."""
    return {
        table.sweep.name.removeprefix("evidence-"): {
            label: (row.arm, {seed: of_seed for seed, trial in row.trials.items() if (of_seed := _layers(trial.path))})
            for label, row in table.rows.items()
        }
        for table in tables
    }


def _layers(trial: Path) -> list[dict[str, Any]]:
    """None of a trial that diverged."""
    file = trial / "regularity.json"
    stored = json.loads(file.read_text()) if file.exists() else []
    return [layer for layer in stored if layer["direction"] == "output"]


def compare(measured: Mapping[str, Arms]) -> dict[tuple[str, str, str], Comparison]:
    """By sweep, arm and quantity: each metric against its baseline, by seed."""
    return holm(
        {
            (name, label, quantity): paired(
                _means(arms[arm.baseline][1], quantity), _means(layers, quantity), margin=MARGIN
            )
            for name, arms in measured.items()
            for label, (arm, layers) in arms.items()
            if arm.baseline is not None and arm.config.metric != "identity"
            for quantity in QUANTITIES
        }
    )


def verdict(measured: Mapping[str, Arms]) -> str:
    """How many comparisons with SGD came out which way."""
    compared = compare(measured)
    parts = []
    for quantity, meaning in QUANTITIES.items():
        verdicts = [_word(one) for (_, _, name), one in compared.items() if name == quantity and one.n]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        parts.append(f"{meaning} against SGD's: {counts or 'none'}")
    return "<br>".join(parts)


def section(measured: Mapping[str, Arms]) -> list[str]:
    """The table of the page, of the arms that have trials."""
    compared = compare(measured)
    lines = [*HEADER]
    for name, arms in measured.items():
        for label, (_, layers) in arms.items():
            if not layers:
                continue
            cells = [name, label, str(len(layers))]
            for quantity in QUANTITIES:
                cells.append(f"{statistics.fmean(_means(layers, quantity).values()):+.4f}")
                cells.append(_cell(compared.get((name, label, quantity))))
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(comparison: Comparison | None) -> str:
    if comparison is None or not comparison.n:
        return ""
    ends = comparison.interval
    interval = f" ({ends[0]:+.4f} to {ends[1]:+.4f})" if ends else ""
    return f"{comparison.difference:+.4f}{interval}, {_word(comparison)}"


def _word(comparison: Comparison) -> str:
    return WORDS.get(comparison.verdict, comparison.verdict)


def _means(layers: Layers, quantity: str) -> dict[Hashable, float]:
    """By seed, the mean over layers."""
    return {seed: statistics.fmean(layer[quantity] for layer in of_seed) for seed, of_seed in layers.items()}
