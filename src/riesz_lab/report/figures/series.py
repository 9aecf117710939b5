"""Series that several figures share."""

from collections.abc import Iterable, Sequence
from typing import Any

from riesz_lab.config import Config
from riesz_lab.report.evidence import Array, Methods, ReportData, score_of
from riesz_lab.report.figure import Panel, Points, Series, series_around
from riesz_lab.report.labels import color, score_label
from riesz_lab.store.result import is_percent
from riesz_lab.utils.amounts import count

MAX_POINTS = 80
"""Points of a curve over epochs; longer ones are thinned to keep the page small."""


def band(name: str, x: Points, values_TX: Array, config: Config, times: float = 1.0, **style: Any) -> Series:
    """Mean over trials with a band of one standard deviation."""
    step = -(-len(x) // MAX_POINTS)
    x, values_TX = x[::-1][::step][::-1], values_TX[:, ::-1][:, ::step][:, ::-1]  # the last epoch stays
    spread_X = values_TX.std(0, ddof=1) * times if len(values_TX) > 1 else None
    note = f"one standard deviation, {count(len(values_TX), 'trial')}"
    return series_around(name, x, values_TX.mean(0) * times, spread_X, color=color(config), note=note, **style)


def dashes(methods: Iterable[str]) -> dict[str, int]:
    """A dash for each method, so that lines differ in more than colour, and show where they overlap."""
    return {name: (0, 1, 3)[index % 3] for index, name in enumerate(methods)}


def epoch_panels(evidence: ReportData, methods: Methods, keys: Sequence[str], prefix: str = "") -> list[Panel]:
    """Values of the history by epoch, one panel per key that has two epochs or more."""
    panels = []
    styles = dashes(methods)
    for key in keys:
        times, unit = (100.0, " in %") if is_percent(key, *score_of(methods)) else (1.0, "")
        series = []
        for name, trials in methods.items():
            epochs, values_TE = evidence.curve(trials, key)
            if len(epochs) > 1:
                series.append(band(name, epochs, values_TE, trials[0].config, times, dash=styles[name]))
        if series:
            label = score_label(key)
            panels.append(Panel(title=prefix + label, x="epoch", y=label + unit, series=series))
    return panels
