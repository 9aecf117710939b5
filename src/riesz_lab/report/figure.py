"""What a figure is, whoever draws it: the page draws it with plotly, `riesz figure` with matplotlib.

A figure has panels; a panel has series (lines with bands, points and bars with error bars) or one image. Nothing here
knows how they are drawn, so that a figure is defined once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Readable on white and on the page's dark ground alike: contrast 3 or more against both.
PALETTE = ("#64748b", "#2f7ed8", "#d9541e", "#1a9468", "#a35fd0", "#a97f00", "#d6457a", "#00909b")
GREY = 0
DASHES = ("solid", "dash", "dot", "dashdot")

Values = Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Numbers that belong together.

    Attributes:
        name: in the legend; series of one name are switched on and off together.
        x, y: the numbers, or labels for x; None leaves a gap.
        low, high: ends of a band (lines) or of error bars (points, bars).
        kind: how it is drawn.
        color: index into the palette.
        dash: index into the dashes.
        note: what band or bars are, for the reader who hovers.
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Values
    low: Values | None = None
    high: Values | None = None
    kind: Literal["line", "points", "bars"] = "line"
    color: int = 0
    dash: int = 0
    note: str = ""


@dataclass(frozen=True)
class Image:
    """A matrix shown as an image around zero."""

    z: NDArray[np.float64]
    rows: str
    columns: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: above it.
        x, y: what the axes show.
        series: what is drawn, in order.
        image: drawn instead of series.
        log_x, log_y: logarithmic axes.
        zero: whether a line marks zero.
        y_range: what of y is shown; all if None.
        sideways: labels down the side and numbers along the bottom, for names that are long.
    """

    title: str = ""
    x: str = ""
    y: str = ""
    series: Sequence[Series] = ()
    image: Image | None = None
    log_x: bool = False
    log_y: bool = False
    zero: bool = False
    y_range: tuple[float, float] | None = None
    sideways: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a caption.

    Attributes:
        name: what `riesz figure` calls it.
        title: in a few words.
        caption: what one sees, and what bands and bars mean.
        alt: what it says, for those who do not see it.
        panels: drawn side by side where there is room.
    """

    name: str
    title: str
    caption: str = ""
    alt: str = ""
    panels: Sequence[Panel] = field(default_factory=tuple)

    @property
    def legend(self) -> dict[str, Series]:
        """The first series of each name, in order."""
        found: dict[str, Series] = {}
        for panel in self.panels:
            for series in panel.series:
                found.setdefault(series.name, series)
        return found


def short(value: float | None, digits: int = 5) -> float | None:
    """A number with as many digits as an eye can tell; None where it is none. Keeps the page small."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.{digits}g}")
