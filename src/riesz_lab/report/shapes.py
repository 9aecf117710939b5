"""Shapes on a plane, and how they are written: SVG text for pages and docs; PNG and PDF from the very same shapes.

Units are CSS pixels, y points down. INK is the colour of the text around an SVG, so that it follows a light or a dark
page; a file of its own has a ground and brings both colours.
"""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from riesz_lab.errors import printable

INK = "currentColor"
QUIET = 0.72
"""Opacity of text that is not read first; its contrast stays above 4.5."""
FONT, SMALL = 12.0, 11.0
WIDTH = 400.0
"""Of a panel: about that of a phone."""
DASHES = ("", "6 3", "1.5 3", "7 3 1.5 3")

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Path:
    """Lines from point to point; several in one."""

    lines: Sequence[Sequence[Point]]
    closed: bool = False
    stroke: str = "none"
    width: float = 1.0
    dash: str = ""
    fill: str = "none"
    opacity: float = 1.0
    title: str = ""  # shown on hover


@dataclass(frozen=True, kw_only=True)
class Circle:
    x: float
    y: float
    r: float
    fill: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Text:
    x: float
    y: float  # of the baseline
    text: str
    anchor: str = "start"
    size: float = FONT
    bold: bool = False
    fill: str = INK
    opacity: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Pixels, as a PNG."""

    x: float
    y: float
    width: float
    height: float
    png: bytes


@dataclass(frozen=True, kw_only=True)
class Group:
    """Shapes that are moved together; with a name, the script of a page can hide them."""

    shapes: Sequence["Shape"]
    x: float = 0.0
    y: float = 0.0
    name: str = ""


Shape = Path | Circle | Text | Picture | Group


@dataclass(frozen=True)
class Drawing:
    width: float
    height: float
    shapes: Sequence[Shape]


def rectangle(x: float, y: float, width: float, height: float, **style: Any) -> Path:
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
    return Path(lines=[corners], closed=True, **style)


_NARROW, _WIDE = frozenset("iljtfrI.,:;'|!()[]{} -"), frozenset("mwMW@%")


def text_width(text: str, size: float = FONT) -> float:
    """About as wide as a sans-serif font draws it; rather more than less."""
    return size * sum(0.34 if c in _NARROW else 0.92 if c in _WIDE else 0.67 if c.isupper() else 0.57 for c in text)


def wrapped(text: str, width: float, size: float = FONT) -> list[str]:
    """The words of a text in lines of this width; a word that is longer has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def small_text(x: float, y: float, text: str, anchor: str = "start") -> Text:
    """Small text beside an axis."""
    return Text(x=x, y=y, text=text, anchor=anchor, size=SMALL, opacity=QUIET)


def apart(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Those of the labels, from the left, that do not touch."""
    kept: list[tuple[float, str]] = []
    free = -float("inf")
    for x, text in labels:
        half = text_width(text, SMALL) / 2 + 3
        if x - half >= free:
            kept.append((x, text))
            free = x + half
    return kept


# -- SVG ---------------------------------------------------------------------------------------------------------------

_STYLE = (
    "<style>svg{color:#1b1f24}.ground{fill:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#e6e8eb}.ground{fill:#14171c}}</style>"
)


def svg_file(drawing: Drawing) -> str:
    """A file of its own: with a ground, dark where the reader's screen is."""
    opening = _opening(drawing, 'xmlns="http://www.w3.org/2000/svg" color="#1b1f24"')
    ground = f'{_STYLE}<rect class="ground" width="100%" height="100%" fill="none"/>'
    return f"{opening}{ground}\n{_inner(drawing)}\n</svg>\n"


def svg_inline(drawing: Drawing, attributes: str = "") -> str:
    """An element of a page, in the colour of its text; attributes must be escaped."""
    return f"{_opening(drawing, attributes)}{_inner(drawing)}</svg>"


def _opening(drawing: Drawing, attributes: str) -> str:
    w, h = _number(drawing.width), _number(drawing.height)
    font = f'font-family="system-ui, sans-serif" font-size="{_number(FONT)}"'
    return f'<svg {attributes} width="{w}" height="{h}" viewBox="0 0 {w} {h}" fill="{INK}" {font}>'


def _inner(drawing: Drawing) -> str:
    return "\n".join(map(_svg, drawing.shapes))


def _svg(shape: Shape) -> str:
    if isinstance(shape, Group):
        name = f' data-series="{_escape(shape.name)}"' if shape.name else ""
        move = f' transform="translate({_number(shape.x)} {_number(shape.y)})"' if shape.x or shape.y else ""
        return f"<g{name}{move}>{''.join(map(_svg, shape.shapes))}</g>"
    if isinstance(shape, Picture):
        data = base64.b64encode(shape.png).decode()
        box = f'x="{_number(shape.x)}" y="{_number(shape.y)}" width="{_number(shape.width)}"'
        box += f' height="{_number(shape.height)}" preserveAspectRatio="none" style="image-rendering:pixelated"'
        return f'<image {box} href="data:image/png;base64,{data}"/>'
    if isinstance(shape, Text):
        return _svg_text(shape)
    title = f"<title>{_escape(shape.title)}</title>" if shape.title else ""
    if isinstance(shape, Circle):
        where = f'cx="{_number(shape.x)}" cy="{_number(shape.y)}" r="{_number(shape.r)}"'
        return _element("circle", f'{where} fill="{shape.fill}"', title)
    style = f'd="{_path_data(shape)}" fill="{shape.fill}"'
    if shape.stroke != "none":
        style += f' stroke="{shape.stroke}"' + (f' stroke-width="{_number(shape.width)}"' if shape.width != 1 else "")
        style += f' stroke-dasharray="{shape.dash}"' if shape.dash else ""
    style += f' opacity="{_number(shape.opacity, 3)}"' if shape.opacity != 1 else ""
    return _element("path", style, title)


def _element(tag: str, attributes: str, content: str) -> str:
    return f"<{tag} {attributes}>{content}</{tag}>" if content else f"<{tag} {attributes}/>"


def _svg_text(shape: Text) -> str:
    style = f' fill="{shape.fill}"' if shape.fill != INK else ""
    style += f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
    style += f' font-size="{_number(shape.size)}"' if shape.size != FONT else ""
    style += ' font-weight="600"' if shape.bold else ""
    style += f' opacity="{_number(shape.opacity, 2)}"' if shape.opacity != 1 else ""
    where = f'x="{_number(shape.x)}" y="{_number(shape.y)}"'
    return f"<text {where}{style}>{_escape(shape.text)}</text>"


def _path_data(path: Path) -> str:
    end = "Z" if path.closed else ""
    return "".join(f"M{'L'.join(f'{_number(x)} {_number(y)}' for x, y in line)}{end}" for line in path.lines if line)


def _number(value: float, digits: int = 1) -> str:
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
    return "0" if text == "-0" else text


def _escape(text: str) -> str:
    return html.escape(printable(text))


# -- PNG and PDF -------------------------------------------------------------------------------------------------------

INCH = 96.0
LIGHT_INK = "#1b1f24"
DOTS_PER_INCH = 200


def raster(drawing: Drawing, kind: str) -> bytes:
    """The same shapes as PNG or PDF, on white."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Sheet

    # Names come from files: a dollar sign in them starts no formula.
    with mpl.rc_context({"text.parse_math": False, "font.family": "sans-serif"}):
        sheet = Sheet(figsize=(drawing.width / INCH, drawing.height / INCH))
        axes: Any = sheet.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.set(autoscale_on=False)
        axes.set_axis_off()
        for shape in drawing.shapes:
            _put(axes, shape, 0.0, 0.0)
        buffer = io.BytesIO()
        # Without a date the file depends on the drawing alone.
        stamp = {"CreationDate": None} if kind == "pdf" else {}
        sheet.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, metadata=stamp)
    return buffer.getvalue()


def _put(axes: Any, shape: Shape, x: float, y: float) -> None:
    from matplotlib import patches
    from matplotlib.path import Path as Outline

    if isinstance(shape, Group):
        for each in shape.shapes:
            _put(axes, each, x + shape.x, y + shape.y)
    elif isinstance(shape, Picture):
        from PIL import Image as Pixels

        left, top = x + shape.x, y + shape.y
        extent = (left, left + shape.width, top + shape.height, top)
        with Pixels.open(io.BytesIO(shape.png)) as pixels:
            axes.imshow(pixels, extent=extent, aspect="auto", interpolation="nearest", zorder=2)
    elif isinstance(shape, Text):
        align = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
        style: dict[str, Any] = {"ha": align, "va": "baseline", "weight": "bold" if shape.bold else "normal"}
        style |= {"color": _color(shape.fill), "alpha": shape.opacity, "fontsize": 0.92 * shape.size * 72 / INCH}
        axes.text(x + shape.x, y + shape.y, printable(shape.text), zorder=4, **style)
    elif isinstance(shape, Circle):
        axes.add_patch(patches.Circle((x + shape.x, y + shape.y), shape.r, color=shape.fill, linewidth=0, zorder=3))
    elif lines := [[(x + a, y + b) for a, b in line] for line in shape.lines if line]:
        outline = Outline.make_compound_path(*(Outline(line, closed=False) for line in lines))
        if shape.closed:
            outline = Outline.make_compound_path(*(Outline([*line, line[0]], closed=True) for line in lines))
        dash = (0, [float(part) / shape.width for part in shape.dash.split()]) if shape.dash else "-"
        look: dict[str, Any] = {
            "edgecolor": _color(shape.stroke),
            "facecolor": _color(shape.fill),
            "alpha": shape.opacity,
        }
        look |= {"linewidth": shape.width * 72 / INCH if shape.stroke != "none" else 0, "linestyle": dash}
        axes.add_patch(patches.PathPatch(outline, zorder=3, **look))


def _color(color: str) -> str:
    return LIGHT_INK if color == INK else color
