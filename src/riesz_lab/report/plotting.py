"""Figures as plotly's JSON, one plot per panel. The page's script sets the colours of background, text and grid."""

from __future__ import annotations

import base64
import html
from typing import Any

import numpy as np

from riesz_lab.report.figure import DASHES, Image, Panel, Series, Values, short


def plot(panel: Panel) -> dict[str, Any]:
    """The data and layout of a panel."""
    if panel.image is not None:
        return _image_plot(panel, panel.image)
    traces = []
    for series in panel.series:
        traces += [*_band(series), _trace(series)]
    labels = any(isinstance(value, str) for series in panel.series for value in series.x)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _text(panel.x)}, "type": "category" if labels else "log" if panel.log_x else "-"},
        "yaxis": {"title": {"text": _text(panel.y)}, "type": "log" if panel.log_y else "-"},
    }
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
        trace["hovertemplate"] = trace["hovertemplate"].replace("%{x}: %{y}", "%{y}: %{x}")
    return {"data": traces, "layout": layout}


def _trace(series: Series) -> dict[str, Any]:
    color, bounds = series.hex_color, ""
    if series.low is not None and series.high is not None:
        bounds = f"<br>%{{customdata[0]}} to %{{customdata[1]}} {_text(series.note)}"
    trace: dict[str, Any] = {
        "name": _text(series.name),
        "legendgroup": series.name,
        "x": _x(series),
        "y": _numbers(series.y),
        "hovertemplate": f"%{{x}}: %{{y}}{bounds}<extra>{_text(series.name)}</extra>",
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


def _image_plot(panel: Panel, image: Image) -> dict[str, Any]:
    # As bytes of float32: numbers as text would take four times the space.
    values = np.ascontiguousarray(image.z, dtype="<f4")
    shape = f"{values.shape[0]}, {values.shape[1]}"
    largest = float(f"{float(np.abs(values).max(initial=0.0)) or 1.0:.5g}")
    trace = {
        "type": "heatmap",
        "z": {"dtype": "f4", "bdata": base64.b64encode(values.tobytes()).decode(), "shape": shape},
        "zmin": -largest,
        "zmax": largest,
        "colorbar": {"thickness": 10, "len": 0.9, "outlinewidth": 0},
        "hovertemplate": f"{_text(image.rows)} %{{y}}, {_text(image.columns)} %{{x}}: %{{z:.4f}}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": _text(image.columns)}, "showgrid": False, "constrain": "domain"},
        "yaxis": {"title": {"text": _text(image.rows)}, "showgrid": False, "autorange": "reversed"},
    }
    return {"data": [trace], "layout": layout}


def _x(series: Series) -> list[Any]:
    return [_text(value) if isinstance(value, str) else short(value) for value in series.x]


def _numbers(values: Values) -> list[float | None]:
    return [short(value) for value in values]


def _text(text: str) -> str:
    """Escape text from files: plotly interprets some tags and entities, and `%{...}` in hover templates."""
    return html.escape(text, quote=False).replace("%{", "%\u200b{")
