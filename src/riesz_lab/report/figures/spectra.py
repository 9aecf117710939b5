"""Update spectra over epochs: do the metrics work from coarse to fine, as the paper claims?

The mean frequency of an epoch's change of a weight is the power-weighted mean of its frequencies along the output axis,
0 for the mean over channels and 1 for alternating signs. White noise has about 0.5 x (1 - 1/n).
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from typing import Any

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.evidence import Array, Evidence, Methods, band, main_methods, styles
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.labels import color, scale
from riesz_lab.statistics import Comparison, paired
from riesz_lab.training.update_recorder import BINS, parts

MARGIN = 0.01
MOST_METHODS = 7


def spectra(evidence: Evidence) -> Figure | None:
    chosen = setting(evidence)
    if chosen is None:
        return None
    base, methods = chosen
    dashes = styles(methods)
    over_epochs, of_mean, first_last = [], [], []
    for name, trials in methods.items():
        epochs, values_TE = by_epoch(evidence, trials, mean_frequency)
        over_epochs.append(band(name, epochs, values_TE, trials[0].config, **dashes[name]))
        epochs, values_TE = by_epoch(evidence, trials, lambda row: _share(row, 0))
        of_mean.append(band(name, epochs, values_TE, trials[0].config, **dashes[name]))
        _, shares_TEB = by_epoch(evidence, trials, _shares)
        frequencies = [0.0, *((b + 0.5) / BINS for b in range(BINS))]
        last = shares_TEB[:, -1].mean(0)
        first_last.append(
            Series(name=name, x=frequencies, y=last.tolist(), color=color(trials[0].config), **dashes[name])
        )
    return Figure(
        name="spectra",
        title="Spectra of the updates along the output",
        caption="Of each epoch's change of the conv weights: its mean frequency along the output channels (0: all"
        " channels move alike; 1: neighbours move oppositely; coarse to fine would be a curve that rises), the share of"
        " its power in the mean over channels, and its power by frequency in the last epoch, relative to white noise."
        f" Mean over layers; bands are one standard deviation over seeds. {scale(base)}.",
        alt="; ".join(f"{one.name}: mean frequency {one.y[0]:.3f} in the first, {one.y[-1]:.3f} in the last epoch"
                      for one in over_epochs) + ".",
        panels=[
            Panel(title="mean frequency", x="epoch", y="mean frequency", series=over_epochs),
            Panel(title="share of the mean over channels", x="epoch", y="share of power", series=of_mean),
            Panel(title="last epoch, by frequency", x="frequency", y="power / white noise's", series=first_last),
        ],
    )  # fmt: skip


def coarse_to_fine(evidence: Evidence) -> dict[str, Comparison]:
    """Per method, the last epoch's mean frequency against the first's, paired by trial. Higher is finer."""
    chosen = setting(evidence)
    if chosen is None:
        return {}
    found = {}
    for name, trials in chosen[1].items():
        epochs, values_TE = by_epoch(evidence, trials, mean_frequency)
        if len(epochs) > 1:
            first, last = dict(enumerate(values_TE[:, 0].tolist())), dict(enumerate(values_TE[:, -1].tolist()))
            found[name] = paired(first, last, margin=MARGIN, percent=False)
    return found


def setting(evidence: Evidence) -> tuple[Config, Methods] | None:
    """The setting with most methods whose trials stored their updates."""
    found = []
    for base, methods in evidence.settings.items():
        there = {
            name: [trial for trial in trials if (trial.path / "updates.jsonl").exists()]
            for name, trials in main_methods(methods, MOST_METHODS).items()
        }
        found.append((base, {name: trials for name, trials in there.items() if trials}))
    # Files are read from the best setting on, until one holds what it should.
    for base, there in sorted(found, key=lambda pair: (-len(pair[1]), -sum(map(len, pair[1].values())))):
        whole = {
            name: kept
            for name, trials in there.items()
            if (kept := [one for one in trials if any(map(layers_of, evidence.updates(one)))])
        }
        if whole:
            return base, whole
    return None


def by_epoch(evidence: Evidence, trials: list[Any], value: Any) -> tuple[list[float], Array]:
    """A value of each layer's row, mean over layers, by trial and epoch; epochs that all trials have."""
    tables: list[dict[int, Any]] = []
    for trial in trials:
        mine: dict[int, Any] = {}
        for row in evidence.updates(trial):
            found = [value(layer) for layer in layers_of(row).values()]
            if found:
                mine[row["epoch"]] = np.mean(found, axis=0)
        if mine:
            tables.append(mine)
    if not tables:
        return [], np.zeros((0, 0))
    epochs = sorted(set.intersection(*(set(table) for table in tables)))
    return [float(epoch) for epoch in epochs], np.array([[table[epoch] for epoch in epochs] for table in tables])


def layers_of(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a line of updates.jsonl says of each layer; what is not as `updates` writes it is left out."""
    layers = row.get("layers")
    return {name: layer for name, layer in layers.items() if _whole(layer)} if isinstance(layers, dict) else {}


def mean_frequency(layer: dict[str, Any]) -> float:
    return float(sum(map(mul, layer["spectrum"], _centres(layer["n"]))))


@lru_cache(maxsize=1024)
def _centres(n: int) -> tuple[float, ...]:
    """The mean frequency of each part of a spectrum, 1 for the highest there is."""
    return (0.0, *(sum(part) / len(part) / (n // 2) if part else 0.0 for part in parts(n)))


def _share(layer: dict[str, Any], index: int) -> float:
    return float(layer["spectrum"][index])


def _shares(layer: dict[str, Any]) -> Array:
    """Power relative to white noise, which gives every one of the n modes the same; empty parts count as 1."""
    n = layer["n"]
    modes = [1.0, *(sum(1.0 if 2 * k == n else 2.0 for k in part) for part in parts(n))]
    pairs = zip(layer["spectrum"], modes, strict=True)
    return np.array([share * n / count if count else 1.0 for share, count in pairs])


def _whole(layer: object) -> bool:
    """Whether a row of a file is what `updates` writes, with numbers throughout."""
    if not isinstance(layer, dict):
        return False
    n, spectrum = layer.get("n"), layer.get("spectrum")
    return (
        isinstance(n, int)
        and 2 <= n <= 2**20
        and isinstance(spectrum, list)
        and len(spectrum) == BINS + 1
        and all(isinstance(share, int | float) for share in spectrum)
    )
