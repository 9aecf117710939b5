"""How a scene is shown to a network: its size, and what chance does to it.

Chance comes from a seed per scene and epoch and from nowhere else: whoever decodes a scene, in whatever order, sees it
the same way.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from riesz_lab.data.scenes.labels import VOID
from riesz_lab.data.scenes.scene import Pixels

MEAN_COLOUR = (124, 116, 104)
"""ImageNet's: what is outside an image is zero once it is normalised."""
SCALES = (0.5, 2.0)
COLOUR = 0.25
"""Brightness, contrast and saturation change by up to this fraction."""


@dataclass(frozen=True)
class View:
    """Size and augmentation.

    Attributes:
        height, width: of what the network sees.
        whole: leave scenes as large as they are, without augmentation; height and width do not matter.
        resize: bring every scene to this size first; otherwise they are cropped to it.
        augment: "none", "flip", or "scale-crop-flip-colour".
    """

    height: int
    width: int
    resize: bool
    whole: bool = False
    augment: str = "none"

    def first(self, pixels: Pixels) -> Pixels:
        """What is the same in every epoch."""
        return pixels.resized(self.width, self.height) if self.resize and not self.whole else pixels

    def then(self, pixels: Pixels, seed: int) -> Pixels:
        """What chance does, and the crop."""
        if self.whole:
            return pixels
        chance = random.Random(seed)
        if self.augment == "scale-crop-flip-colour":
            scale = chance.uniform(*SCALES)
            width, height = pixels.image.size
            pixels = pixels.resized(max(1, round(width * scale)), max(1, round(height * scale)))
            pixels = self._cropped(pixels, chance.random(), chance.random())
        elif not self.resize:
            pixels = self._cropped(pixels, 0.5, 0.5)
        if self.augment != "none" and chance.random() < 0.5:
            pixels = _flipped(pixels)
        if self.augment == "scale-crop-flip-colour":
            image = pixels.image
            for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
                image = kind(image).enhance(chance.uniform(1 - COLOUR, 1 + COLOUR))
            pixels = Pixels(image, pixels.classes, pixels.objects)
        return pixels

    def _cropped(self, pixels: Pixels, across: float, down: float) -> Pixels:
        """A window of this size, at these fractions of the room there is; what is outside the scene is void."""
        left = round(across * (pixels.image.width - self.width))
        top = round(down * (pixels.image.height - self.height))

        def window(image: Image.Image, fill: int | tuple[int, int, int]) -> Image.Image:
            out = Image.new(image.mode, (self.width, self.height), fill)
            out.paste(image, (-left, -top))
            return out

        return Pixels(
            window(pixels.image, MEAN_COLOUR),
            window(pixels.classes, VOID),
            None if pixels.objects is None else window(pixels.objects, 0),
        )


def _flipped(pixels: Pixels) -> Pixels:
    return Pixels(
        ImageOps.mirror(pixels.image),
        ImageOps.mirror(pixels.classes),
        None if pixels.objects is None else ImageOps.mirror(pixels.objects),
    )


def edges(objects_HW: np.ndarray) -> np.ndarray:
    """Where a pixel belongs to another object than one of its four neighbours."""
    found = np.zeros(objects_HW.shape, bool)
    across = objects_HW[:, 1:] != objects_HW[:, :-1]
    down = objects_HW[1:] != objects_HW[:-1]
    found[:, 1:] |= across
    found[:, :-1] |= across
    found[1:] |= down
    found[:-1] |= down
    return found
