"""Figures as plotly's JSON, one plot per panel. The page's script sets the colours of background, text and grid."""

import base64
import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from riesz_lab.report.figure import DASHES, Image, Panel, Series, Values, short

MOST_TICKS = 12


def plot(panel: Panel) -> dict[str, Any]:
    """The data and layout of a panel."""
    if panel.image is not None:
        return _image_plot(panel.image)
    traces = []
    for series in panel.series:
        traces += [*_band(series), _trace(series, panel.sideways)]
    labels = any(isinstance(value, str) for series in panel.series for value in series.x)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _text(panel.x)}, "type": "category" if labels else "log" if panel.log_x else "-"},
        "yaxis": {"title": {"text": _text(panel.y)}, "type": "log" if panel.log_y else "-"},
    }
    values = sorted({float(value) for series in panel.series for value in series.x}) if panel.log_x else []
    if 1 < len(values) <= MOST_TICKS:  # the values that were tried, not powers of ten
        layout["xaxis"] |= {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:g}" for value in values]}
    if panel.y_range is not None:
        layout["yaxis"]["range"] = list(panel.y_range)
    if panel.x == "epoch":
        most = max((len(series.x) for series in panel.series), default=0)
        layout["xaxis"] |= {"tickformat": "d"} | ({"dtick": 1} if most <= 12 else {})
    if panel.zero:
        layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "line": {"width": 1}}]
    if any(series.kind == "bars" for series in panel.series):
        layout["barmode"] = "group"
        if not labels:
            layout["xaxis"] |= {"nticks": 6, "tickmode": "auto"}
    if panel.log_y:
        layout["yaxis"]["dtick"] = 1
    return _transpose(traces, layout) if panel.sideways else {"data": traces, "layout": layout}


def _transpose(traces: list[dict[str, Any]], layout: dict[str, Any]) -> dict[str, Any]:
    """Exchange x and y, with the first label on top."""
    layout["xaxis"], layout["yaxis"] = layout["yaxis"], {**layout["xaxis"], "autorange": "reversed"}
    for shape in layout.get("shapes", ()):
        shape.update({"xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1})
    for trace in traces:
        trace["x"], trace["y"], trace["error_x"] = trace["y"], trace["x"], trace.pop("error_y")
    return {"data": traces, "layout": layout}


def _trace(series: Series, sideways: bool) -> dict[str, Any]:
    color, end = series.hex_color, f"<extra>{_text(series.name)}</extra>"
    point = "%{y}: %{x}" if sideways else "%{x}: %{y}"
    bounds = f"<br>%{{customdata[0]}} to %{{customdata[1]}} {_text(series.note)}"
    lows = [None] if series.low is None else _numbers(series.low)  # None: too few pairs for an interval
    hover = [f"{point}{end}" if low is None else f"{point}{bounds}{end}" for low in lows]
    trace: dict[str, Any] = {
        "name": _text(series.name),
        "legendgroup": series.name,
        "x": _x(series),
        "y": _numbers(series.y),
        "hovertemplate": hover[0] if len(set(hover)) == 1 else hover,
    }
    if series.low is not None and series.high is not None:
        trace["customdata"] = list(zip(_numbers(series.low), _numbers(series.high), strict=True))
    if series.kind == "bars":
        return trace | {"type": "bar", "marker": {"color": color}, "error_y": _error_bars(series)}
    if series.kind == "points":
        marker = {"color": color, "size": 8, "symbol": series.dash % 5}
        return trace | {"type": "scatter", "mode": "markers", "marker": marker, "error_y": _error_bars(series)}
    line = {"color": color, "width": 2, "dash": DASHES[series.dash % len(DASHES)]}
    marker = {"color": color, "size": 5, "symbol": series.dash % 5}
    mode = "lines+markers" if len(series.x) <= 30 else "lines"
    return trace | {"type": "scatter", "mode": mode, "line": line, "marker": marker}


def _band(series: Series) -> list[dict[str, Any]]:
    if series.kind != "line" or series.low is None or series.high is None:
        return []
    points = zip(_x(series), _numbers(series.low), _numbers(series.high), strict=True)
    inside = [point for point in points if None not in point[1:]]
    if len(inside) < 2:
        return []
    red, green, blue = (int(series.hex_color[i : i + 2], 16) for i in (1, 3, 5))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "legendgroup": series.name,
            "x": [x for x, _, _ in inside] + [x for x, _, _ in reversed(inside)],
            "y": [low for _, low, _ in inside] + [high for _, _, high in reversed(inside)],
            "fill": "toself",
            "fillcolor": f"rgba({red},{green},{blue},0.18)",
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
    ]


def _error_bars(series: Series) -> dict[str, Any]:
    if series.low is None or series.high is None:
        return {"visible": False}
    above, below = [], []
    for y, low, high in zip(*map(_numbers, (series.y, series.low, series.high)), strict=True):
        known = y is not None and low is not None and high is not None
        above.append(short(high - y) if known else 0.0)
        below.append(short(y - low) if known else 0.0)
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 4}


def _image_plot(image: Image) -> dict[str, Any]:
    largest = float(f"{image.end:.5g}")
    trace: dict[str, Any] = {
        "type": "heatmap",
        "zmin": -largest,
        "zmax": largest,
        "colorbar": {"thickness": 10, "len": 0.9, "outlinewidth": 0},
    }
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _text(image.columns)}, "showgrid": False},
        "yaxis": {"title": {"text": _text(image.rows)}, "showgrid": False, "autorange": "reversed"},
    }
    (_add_cells if image.texts else _add_values)(image, trace, layout)
    return {"data": [trace], "layout": layout}


def _add_values(image: Image, trace: dict[str, Any], layout: dict[str, Any]) -> None:
    """Many values, as bytes of float32: numbers as text would take four times the space."""
    values = np.ascontiguousarray(image.z, dtype="<f4")
    shape = f"{values.shape[0]}, {values.shape[1]}"
    trace["z"] = {"dtype": "f4", "bdata": base64.b64encode(values.tobytes()).decode(), "shape": shape}
    trace["hovertemplate"] = f"{_text(image.rows)} %{{y}}, {_text(image.columns)} %{{x}}: %{{z:.4f}}<extra></extra>"
    layout["xaxis"]["constrain"] = "domain"


HATCHES = 3
"""Lines across a hatched cell."""


def _add_cells(image: Image, trace: dict[str, Any], layout: dict[str, Any]) -> None:
    """A few cells with names, texts and hatching."""
    rows, columns = _text(image.rows), _text(image.columns)
    trace |= {
        "z": [_numbers(row) for row in image.z.tolist()],
        "text": [[_text(text).replace("\n", "<br>") for text in row] for row in image.texts],
        "texttemplate": "%{text}",
        "customdata": [[[_text(row), _text(column)] for column in image.column_names] for row in image.row_names],
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": f"{rows} %{{customdata[0]}}, {columns} %{{customdata[1]}}: %{{text}}<extra></extra>",
    }
    layout["xaxis"] |= _ticks(image.column_names)
    layout["yaxis"] |= _ticks(image.row_names)
    # Heat maps of plotly have no pattern: the lines are a shape of their own.
    if path := "".join(_hatching(row, column) for row, column in image.hatched_cells()):
        layout["shapes"] = [{"type": "path", "path": path, "line": {"width": 1}, "opacity": 0.6}]


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    return {"tickvals": list(range(len(names))), "ticktext": [_text(name) for name in names], "zeroline": False}


def _hatching(row: int, column: int) -> str:
    """Diagonal lines across a cell of side 1, as the path of a shape."""
    lines = []
    for index in range(1, 2 * HATCHES):
        # From the left or lower edge to the upper or right one; `cut` runs over the diagonals.
        cut = 2 * index / (2 * HATCHES)
        start, end = (max(0.0, cut - 1), min(1.0, cut)), (min(1.0, cut), max(0.0, cut - 1))
        (x0, y0), (x1, y1) = ((column - 0.5 + x, row - 0.5 + y) for x, y in (start, end))
        lines.append(f"M{x0:.3f},{y0:.3f}L{x1:.3f},{y1:.3f}")
    return "".join(lines)


def _x(series: Series) -> list[Any]:
    return [_text(value) if isinstance(value, str) else short(value) for value in series.x]


def _numbers(values: Values) -> list[float | None]:
    return [short(value) for value in values]


def _text(text: str) -> str:
    """Escape text from files: plotly interprets some tags and entities, and `%{...}` in hover templates."""
    return html.escape(text, quote=False).replace("%{", "%\u200b{")
