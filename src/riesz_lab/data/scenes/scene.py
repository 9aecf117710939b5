"""A scene: an image, the class of each pixel and, in some datasets, the object it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from riesz_lab.data.files import IMAGE_FORMATS, File, decode
from riesz_lab.data.images.types import Splits
from riesz_lab.data.scenes.labels import Labels
from riesz_lab.errors import BadFileError

MASK_FORMATS = ("PNG",)


@dataclass(frozen=True)
class Scene:
    """The files of a scene.

    Attributes:
        image: JPEG or PNG.
        mask: PNG with one number per pixel, palette or grey.
        instances: PNG with one number per object, or None.
    """

    image: File
    mask: File
    instances: File | None = None

    def read(self, labels: Labels) -> "Pixels":
        image = decode(self.image, IMAGE_FORMATS).convert("RGB")
        mask = decode(self.mask, MASK_FORMATS)
        if mask.mode not in ("P", "L"):
            raise BadFileError(f"{self.mask}: expected a mask in palette or 8-bit grey, got a {mask.mode} image")
        values = np.asarray(mask)
        if (wrong := labels.unknown_value(values)) is not None:
            raise BadFileError(f"{self.mask}: expected values {labels.allowed}, got {wrong}")
        objects = None
        if self.instances is not None:
            objects = decode(self.instances, MASK_FORMATS)
            if objects.mode not in ("I", "I;16", "I;16B", "L"):
                raise BadFileError(f"{self.instances}: expected 8- or 16-bit grey, got a {objects.mode} image")
            objects = Image.fromarray(np.asarray(objects).astype(np.int32))
        for file, other in ((self.mask, mask), (self.instances, objects)):
            if other is not None and other.size != image.size:
                raise BadFileError(f"{file}: expected the size of {self.image}, {image.size}, got {other.size}")
        return Pixels(image, Image.fromarray(labels.table[values]), objects)


@dataclass(frozen=True)
class Pixels:
    """A decoded scene: RGB, classes (with `VOID`), numbers of objects."""

    image: Image.Image
    classes: Image.Image
    objects: Image.Image | None

    def resized(self, width: int, height: int) -> "Pixels":
        """Resize: the image is interpolated, classes and objects are not."""
        if self.image.size == (width, height):
            return self
        how = (Image.Resampling.BICUBIC, Image.Resampling.NEAREST, Image.Resampling.NEAREST)
        return self.map(lambda image, resampling: image.resize((width, height), resampling), *how)

    def map(self, change: Callable[[Image.Image, Any], Image.Image], *arguments: Any) -> "Pixels":
        """Change image, classes and objects, each with its own argument."""
        images = (self.image, self.classes, self.objects)
        parts = [
            None if each is None else change(each, argument) for each, argument in zip(images, arguments, strict=True)
        ]
        return Pixels(*parts)  # type: ignore[arg-type]


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
        return all(scene.instances is not None for scene in (*self.train, *self.test))
