"""What trained weights show along the output channels: correlation of neighbours, and of all filters.

Trials of one seed start from the same weights, so a method is compared with SGD seed by seed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from riesz_lab.statistics import Comparison, holm, paired

Method = tuple[str, str]
"""Recipe and rates, and metric."""

Layers = Mapping[int, list[dict[str, Any]]]
"""The layers of a method's trials by seed, as evidence.collect stores them."""

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
    "| trials | metric | seeds | level | level minus SGD's | order | order minus SGD's |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def by_method(trials: Path) -> dict[Method, Layers]:
    """The layers along the output channels."""
    methods: dict[Method, dict[int, list[dict[str, Any]]]] = {}
    for file in sorted(trials.glob("*/*/regularity.json")):
        config = json.loads((file.parent / "config.json").read_text())
        layers = [layer for layer in json.loads(file.read_text()) if layer["direction"] == "output"]
        setting = "{recipe}, batch {batch_size}, rate {lr:g}, momentum {momentum:g}".format_map(config)
        methods.setdefault((setting, config["metric"]), {})[config["seed"]] = layers
    return dict(methods)


def compare(measured: Mapping[Method, Layers]) -> dict[tuple[Method, str], Comparison]:
    """Level and order of each method against those of SGD under the same settings, by seed."""
    return holm(
        {
            (method, quantity): paired(
                _means(measured.get((method[0], "identity"), {}), quantity), _means(layers, quantity), margin=MARGIN
            )
            for method, layers in measured.items()
            if method[1] != "identity"
            for quantity in QUANTITIES
        }
    )


def verdict(measured: Mapping[Method, Layers]) -> str:
    """How many comparisons with SGD came out which way."""
    compared = compare(measured)
    parts = []
    for quantity, meaning in QUANTITIES.items():
        verdicts = [_word(comparison) for (_, name), comparison in compared.items() if name == quantity]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        parts.append(f"{meaning} against SGD's: {counts or 'none'}")
    return "<br>".join(parts)


def section(measured: Mapping[Method, Layers]) -> list[str]:
    """The table of the page."""
    if not measured:
        return []
    compared = compare(measured)
    lines = [*HEADER]
    for method, layers in measured.items():
        cells = [*method, str(len(layers))]
        for quantity in QUANTITIES:
            cells.append(f"{statistics.fmean(_means(layers, quantity).values()):+.4f}")
            cells.append(_cell(compared.get((method, quantity))))
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


def _means(layers: Layers, quantity: str) -> dict[int, float]:
    """By seed, the mean over layers."""
    return {seed: statistics.fmean(layer[quantity] for layer in of_seed) for seed, of_seed in layers.items()}
