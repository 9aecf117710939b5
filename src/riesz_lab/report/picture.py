"""Figures as SVG, PNG or PDF for a paper, drawn by matplotlib; the same figure gives the same bytes."""

import io
import textwrap
from typing import Any

import numpy as np

from riesz_lab.report.figure import Array, Figure, Image, Panel, Series, Values

FORMATS = ("svg", "png", "pdf")
STYLES: dict[Any, Any] = {
    "svg.hashsalt": "riesz",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Names come from files: a dollar sign in them starts no formula.
    "text.parse_math": False,
}
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "D", "^", "v")
MOST_MARKED = 30
"""Points of a line that are marked, at most."""
PANEL_INCHES = (4.0, 3.0)


def draw(figure: Figure, kind: str) -> bytes:
    """The picture's bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, max(1, len(figure.panels)))
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
        _image(canvas, axis, panel.image)
        return
    bars = [series for series in panel.series if series.kind == "bars"]
    for series in panel.series:
        if series.kind == "line":
            _line(axis, series)
        elif series.kind == "points":
            _points(axis, series, panel.sideways)
        else:
            _bars(axis, series, bars)
    (_label_sideways if panel.sideways else _label_axes)(axis, panel)


def _image(canvas: Any, axis: Any, image: Image) -> None:
    from matplotlib.patches import Rectangle

    shown = axis.imshow(image.z, cmap="RdBu_r", vmin=-image.end, vmax=image.end, aspect="auto")
    # Pointed ends: there are values beyond the scale.
    canvas.colorbar(shown, ax=axis, extend="both" if (abs(image.z) > image.end).any() else "neither")
    axis.set(xlabel=image.columns, ylabel=image.rows)
    if image.column_names:
        axis.set_xticks(range(len(image.column_names)), image.column_names)
    if image.row_names:
        axis.set_yticks(range(len(image.row_names)), image.row_names)
    for row, column in image.hatched_cells():
        corner = (column - 0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="#9aa3ad", linewidth=0))
    for row, texts in enumerate(image.texts):
        for column, text in enumerate(texts):
            strong = abs(image.z[row, column]) > 0.6 * image.end
            # A ground of its own keeps the text readable on hatching.
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            hatched = image.hatched is not None and bool(image.hatched[row, column])
            style = {"bbox": box} if hatched else {"color": "white" if strong else "black"}
            axis.text(column, row, text, ha="center", va="center", fontsize=7, **style)


def _label_axes(axis: Any, panel: Panel) -> None:
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


def _label_sideways(axis: Any, panel: Panel) -> None:
    if panel.zero:
        axis.axvline(0, color="#888888", linewidth=0.6)
    if panel.log_y:
        axis.set_xscale("log")
    else:
        axis.locator_params(axis="x", nbins=4)
    axis.invert_yaxis()
    # Long names leave the axis too narrow for its label in one line, and for more ticks.
    axis.set(xlabel=textwrap.fill(panel.y, 24))
    axis.tick_params(axis="y", labelsize=7)


def _line(axis: Any, series: Series) -> None:
    style = {"color": series.hex_color, "linewidth": 1.5, "label": series.name}
    if 2 < len(series.x) <= MOST_MARKED:  # what was measured, and what lies between
        style |= {"marker": "o", "markersize": 3}
    axis.plot(series.x, _floats(series.y), LINES[series.dash % len(LINES)], **style)
    if series.low is not None and series.high is not None:
        low, high = _floats(series.low), _floats(series.high)
        axis.fill_between(series.x, low, high, color=series.hex_color, alpha=0.18, linewidth=0)


def _points(axis: Any, series: Series, sideways: bool) -> None:
    marker = MARKERS[series.dash % len(MARKERS)]
    style = {"fmt": marker, "color": series.hex_color, "markersize": 4, "capsize": 2, "label": series.name}
    if sideways:
        axis.errorbar(_floats(series.y), list(series.x), xerr=_errors(series), **style)
    else:
        axis.errorbar(series.x, _floats(series.y), _errors(series), **style)


def _bars(axis: Any, series: Series, bars: list[Series]) -> None:
    """Bars of one label stand side by side; labels of only one series need no room for others."""
    labels = list(dict.fromkeys(label for other in bars for label in other.x))
    shared = len(labels) < sum(len(other.x) for other in bars)
    width = 0.8 / len(bars) if shared else 0.8
    text = any(isinstance(label, str) for label in labels)
    places = {label: float(place) if text else float(label) for place, label in enumerate(labels)}
    step = 1.0 if text else min(np.diff(sorted(places.values())), default=1.0)
    offset = (bars.index(series) - (len(bars) - 1) / 2) * width * step if shared else 0.0
    x = [places[label] + offset for label in series.x]
    style = {"color": series.hex_color, "capsize": 2, "label": series.name}
    axis.bar(x, _floats(series.y), width * step, yerr=_errors(series), **style)
    if text:
        axis.set_xticks(list(places.values()), labels)


def _legend(canvas: Any, figure: Figure) -> None:
    handles: dict[str, Any] = {}
    for axis in canvas.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if len(handles) > 1:
        # About 55 letters fit below a panel; a sample of the line takes eight.
        columns = int(55 * min(figure.columns, len(figure.panels)) // (max(map(len, handles)) + 8))
        ncols = min(max(1, columns), len(handles))
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols, frameon=False)


def _errors(series: Series) -> Array | None:
    """Lengths of error bars below and above."""
    if series.low is None or series.high is None:
        return None
    y = _floats(series.y)
    return np.nan_to_num(np.stack([y - _floats(series.low), _floats(series.high) - y])).clip(0)


def _floats(values: Values) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
