"""Lays out panels and figures as shapes: scales, ticks, bands, marks, legends.

A panel is as wide as a phone, labels down the side stand above their row where they are long, and legends show what is
drawn: the line with its dashes, its mark and its band.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from riesz_lab.report.figure import Figure, Panel, Series, finite
from riesz_lab.report.heatmap import draw_image
from riesz_lab.report.shapes import (
    DASHES,
    FONT,
    INK,
    SMALL,
    WIDTH,
    Circle,
    Drawing,
    Group,
    Path,
    Point,
    Shape,
    Text,
    apart,
    raster,
    rectangle,
    small_text,
    svg_file,
    text_width,
    wrapped,
)  # fmt: skip

FORMATS = ("svg", "png", "pdf")
HEIGHT = 240.0
RIGHT = 12.0
LINE = 15.0
"""Height of a line of text."""
LANE = 10.0
"""From one mark of a row to the next below it."""
MOST_MARKED = 30
"""Points of a line that are marked, at most."""
MOST_TRIED = 12
"""Values of a logarithmic axis that are its ticks, at most."""
BAND, GRID, MARGIN = 0.16, 0.12, 0.1
"""Opacities."""
MARGIN_NAME = "margin"


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int, *, whole: bool = False) -> list[tuple[float, str]]:
        """Round values with their labels."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            if len(decades) > 1:
                return [(10.0**k, f"{10.0**k:g}") for k in decades[:: -(-len(decades) // most)]]
        span = self.high - self.low
        raw = max(span / most, 1.0 if whole else 0.0)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9) and not (whole and m == 2.5))
        decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (step / power == 2.5 and step < 10)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [(k * step) or 0.0 for k in range(first, last + 1)]
        large = max(map(abs, values), default=0.0) >= 1e5 or step < 1e-4
        return [(v, f"{v:g}" if large else f"{v:.{decimals}f}") for v in values]


def picture(figure: Figure, kind: str) -> bytes:
    """The figure as a file, of one of the FORMATS; the same figure gives the same bytes."""
    drawing = draw(figure)
    return svg_file(drawing).encode() if kind == "svg" else raster(drawing, kind)


def draw(figure: Figure) -> Drawing:
    """The panels side by side, each below its title, and the legend."""
    columns = min(figure.columns, max(1, len(figure.panels)))
    shapes: list[Shape] = []
    top, gap = 6.0, 24.0
    for start in range(0, len(figure.panels), columns):
        row = figure.panels[start : start + columns]
        titles = [wrapped(panel.title, WIDTH - RIGHT, 1.1 * FONT) for panel in row]  # bold is wider
        drawings = [draw_panel(panel) for panel in row]
        head = LINE * max(map(len, titles)) + 4
        for column, (lines, drawing) in enumerate(zip(titles, drawings, strict=True)):
            left = gap / 2 + column * (WIDTH + gap)
            shapes += [Text(x=left, y=top + LINE * (i + 1) - 3, text=t, bold=True) for i, t in enumerate(lines)]
            shapes.append(Group(x=left, y=top + head, shapes=drawing.shapes))
        top += head + max(drawing.height for drawing in drawings) + 8
    width = columns * (WIDTH + gap)
    left = gap / 2
    for name, entry in legend(figure).items():
        room = entry.width + 6 + text_width(name) + 18
        if left > gap / 2 and left + room > width:
            left, top = gap / 2, top + LINE + 4
        shapes += [Group(x=left, y=top, shapes=entry.shapes), Text(x=left + entry.width + 6, y=top + 10.5, text=name)]
        left += room
    return Drawing(width, top + LINE + 6, shapes)


def legend(figure: Figure) -> dict[str, Drawing]:
    """A sample of what is drawn under each name; nothing if there is only one thing."""
    entries: dict[str, list[Series]] = {}
    for series in (series for panel in figure.panels for series in panel.series):
        entries.setdefault(series.name, []).append(series)
    samples = {name: _sample(same) for name, same in entries.items()}
    if any(panel.margin for panel in figure.panels):
        samples[MARGIN_NAME] = Drawing(26, 12, [_margin_band(0, 0, 26, 12)])
    return samples if len(samples) > 1 else {}


def _sample(same: Sequence[Series]) -> Drawing:
    """In ink where the colour stands for something else, such as the arm of a row."""
    series = same[0]
    color = series.hex_color if len({each.hex_color for each in same}) == 1 else INK
    shapes: list[Shape] = []
    if series.kind == "bars":
        shapes.append(rectangle(5, 1, 16, 10, fill=color))
    elif series.kind == "dots":
        shapes.append(Circle(x=13, y=6, r=3, fill=color))
    elif series.kind == "points":
        if any(each.low is not None for each in same):
            shapes.append(Path(lines=[[(1, 6), (25, 6)]], stroke=color, width=2))
        shapes.append(_mark(13, 6, series.dash, color))
    else:
        if any(each.low is not None for each in same):
            shapes.append(rectangle(0, 1, 26, 10, fill=color, opacity=BAND))
        shapes.append(Path(lines=[[(0, 6), (26, 6)]], stroke=color, width=2, dash=_dash(series)))
        if any(_is_marked(each) for each in same):
            shapes.append(_mark(13, 6, series.dash, color))
    return Drawing(26, 12, shapes)


def draw_panel(panel: Panel) -> Drawing:
    if panel.image is not None:
        return draw_image(panel.image)
    return _rows(panel) if panel.sideways else _axes(panel)


# -- numbers along both axes -------------------------------------------------------------------------------------------


def _axes(panel: Panel) -> Drawing:
    bars = [series for series in panel.series if series.kind == "bars"]
    xs = [x for series in panel.series for x in _places(series)]
    step = min((b - a for a, b in pairwise(sorted({x for one in bars for x in _places(one)}))), default=1.0)
    x_low, x_high = _extent(xs, panel.log_x, padding=0.02)
    if bars:
        x_low, x_high = min(xs) - 0.6 * step, max(xs) + 0.6 * step
    y_low, y_high = panel.y_range or _extent(_values(panel), panel.log_y)
    if bars:
        y_low = 0.0
    top, bottom = (22.0 if panel.y else 8.0), HEIGHT - (40.0 if panel.x else 24.0)
    y = Scale(y_low, y_high, bottom, top, panel.log_y)
    y_ticks = y.ticks(5, whole=bool(bars) and all(float(value).is_integer() for value in _values(panel)))
    left = 8 + max((text_width(text, SMALL) for _, text in y_ticks), default=0)
    x = Scale(x_low, x_high, left, WIDTH - RIGHT, panel.log_x)
    tried = sorted(set(xs)) if panel.log_x else []
    if 1 < len(tried) <= MOST_TRIED:  # the values that were tried, not powers of ten
        x_ticks = [(value, f"{value:g}") for value in tried]
    else:
        x_ticks = x.ticks(6, whole=all(map(float.is_integer, xs)))
    shapes: list[Shape] = [
        Path(lines=[[(left, y(v)), (WIDTH - RIGHT, y(v))] for v, _ in y_ticks], stroke=INK, opacity=GRID),
        *(small_text(left - 5, y(v) + 4, text, "end") for v, text in y_ticks),
        Path(lines=[[(x(v), bottom), (x(v), bottom + 4)] for v, _ in x_ticks], stroke=INK, opacity=0.4),
        *(small_text(at, bottom + 16, text, "middle") for at, text in apart([(x(v), text) for v, text in x_ticks])),
    ]
    if panel.y:
        shapes.append(small_text(0, 11, panel.y))
    if panel.x:
        shapes.append(small_text((left + WIDTH - RIGHT) / 2, HEIGHT - 8, panel.x, "middle"))
    if panel.zero and y_low <= 0 <= y_high:
        shapes.append(Path(lines=[[(left, y(0)), (WIDTH - RIGHT, y(0))]], stroke=INK, opacity=0.6))
    shapes += [_in_group(series, _band(series, x, y)) for series in panel.series if series.kind == "line"]
    for series in panel.series:
        marks = _columns(series, bars, step, x, y) if series.kind == "bars" else _curve(series, x, y, panel)
        shapes.append(_in_group(series, marks))
    return Drawing(WIDTH, HEIGHT, [shape for shape in shapes if not isinstance(shape, Group) or shape.shapes])


def _band(series: Series, x: Scale, y: Scale) -> list[Shape]:
    if series.low is None or series.high is None:
        return []
    inside = [
        (x(at), y(_clamp(low, y)), y(_clamp(high, y)))
        for at, low, high in zip(_places(series), map(finite, series.low), map(finite, series.high), strict=True)
        if low is not None and high is not None
    ]
    if len(inside) < 2:
        return []
    outline = [(at, low) for at, low, _ in inside] + [(at, high) for at, _, high in reversed(inside)]
    return [Path(lines=[outline], closed=True, fill=series.hex_color, opacity=BAND)]


def _curve(series: Series, x: Scale, y: Scale, panel: Panel) -> list[Shape]:
    lines: list[list[Point]] = [[]]
    marks: list[Shape] = []
    previous: tuple[float, float] | None = None
    for index, (at, value) in enumerate(zip(_places(series), map(finite, series.y), strict=True)):
        if value is None or (y.log and value <= 0):
            lines.append([])
            previous = None
            continue
        here = (at, value)
        # A line that leaves the range shown ends at its edge, and comes back there.
        for point in _within(previous, here, y) if previous else [here] if y.low <= value <= y.high else []:
            lines[-1].append((x(point[0]), y(point[1])))
        if not y.low <= value <= y.high:
            lines.append([])
        elif _is_marked(series):
            title = _describe(series, index, f"{panel.x} {at:g}".strip())
            marks.append(_mark(x(here[0]), y(value), series.dash, series.hex_color, title, size=0.85))
        previous = here
    title = "" if marks else series.name
    drawn = [line for line in lines if len(line) > 1]
    if series.kind != "line" or not drawn:
        return marks
    return [Path(lines=drawn, stroke=series.hex_color, width=2, dash=_dash(series), title=title), *marks]


def _within(start: Point, end: Point, y: Scale) -> list[Point]:
    """The points to draw from start on, which is drawn already if it lies in the range."""
    points = []
    for edge in (y.low, y.high) if start[1] < end[1] else (y.high, y.low):
        if (start[1] - edge) * (end[1] - edge) < 0:
            share = (edge - start[1]) / (end[1] - start[1])
            points.append((start[0] + share * (end[0] - start[0]), edge))
    return [*points, end] if y.low <= end[1] <= y.high else points


def _columns(series: Series, bars: Sequence[Series], step: float, x: Scale, y: Scale) -> list[Shape]:
    """Bars of one place stand side by side."""
    width = 0.84 * step / len(bars)
    offset = (bars.index(series) - len(bars) / 2) * width
    shapes: list[Shape] = []
    for index, (at, value) in enumerate(zip(_places(series), map(finite, series.y), strict=True)):
        if value:
            left, right = x(at + offset), x(at + offset + width)
            title = _describe(series, index, f"{at:.4g}")
            shape = rectangle(left, y(value), right - left, y(0) - y(value), fill=series.hex_color)
            shapes.append(replace(shape, title=title))
    return shapes


# -- labels down the side ----------------------------------------------------------------------------------------------


def _rows(panel: Panel) -> Drawing:
    """A row per label, with its points, bars or dots."""
    labels = list(dict.fromkeys(str(label) for series in panel.series for label in series.x))
    widest = max((text_width(label) for label in labels), default=0.0)
    beside = widest <= 0.37 * WIDTH
    left = widest + 16 if beside else 6.0
    low, high = _extent(_values(panel), panel.log_y)
    if any(series.kind == "bars" for series in panel.series):
        low, high = min(low, 0.0), max(high, 0.0)
    at = Scale(low, high, left, WIDTH - RIGHT, panel.log_y)
    swarms = {label: _swarm(panel.series, label, at) for label in labels}
    texts = {label: [] if beside else wrapped(label, WIDTH - RIGHT) for label in labels}
    # Marks of several series in one row lie below each other.
    lanes = {label: [id(one) for one in panel.series if one.kind != "dots" and label in one.x] for label in labels}
    top, tops, centres = 4.0, {}, {}
    for label in labels:
        half = max((abs(y) for _, y in swarms[label].values()), default=0.0)
        swarm = 2 * half + 14 if swarms[label] else 0.0
        tops[label] = top
        centres[label] = (top + LINE * len(texts[label]) + half + 6, top + LINE * len(texts[label]) + swarm + 10)
        top = centres[label][1] + LANE * max(0, len(lanes[label]) - 1) + 14
    bottom = top
    bottom_of = {label: centres[label][1] + LANE * max(0, len(lanes[label]) - 1) for label in labels}
    ticks = at.ticks(5)
    lines = wrapped(panel.y, WIDTH - left, SMALL)
    shapes: list[Shape] = []
    if panel.margin:
        begin, end = (at(_clamp(edge, at)) for edge in (-panel.margin, panel.margin))
        shapes.append(Group(name=MARGIN_NAME, shapes=[_margin_band(begin, 0, end - begin, bottom)]))
    # Upright lines leave the texts free.
    gaps = {label: LINE * len(texts[label]) + (2 if texts[label] else -4) for label in labels}
    free = [(tops[label] + gaps[label], bottom_of[label] + 10) for label in labels]
    ruled = [[(at(v), begin), (at(v), end)] for v, _ in ticks for begin, end in free]
    shapes += [
        Path(lines=ruled, stroke=INK, opacity=GRID),
        *(small_text(x, bottom + 15, text, "middle") for x, text in apart([(at(v), text) for v, text in ticks])),
        *(small_text((left + WIDTH - RIGHT) / 2, bottom + 32 + 14 * i, t, "middle") for i, t in enumerate(lines)),
    ]
    if panel.zero and low <= 0 <= high:
        shapes.append(Path(lines=[[(at(0), begin), (at(0), end)] for begin, end in free], stroke=INK, opacity=0.6))
    for label in labels:
        middle = (centres[label][0] if swarms[label] else centres[label][1]) / 2 + bottom_of[label] / 2
        if beside:
            shapes.append(Text(x=left - 10, y=middle + 4, text=label, anchor="end"))
        shapes += [Text(x=0, y=tops[label] + LINE * i + 12, text=text) for i, text in enumerate(texts[label])]
    for series in panel.series:
        marks: list[Shape] = []
        for index, label in enumerate(map(str, series.x)):
            upper, lower = centres[label]
            if series.kind == "dots":
                if (place := swarms[label].get((id(series), index))) is not None:
                    title = _describe(series, index, label)
                    marks.append(Circle(x=place[0], y=upper + place[1], r=3, fill=series.hex_color, title=title))
            else:
                marks += _row_mark(series, index, label, at, lower + LANE * lanes[label].index(id(series)))
        shapes.append(_in_group(series, marks))
    return Drawing(WIDTH, bottom + 24 + 14 * len(lines), shapes)


def _row_mark(series: Series, index: int, label: str, at: Scale, y: float) -> list[Shape]:
    """A point or bar with its interval."""
    value = finite(series.y[index])
    if value is None or (at.log and value <= 0):
        return []
    title, shapes = _describe(series, index, label), list[Shape]()
    if series.kind == "bars":
        begin, end = sorted((at(0.0), at(value)))
        box = rectangle(begin, y - 7, end - begin, 14, fill=series.hex_color, opacity=0.8)
        shapes.append(replace(box, title=title))
    low, high = (finite(ends[index]) if ends is not None else None for ends in (series.low, series.high))
    if low is not None and high is not None:
        begin, end = at(_clamp(low, at)), at(_clamp(high, at))
        color = INK if series.kind == "bars" else series.hex_color
        caps = [[(edge, y - 4), (edge, y + 4)] for edge in (begin, end)]
        shapes.append(Path(lines=[[(begin, y), (end, y)], *caps], stroke=color, width=2, title=title))
    if series.kind == "points":
        shapes.append(_mark(at(value), y, series.dash, series.hex_color, title))
    return shapes


def _swarm(series: Iterable[Series], label: str, at: Scale) -> dict[tuple[int, int], Point]:
    """Places of all dots of a label: beside each other where they would lie on another."""
    wanted = sorted(
        (at(value), id(one), index, order)
        for order, one in enumerate(series)
        if one.kind == "dots"
        for index, (name, each) in enumerate(zip(one.x, one.y, strict=True))
        if name == label and (value := finite(each)) is not None and not (at.log and value <= 0)
    )
    wanted.sort(key=lambda dot: (dot[0], dot[3], dot[2]))
    places: dict[tuple[int, int], Point] = {}
    last: dict[int, float] = {}
    for x, key, index, _ in wanted:
        free = next(level for level in _outwards() if x - last.get(level, -math.inf) >= 7)
        last[free] = x
        places[key, index] = (x, 7.0 * free)
    return places


def _outwards() -> Iterable[int]:
    level = 0
    while True:
        yield level
        level = -level if level > 0 else 1 - level


# -- what all share ----------------------------------------------------------------------------------------------------


def _places(series: Series) -> list[float]:
    return [float(x) for x in series.x]


def _mark(x: float, y: float, kind: int, color: str, title: str = "", size: float = 1.0) -> Shape:
    """A circle, square, diamond or triangle."""
    r = 4.2 * size
    if kind % 5 == 0:
        return Circle(x=x, y=y, r=r, fill=color, title=title)
    corners: dict[int, list[Point]] = {
        1: [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
        2: [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
        3: [(0, -1.15), (1.05, 0.8), (-1.05, 0.8)],
        4: [(0, 1.15), (1.05, -0.8), (-1.05, -0.8)],
    }
    return Path(lines=[[(x + r * a, y + r * b) for a, b in corners[kind % 5]]], closed=True, fill=color, title=title)


def _is_marked(series: Series) -> bool:
    """What was measured, and not what lies between."""
    return series.kind == "points" or 2 < len(series.x) <= MOST_MARKED


def _margin_band(x: float, y: float, width: float, height: float) -> Shape:
    return rectangle(x, y, width, height, fill=INK, opacity=MARGIN)


def _in_group(series: Series, shapes: Sequence[Shape]) -> Group:
    return Group(name=series.name, shapes=shapes)


def _dash(series: Series) -> str:
    return DASHES[series.dash % len(DASHES)]


def _describe(series: Series, index: int, where: str) -> str:
    """What is said of a point on hover, and to who walks along them with the keyboard."""
    value = finite(series.y[index])
    text = "" if value is None else f"{value:.4g}"
    low, high = (finite(ends[index]) if ends is not None else None for ends in (series.low, series.high))
    if low is not None and high is not None:
        text += f", {low:.4g} to {high:.4g} {series.note}".rstrip()
    return f"{series.name}, {where}: {text}" if where != series.name else f"{where}: {text}"


def _values(panel: Panel) -> list[float]:
    values = [
        value
        for series in panel.series
        for column in (series.y, series.low or (), series.high or ())
        for each in column
        if (value := finite(each)) is not None
    ]
    margin = [-panel.margin, panel.margin] if panel.margin else []
    return values + margin + ([0.0] if panel.zero else [])


def _extent(values: Iterable[float], log: bool, padding: float = 0.05) -> tuple[float, float]:
    """The range of an axis, a little beyond the values."""
    kept = [value for value in values if not log or value > 0] or [1.0, 10.0]
    low, high = min(kept), max(kept)
    if log:
        room = max((high / low) ** padding, 1.05)
        return low / room, high * room
    room = padding * (high - low)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # equal but for rounding
        room = 0.05 * abs(high) or 1.0
    return low - room, high + room


def _clamp(value: float, scale: Scale) -> float:
    return min(max(value, scale.low), scale.high)
