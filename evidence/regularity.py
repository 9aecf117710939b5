"""What trained weights show along the output channels: correlation of neighbours, and of all filters."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

import riesz

Layers = Sequence[dict[str, Any]]
"""One entry per layer and seed, as evidence.collect stores it."""

CHANCE = 0.05
"""The share of layers whose p lies below it if the order of channels means nothing."""

HEADER = (
    "## Regularity of trained weights",
    "",
    "Along the output channels, over layers and seeds: *order* is the correlation of neighbouring filters beyond"
    " that of all pairs, which a Sobolev metric assumes; *level* is the correlation of all pairs, which re-weighted"
    " L2 assumes. In random order of the channels, order is zero on average; the last column counts layers in which"
    " p < 0.05 against random orders (5% are expected by chance).",
    "",
    "| recipe | metric | layers | mean order | mean level | p < 0.05 |",
    "| --- | --- | --- | --- | --- | --- |",
)


def by_method(trials: Path) -> dict[tuple[str, str], Layers]:
    """The layers along the output channels, by recipe and metric."""
    layers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for file in sorted(trials.glob("*/*/regularity.json")):
        config = json.loads((file.parent / "config.json").read_text())
        along_output = [layer for layer in json.loads(file.read_text()) if layer["direction"] == "output"]
        layers.setdefault((config["recipe"], config["metric"]), []).extend(along_output)
    return dict(layers)


def verdict(measured: Mapping[tuple[str, str], Layers]) -> str:
    """By method, in how many layers neighbours are more alike than in random order, against chance's share."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for (_, text), layers in measured.items():
        kind = type(riesz.metric(text)).__name__
        by_kind.setdefault("SGD" if kind == "Identity" else kind, []).extend(layers)
    parts = []
    for kind, layers in sorted(by_kind.items()):
        small = sum(layer["p"] < CHANCE for layer in layers)
        p = binomtest(small, len(layers), CHANCE, alternative="greater").pvalue
        parts.append(f"{kind}: in {small} of {len(layers)} layers (p = {p:.2g} against chance)")
    return "<br>".join(parts)


def section(measured: Mapping[tuple[str, str], Layers]) -> list[str]:
    """The table of the page."""
    if not measured:
        return []
    lines = [*HEADER]
    for (recipe, metric), layers in measured.items():
        order, level = (statistics.fmean(layer[key] for layer in layers) for key in ("order", "level"))
        small = sum(layer["p"] < CHANCE for layer in layers)
        lines.append(f"| {recipe} | {metric} | {len(layers)} | {order:+.4f} | {level:+.4f} | {small} |")
    return [*lines, ""]
