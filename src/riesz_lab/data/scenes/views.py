"""How a network sees a scene: its size, and random augmentation.

Augmentation follows from a seed per scene and epoch alone: it does not depend on the process or the order of decoding.
"""

import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from riesz_lab.data.scenes.labels import VOID
from riesz_lab.data.scenes.scene import Pixels

MEAN_COLOUR = (124, 116, 104)
"""ImageNet's: outside of an image, pixels are zero after normalisation."""
SCALES = (0.5, 2.0)
COLOUR = 0.25
"""Brightness, contrast and saturation change by up to this fraction."""


@dataclass(frozen=True)
class View:
    """Size and augmentation."""

    height: int  # of the network's input
    width: int
    resize: bool  # resize every scene to this size first; otherwise they are cropped to it
    whole: bool = False  # keep the size of scenes, without augmentation; height and width are ignored
    augment: str = "none"  # "none", "flip", or "scale-crop-flip-colour"

    def first(self, pixels: Pixels) -> Pixels:
        """The part that is the same in every epoch."""
        return pixels.resized(self.width, self.height) if self.resize and not self.whole else pixels

    def then(self, pixels: Pixels, seed: int) -> Pixels:
        """The random part, and the crop."""
        if self.whole:
            return pixels
        rng = random.Random(seed)
        if self.augment == "scale-crop-flip-colour":
            scale = rng.uniform(*SCALES)
            width, height = pixels.image.size
            pixels = pixels.resized(max(1, round(width * scale)), max(1, round(height * scale)))
            pixels = self._cropped(pixels, rng.random(), rng.random())
        elif not self.resize:
            pixels = self._cropped(pixels, 0.5, 0.5)
        if self.augment != "none" and rng.random() < 0.5:
            pixels = pixels.map(lambda image, _: ImageOps.mirror(image), None, None, None)
        if self.augment == "scale-crop-flip-colour":
            image = pixels.image
            for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
                image = kind(image).enhance(rng.uniform(1 - COLOUR, 1 + COLOUR))
            pixels = Pixels(image, pixels.classes, pixels.objects)
        return pixels

    def _cropped(self, pixels: Pixels, across: float, down: float) -> Pixels:
        """A window of this size, at these fractions of the margin; outside of the scene it is void."""
        left = round(across * (pixels.image.width - self.width))
        top = round(down * (pixels.image.height - self.height))

        def window(image: Image.Image, fill: int | tuple[int, int, int]) -> Image.Image:
            out = Image.new(image.mode, (self.width, self.height), fill)
            out.paste(image, (-left, -top))
            return out

        return pixels.map(window, MEAN_COLOUR, VOID, 0)


def edges(objects_HW: np.ndarray) -> np.ndarray:
    """Pixels that belong to another object than one of their four neighbours."""
    border = np.zeros(objects_HW.shape, bool)
    across = objects_HW[:, 1:] != objects_HW[:, :-1]
    down = objects_HW[1:] != objects_HW[:-1]
    border[:, 1:] |= across
    border[:, :-1] |= across
    border[1:] |= down
    border[:-1] |= down
    return border
