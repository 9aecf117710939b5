"""Lays out a matrix as an image or as cells with texts, with its colour bar."""

import io

import numpy as np

from riesz_lab.report.figure import Array, Image
from riesz_lab.report.shapes import (
    INK,
    SMALL,
    WIDTH,
    Drawing,
    Path,
    Picture,
    Point,
    Shape,
    Text,
    apart,
    rectangle,
    small_text,
    text_width,
)  # fmt: skip

RED, BLUE = (0xC2, 0x45, 0x2B), (0x2F, 0x6F, 0xB8)


def draw_image(image: Image) -> Drawing:
    """Red above zero, blue below, and clear at zero: so it stands on a light and on a dark ground."""
    rows, columns = image.z.shape
    names = [str(name) for name in image.row_names]
    ticks = _cell_ticks(rows)
    left = 8 + max((text_width(text, SMALL) for text in names or [text for _, text in ticks]), default=0)
    right = WIDTH - 62
    lines = max((text.count("\n") + 1 for texts in image.texts for text in texts), default=0)
    cell = max(30.0, 13.0 * lines + 10) if image.texts else min(230.0, (right - left) * rows / columns) / rows
    top, width, height = 20.0, (right - left) / columns, cell * rows
    shapes: list[Shape] = [small_text(0, 11, image.rows)]
    colors = _rgba(np.asarray(image.z, dtype=float) / image.end)
    if image.texts:
        for row, column in np.ndindex(rows, columns):
            box = (left + width * column + 1, top + cell * row + 1, width - 2, cell - 2)
            shapes += _cell(image, row, column, colors[row, column], box)
    else:
        shapes.append(Picture(x=left, y=top, width=right - left, height=height, png=_png(colors)))
        shapes.append(rectangle(left, top, right - left, height, stroke=INK, opacity=0.3))
    places = list(enumerate(names)) or ticks
    shapes += [small_text(left - 5, top + cell * (row + 0.5) + 4, text, "end") for row, text in places]
    places = list(enumerate(map(str, image.column_names))) or _cell_ticks(columns)
    centred = apart([(left + width * (column + 0.5), text) for column, text in places])
    shapes += [small_text(x, top + height + 15, text, "middle") for x, text in centred]
    shapes.append(small_text((left + right) / 2, top + height + 32, image.columns, "middle"))
    ramp = np.linspace(1, -1, 64)[:, None]
    shapes.append(Picture(x=right + 12, y=top, width=10, height=height, png=_png(_rgba(ramp))))
    shapes.append(rectangle(right + 12, top, 10, height, stroke=INK, opacity=0.3))
    # An arrow: there are values beyond the scale.
    beyond = bool((np.nan_to_num(np.abs(image.z)) > image.end * (1 + 1e-9)).any())
    ends = ((image.end, 10.0), (0.0, height / 2 + 4), (-image.end, height))
    for value, y in ends:
        arrow = "" if not value or not beyond else "≥" if value > 0 else "≤"
        shapes.append(small_text(right + 25, top + y, f"{arrow}{value:.2g}"))
    return Drawing(WIDTH, top + height + 42, shapes)


def _cell(image: Image, row: int, column: int, color: Array, box: tuple[float, float, float, float]) -> list[Shape]:
    left, top, width, height = box
    red, green, blue, alpha = (int(part) for part in color)
    shapes: list[Shape] = [rectangle(*box, fill=f"#{red:02x}{green:02x}{blue:02x}", opacity=alpha / 255)]
    shapes.append(rectangle(*box, stroke=INK, opacity=0.2))
    text = image.texts[row][column]
    strong = alpha > 150
    if image.hatched is not None and image.hatched[row, column]:
        shapes.append(Path(lines=_hatching(*box), stroke=INK, opacity=0.22))
        strong = False if alpha < 190 else strong
    texts = text.split("\n") if text else []
    first = top + height / 2 - 13 * (len(texts) - 1) / 2 + 4
    color_of_text = "#ffffff" if strong else INK
    centre = left + width / 2
    shapes += [
        Text(x=centre, y=first + 13 * i, text=line, anchor="middle", size=SMALL, fill=color_of_text)
        for i, line in enumerate(texts)
    ]
    return shapes


def _hatching(x: float, y: float, width: float, height: float) -> list[list[Point]]:
    """Diagonal lines across a box, and no further."""
    lines = []
    for cut in np.arange(7.0, width + height, 7.0).tolist():
        start = (x + max(0.0, cut - height), y + min(cut, height))
        end = (x + min(cut, width), y + max(0.0, cut - width))
        lines.append([start, end])
    return lines


def _rgba(share: Array) -> Array:
    known = np.nan_to_num(share).clip(-1, 1)
    colors = np.zeros((*share.shape, 4), dtype=np.uint8)
    colors[..., :3] = np.where((known > 0)[..., None], RED, BLUE)
    colors[..., 3] = np.round(255 * np.abs(known))
    return colors


def _png(rgba: Array) -> bytes:
    from PIL import Image as Pixels

    buffer = io.BytesIO()
    Pixels.fromarray(rgba, "RGBA").save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _cell_ticks(n: int) -> list[tuple[int, str]]:
    step = next(step for step in (1, 2, 4, 8, 16, 32) if n / step <= 5 or step == 32)
    return [(index, str(index)) for index in range(0, n, step)]
