"""Grids of small pictures, as PNG: what a network makes of a scene, beside the scene and the truth."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

GAP = 4
WIDEST = 256


def grid(rows: Sequence[Sequence[np.ndarray]]) -> bytes:
    """Rows of images (HW3, uint8), each scaled down to 256 columns at most, on white."""
    tiles = [[_tile(image) for image in row] for row in rows]
    height = max(tile.height for row in tiles for tile in row)
    width = max(tile.width for row in tiles for tile in row)
    columns = max(map(len, tiles))
    canvas = Image.new("RGB", (columns * (width + GAP) - GAP, len(tiles) * (height + GAP) - GAP), "white")
    for y, row in enumerate(tiles):
        for x, tile in enumerate(row):
            canvas.paste(tile, (x * (width + GAP), y * (height + GAP)))
    out = io.BytesIO()
    canvas.save(out, "PNG", optimize=True)
    return out.getvalue()


def _tile(image: np.ndarray) -> Image.Image:
    tile = Image.fromarray(image)
    tile.thumbnail((WIDEST, WIDEST))
    return tile
