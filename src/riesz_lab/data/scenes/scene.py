"""A scene: an image and the class of each of its pixels, and, where there are any, which object each belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from riesz_lab.data.files import File, decode
from riesz_lab.data.images.types import Splits
from riesz_lab.data.scenes.labels import Labels
from riesz_lab.errors import BadFileError

IMAGE_FORMATS = ("JPEG", "PNG")
MASK_FORMATS = ("PNG",)


@dataclass(frozen=True)
class Scene:
    """Where a scene's pixels are.

    Attributes:
        image: JPEG or PNG.
        mask: PNG with one number per pixel, palette or grey.
        instances: PNG with one number per object, or None.
    """

    image: File
    mask: File
    instances: File | None = None

    def read(self, labels: Labels) -> Pixels:
        """Decode and check it."""
        image = decode(self.image, IMAGE_FORMATS).convert("RGB")
        mask = decode(self.mask, MASK_FORMATS)
        if mask.mode not in ("P", "L"):
            raise BadFileError(
                f"{self.mask} is a {mask.mode} image; a mask holds one class number per pixel: palette or 8-bit grey"
            )
        values = np.asarray(mask)
        if (wrong := labels.unknown_value(values)) is not None:
            raise BadFileError(f"{self.mask} holds the value {wrong}; allowed: {labels.allowed}")
        objects = None
        if self.instances is not None:
            objects = decode(self.instances, MASK_FORMATS)
            if objects.mode not in ("I", "I;16", "I;16B", "L"):
                raise BadFileError(f"{self.instances} is a {objects.mode} image; allowed: 8- or 16-bit grey")
            objects = Image.fromarray(np.asarray(objects).astype(np.int32))
        for file, other in ((self.mask, mask), (self.instances, objects)):
            if other is not None and other.size != image.size:
                raise BadFileError(
                    f"{file} has {_told(other.size)} pixels and its image {self.image} {_told(image.size)}; "
                    "allowed: equal sizes"
                )
        return Pixels(image, Image.fromarray(labels.table[values]), objects)


@dataclass(frozen=True)
class Pixels:
    """A decoded scene: RGB, classes (with `VOID`), numbers of objects."""

    image: Image.Image
    classes: Image.Image
    objects: Image.Image | None

    def resized(self, width: int, height: int) -> Pixels:
        """Pixels of the image are averaged, classes and objects are picked: there is nothing between two classes."""
        if self.image.size == (width, height):
            return self
        size = (width, height)
        return Pixels(
            self.image.resize(size, Image.Resampling.BICUBIC),
            self.classes.resize(size, Image.Resampling.NEAREST),
            None if self.objects is None else self.objects.resize(size, Image.Resampling.NEAREST),
        )


@dataclass(frozen=True)
class Scenes(Splits):
    """A dataset of scenes.

    Attributes:
        train, test: the scenes of each split.
        labels: what the values of the masks mean.
    """

    train: tuple[Scene, ...]
    test: tuple[Scene, ...]
    labels: Labels

    @property
    def instances(self) -> bool:
        """Whether every scene tells its objects apart."""
        return all(scene.instances is not None for scene in (*self.train, *self.test))


def _told(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
