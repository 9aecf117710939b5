"""Update spectra over epochs: do the metrics work from coarse to fine, as the paper claims?

The mean frequency of an epoch's change of a weight is the power-weighted mean of its frequencies along the output axis,
0 for the mean over channels and 1 for alternating signs. White noise has about 0.5 x (1 - 1/n).
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from operator import mul
from typing import Any

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.data import Array, Methods, ReportData, align, main_methods
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.figures.epochs import band, dashes
from riesz_lab.report.labels import color, scale
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.statistics.comparison import Scores
from riesz_lab.store import StoredTrial
from riesz_lab.training.update_recorder import BINS, parts

MARGIN = 0.01
MAX_METHODS = 7


def spectra(data: ReportData) -> Figure | None:
    chosen = setting_with_updates(data)
    if chosen is None:
        return None
    base, methods = chosen
    frequencies = [0.0, *((b + 0.5) / BINS for b in range(BINS))]
    by_name, of_mean, by_frequency = [], [], []
    for (name, trials), dash in zip(methods.items(), dashes(methods).values(), strict=True):
        style: dict[str, Any] = {"color": color(trials[0].config), "dash": dash}
        by_name.append(band(name, *by_epoch(data, trials, mean_frequency), **style))
        of_mean.append(band(name, *by_epoch(data, trials, lambda row: row["spectrum"][0]), **style))
        _, shares_TEB = by_epoch(data, trials, _relative_power)
        last = shares_TEB[:, -1].mean(0).tolist()
        by_frequency.append(Series(name=name, x=frequencies, y=last, **style))
    text = "{}: mean frequency {:.3f} in the first, {:.3f} in the last epoch"
    changes = [text.format(series.name, series.y[0], series.y[-1]) for series in by_name]
    return Figure(
        name="spectra",
        title="Spectra of the updates along the output",
        caption="Of each epoch's change of the conv weights: its mean frequency along the output channels (0: all"
        " channels move alike; 1: neighbours move oppositely; coarse to fine would be a curve that rises), the share of"
        " its power in the mean over channels, and its power by frequency in the last epoch, relative to white noise."
        f" Mean over layers; bands are one standard deviation over seeds. {scale(base)}.",
        alt=f"{'; '.join(changes)}.",
        panels=[
            Panel(title="mean frequency", x="epoch", y="mean frequency", series=by_name),
            Panel(title="share of the mean over channels", x="epoch", y="share of power", series=of_mean),
            Panel(title="last epoch, by frequency", x="frequency", y="power / white noise's", series=by_frequency),
        ],
    )


def rises(data: ReportData) -> dict[str, Comparison]:
    """Per method, the mean frequency of the last epoch's updates against the first's, by trial. Higher is finer."""
    pairs = _ends(data).items()
    return holm({name: paired(first, last, margin=MARGIN, percent=False) for name, (first, last) in pairs})


def rises_beyond_plain(data: ReportData) -> dict[str, Comparison]:
    """Per method, how much more its mean frequency rises than the plain optimizer's, paired by seed."""
    _, methods = setting_with_updates(data) or (None, {})
    by_name = {
        name: {key: last[key] - start for key, start in first.items()} for name, (first, last) in _ends(data).items()
    }
    plain = next((name for name in by_name if methods[name][0].config.metric == "identity"), None)
    if plain is None:
        return {}
    base: Scores = {**by_name.pop(plain)}
    return holm({name: paired(base, {**each}, margin=MARGIN, percent=False) for name, each in by_name.items()})


def _ends(data: ReportData) -> dict[str, tuple[dict[Hashable, float], dict[Hashable, float]]]:
    """The mean frequency of the first and of the last epoch that all trials of all methods have, by method and seed."""
    _, methods = setting_with_updates(data) or (None, {})
    curves = {name: by_epoch(data, trials, mean_frequency) for name, trials in methods.items()}
    common = sorted(set.intersection(*(set(epochs) for epochs, _ in curves.values()))) if curves else []
    if len(common) < 2:
        return {}
    ends = {}
    for name, (epochs, values_TE) in curves.items():
        keys: list[Hashable] = [
            (trial.config.effective_init_seed, trial.config.effective_data_seed) for trial in methods[name]
        ]
        first, last = (values_TE[:, epochs.index(epoch)].tolist() for epoch in (common[0], common[-1]))
        ends[name] = (dict(zip(keys, first, strict=True)), dict(zip(keys, last, strict=True)))
    return ends


def setting_with_updates(data: ReportData) -> tuple[Config, Methods] | None:
    """The setting with most methods whose trials stored their updates."""
    settings = [(base, main_methods(methods, MAX_METHODS)) for base, methods in data.settings_with("updates_file")]
    # Files are read from the best setting on, until one has usable rows.
    for base, methods in sorted(settings, key=lambda pair: (-len(pair[1]), -sum(map(len, pair[1].values())))):
        usable = {
            name: kept
            for name, trials in methods.items()
            if (kept := [trial for trial in trials if any(map(layers_of, data.files.rows(trial, "updates")))])
        }
        if usable:
            return base, usable
    return None


def by_epoch(
    data: ReportData, trials: list[StoredTrial], value: Callable[[dict[str, Any]], float | Array]
) -> tuple[list[float], Array]:
    """A value of each layer's row, mean over layers, by trial and epoch; epochs that all trials have."""
    return align(
        {
            row["epoch"]: np.mean(np.array([value(layer) for layer in layers.values()]), axis=0)
            for row in data.files.rows(trial, "updates")
            if (layers := layers_of(row))
        }
        for trial in trials
    )


def layers_of(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The layers in a line of updates.jsonl; malformed ones are left out."""
    layers = row.get("layers")
    return {name: layer for name, layer in layers.items() if _is_valid(layer)} if isinstance(layers, dict) else {}


def mean_frequency(layer: dict[str, Any]) -> float:
    return float(sum(map(mul, layer["spectrum"], _centres(layer["n"]))))


@lru_cache(maxsize=1024)
def _centres(n: int) -> tuple[float, ...]:
    """The mean frequency of each part of a spectrum, 1 for the highest."""
    return (0.0, *(sum(part) / len(part) / (n // 2) if part else 0.0 for part in parts(n)))


def _relative_power(layer: dict[str, Any]) -> Array:
    """Power relative to white noise, which has the same in each of the n modes; empty parts count as 1."""
    n = layer["n"]
    modes = [1.0, *(sum(1.0 if 2 * k == n else 2.0 for k in part) for part in parts(n))]
    pairs = zip(layer["spectrum"], modes, strict=True)
    return np.array([share * n / count if count else 1.0 for share, count in pairs])


def _is_valid(layer: object) -> bool:
    """Whether a layer is as the update recorder writes it, with numbers throughout."""
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
