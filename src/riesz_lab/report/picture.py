"""Figures as SVG, PNG or PDF for a paper, drawn by matplotlib: no browser is needed, and the same figure gives the same
bytes."""

from __future__ import annotations

import io
import textwrap
from typing import Any

import numpy as np

from riesz_lab.report.figure import PALETTE, Figure, Panel, Series

FORMATS = ("svg", "png", "pdf")
STYLES = {
    "svg.hashsalt": "riesz",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Names come from files: a dollar sign in them is a dollar sign.
    "text.parse_math": False,
}
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "D", "^", "v")
PANEL_INCHES = (4.0, 3.0)
MOST_COLUMNS = 3


def draw(figure: Figure, kind: str) -> bytes:
    """The picture's bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    columns = min(MOST_COLUMNS, max(1, len(figure.panels)))
    rows = -(-max(1, len(figure.panels)) // columns)
    with mpl.rc_context(STYLES):
        canvas = Canvas(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), layout="constrained")
        axes = canvas.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(figure.panels) :]:
            axis.set_axis_off()
        for axis, panel in zip(axes, figure.panels, strict=False):
            _panel(canvas, axis, panel)
        _legend(canvas, figure)
        buffer = io.BytesIO()
        # Without a date the picture depends on the figure alone.
        stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        canvas.savefig(buffer, format=kind, dpi=200, metadata=stamp)
    return buffer.getvalue()


def _panel(canvas: Any, axis: Any, panel: Panel) -> None:
    axis.set_title(textwrap.fill(panel.title, 46), fontsize=9)
    if panel.image is not None:
        largest = float(np.abs(panel.image.z).max(initial=0.0)) or 1.0
        shown = axis.imshow(panel.image.z, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
        canvas.colorbar(shown, ax=axis)
        axis.set(xlabel=panel.image.columns, ylabel=panel.image.rows)
        return
    bars = [series for series in panel.series if series.kind == "bars"]
    if panel.sideways:
        _sideways(axis, panel)
        return
    for series in panel.series:
        _series(axis, series, bars)
    if panel.zero:
        axis.axhline(0, color="#888888", linewidth=0.6)
    axis.set(xlabel=panel.x, ylabel=panel.y)
    if panel.y_range is not None:
        axis.set_ylim(*panel.y_range)
    if panel.x == "epoch":
        axis.xaxis.get_major_locator().set_params(integer=True)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.log_y:
        axis.set_yscale("log")
    if any(isinstance(value, str) for series in panel.series for value in series.x):
        axis.tick_params(axis="x", rotation=30)
        for label in axis.get_xticklabels():
            label.set_horizontalalignment("right")


def _sideways(axis: Any, panel: Panel) -> None:
    for series in panel.series:
        y = _floats(series.y)
        errors = None
        if series.low is not None and series.high is not None:
            errors = np.nan_to_num(np.stack([y - _floats(series.low), _floats(series.high) - y])).clip(0)
        marker, color = MARKERS[series.dash % len(MARKERS)], PALETTE[series.color % len(PALETTE)]
        axis.errorbar(
            y, list(series.x), xerr=errors, fmt=marker, color=color, markersize=4, capsize=2, label=series.name
        )
    if panel.zero:
        axis.axvline(0, color="#888888", linewidth=0.6)
    if panel.log_y:
        axis.set_xscale("log")
    axis.invert_yaxis()
    # Long names leave the axis too narrow for its label in one line.
    axis.set(xlabel=textwrap.fill(panel.y, 24))
    axis.tick_params(axis="y", labelsize=7)


def _series(axis: Any, series: Series, bars: list[Series]) -> None:
    color = PALETTE[series.color % len(PALETTE)]
    y = _floats(series.y)
    low, high = (None if ends is None else _floats(ends) for ends in (series.low, series.high))
    if series.kind == "line":
        axis.plot(series.x, y, LINES[series.dash % len(LINES)], color=color, linewidth=1.5, label=series.name)
        if low is not None and high is not None:
            axis.fill_between(series.x, low, high, color=color, alpha=0.18, linewidth=0)
        return
    errors = None if low is None or high is None else np.nan_to_num(np.stack([y - low, high - y])).clip(0)
    if series.kind == "points":
        marker = MARKERS[series.dash % len(MARKERS)]
        axis.errorbar(series.x, y, errors, fmt=marker, color=color, markersize=4, capsize=2, label=series.name)
        return
    _bars(axis, series, bars, y, errors)


def _bars(axis: Any, series: Series, bars: list[Series], y: Any, errors: Any) -> None:
    """Bars of one label stand side by side; labels that only one series has need no room for others."""
    labels = list(dict.fromkeys(label for one in bars for label in one.x))
    shared = len(labels) < sum(len(one.x) for one in bars)
    width = 0.8 / len(bars) if shared else 0.8
    text = any(isinstance(label, str) for label in labels)
    places = {label: float(place) if text else float(label) for place, label in enumerate(labels)}
    step = 1.0 if text else min(np.diff(sorted(places.values())), default=1.0)
    offset = (bars.index(series) - (len(bars) - 1) / 2) * width * step if shared else 0.0
    x = [places[label] + offset for label in series.x]
    axis.bar(x, y, width * step, yerr=errors, color=PALETTE[series.color % len(PALETTE)], capsize=2, label=series.name)
    if text:
        axis.set_xticks(list(places.values()), labels)


def _legend(canvas: Any, figure: Figure) -> None:
    found: dict[str, Any] = {}
    for axis in canvas.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if len(found) > 1:
        # About 55 letters fit below a panel; a sample of the line takes eight.
        columns = int(55 * min(MOST_COLUMNS, len(figure.panels)) // (max(map(len, found)) + 8))
        ncols = min(max(1, columns), len(found))
        canvas.legend(found.values(), found.keys(), loc="outside lower center", ncols=ncols, frameon=False)


def _floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
