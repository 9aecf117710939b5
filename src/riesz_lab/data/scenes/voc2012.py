"""PascalVOC 2012 segmentation in its public layout, below one folder or its VOCdevkit/VOC2012:

JPEGImages/<name>.jpg
SegmentationClass/<name>.png             palette images; 255 is void
ImageSets/Segmentation/{train,val}.txt   one name per line
"""

from __future__ import annotations

import re
from pathlib import Path

from riesz_lab.data.files import File
from riesz_lab.data.scenes.labels import Labels, plain, voc_colours
from riesz_lab.data.scenes.scene import Scene
from riesz_lab.errors import BadFileError, MissingDataError

NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
LABELS = plain(NAMES, voc_colours(len(NAMES)), void=255)
LISTS = {"train": "train.txt", "test": "val.txt"}
"""The test images' masks are not public: as everybody, we test on val."""


def labels(which: str) -> Labels:
    return LABELS


def scenes(folder: Path, split: str) -> tuple[Scene, ...]:
    root = folder / "VOCdevkit" / "VOC2012" if (folder / "VOCdevkit" / "VOC2012").is_dir() else folder
    listing = root / "ImageSets" / "Segmentation" / LISTS[split]
    if not listing.is_file():
        raise MissingDataError(
            f"{listing} is not there; expected VOC2012's JPEGImages, SegmentationClass and ImageSets in {folder}, or "
            "in its VOCdevkit/VOC2012"
        )
    found = []
    for name in listing.read_text(encoding="utf-8", errors="replace").split():
        # A name becomes part of a path.
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise BadFileError(f"{listing} names {name[:100]!r}; allowed: letters, digits and _")
        image, mask = root / "JPEGImages" / f"{name}.jpg", root / "SegmentationClass" / f"{name}.png"
        for file in (image, mask):
            if not file.is_file():
                raise MissingDataError(f"{file} is not there, and {listing} names it")
        found.append(Scene(File(image), File(mask)))
    if not found:
        raise BadFileError(f"{listing} names no image")
    return tuple(found)
