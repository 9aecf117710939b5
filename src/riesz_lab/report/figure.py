"""A figure, defined once: panels with series or one image. `drawing` lays them out, and `shapes` writes files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from riesz_lab.errors import printable

# Readable on white and on the page's dark background: contrast 3 or more against both.
PALETTE = ("#64748b", "#2f7ed8", "#d9541e", "#1a9468", "#a35fd0", "#a97f00", "#d6457a", "#00909b")

LARGEST = 1e100
"""Beside a value beyond it nothing else could be seen; sums and ratios of smaller ones are finite."""

Array = NDArray[np.float64]
Values = Sequence[float | None]
Points = Sequence[float] | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of the legend."""

    name: str  # in the legend; series of one name are switched on and off together
    x: Points  # numbers, or labels in a panel that is sideways
    y: Values  # None leaves a gap
    low: Values | None = None  # the lower end of a band (lines) or of error bars (points, bars)
    high: Values | None = None  # and the upper one
    # Dots are many values of one label; none covers another, and points of that label lie below them.
    kind: Literal["line", "points", "bars", "dots"] = "line"
    color: int = 0  # index into the palette
    dash: int = 0  # of the line, and shape of the marker
    note: str = ""  # the meaning of band or bars, shown on hover

    def __post_init__(self) -> None:
        _make_printable(self, "name")
        object.__setattr__(self, "x", [printable(x) if isinstance(x, str) else x for x in self.x])

    @property
    def hex_color(self) -> str:
        return PALETTE[self.color % len(PALETTE)]


def series_around(name: str, x: Points, mean_X: Array, half_X: Array | None, **style: Any) -> Series:
    """A series with a band (or bars) of this half width around it; without one for None."""
    ends = (None, None) if half_X is None else ((mean_X - half_X).tolist(), (mean_X + half_X).tolist())
    return Series(name=name, x=x, y=mean_X.tolist(), low=ends[0], high=ends[1], **style)


@dataclass(frozen=True)
class Image:
    """A matrix shown as an image around zero."""

    z: Array  # the values; NaN leaves a cell blank
    rows: str  # labels of the axes
    columns: str
    row_names: Sequence[str] = ()  # of every row and column; their numbers if there are none
    column_names: Sequence[str] = ()
    texts: Sequence[Sequence[str]] = ()  # what is written in every cell, row by row
    hatched: NDArray[np.bool_] | None = None  # the cells that are hatched
    largest: float | None = None  # the end of the colour scale; the largest value if None

    @property
    def end(self) -> float:
        """The end of the colour scale, above 0."""
        return self.largest or float(np.nan_to_num(np.abs(self.z)).max(initial=0.0)) or 1.0


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str = ""
    x: str = ""  # labels of the axes
    y: str = ""
    series: Sequence[Series] = ()
    image: Image | None = None  # drawn instead of series
    log_x: bool = False
    log_y: bool = False
    zero: bool = False  # whether a line marks zero
    margin: float | None = None  # a band around zero: differences that do not matter
    y_range: tuple[float, float] | None = None  # the range of y shown; all if None
    sideways: bool = False  # labels down the side and numbers along the bottom

    def __post_init__(self) -> None:
        _make_printable(self, "title", "x", "y")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a caption."""

    name: str  # as in `riesz figure NAME`
    title: str
    caption: str = ""  # what is shown, and what bands and bars mean
    alt: str = ""  # the content in words, for screen readers and text formats
    panels: Sequence[Panel] = ()
    columns: int = 3  # panels side by side in a picture, at most


def _make_printable(record: object, *names: str) -> None:
    """Names in figures come from files: layers, scores, functions."""
    for name in names:
        object.__setattr__(record, name, printable(getattr(record, name)))


def finite(value: float | None) -> float | None:
    """The number, or None where nothing can be drawn."""
    return None if value is None or not math.isfinite(value) or abs(value) > LARGEST else float(value)
