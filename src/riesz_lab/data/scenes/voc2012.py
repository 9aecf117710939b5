"""PascalVOC 2012 segmentation in its public layout, below one folder or its VOCdevkit/VOC2012:

JPEGImages/<name>.jpg
SegmentationClass/<name>.png             palette images; 255 is void
ImageSets/Segmentation/{train,val}.txt   one name per line
"""

import re
from pathlib import Path

from riesz_lab.data.files import existing
from riesz_lab.data.scenes.labels import plain, voc_colours
from riesz_lab.data.scenes.scene import Scene
from riesz_lab.errors import BadFileError

NAMES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
LABELS = plain(NAMES, voc_colours(len(NAMES)), void=255)
LISTS = {"train": "train.txt", "test": "val.txt"}
"""The masks of the test images are not public: the test split is val, as everywhere."""


def scenes(folder: Path, split: str) -> tuple[Scene, ...]:
    root = folder / "VOCdevkit" / "VOC2012" if (folder / "VOCdevkit" / "VOC2012").is_dir() else folder
    expected = f"expected JPEGImages, SegmentationClass and ImageSets in {folder}, or in its VOCdevkit/VOC2012"
    listing = existing(root / "ImageSets" / "Segmentation" / LISTS[split], expected).path
    names = listing.read_text(encoding="utf-8", errors="replace").split()
    for name in names:
        # A name becomes part of a path.
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            raise BadFileError(f"{listing}: expected names of letters, digits and _, got {name[:100]!r}")
    if not names:
        raise BadFileError(f"{listing} names no image")
    files = ((f"JPEGImages/{name}.jpg", f"SegmentationClass/{name}.png") for name in names)
    return tuple(Scene(*(existing(root / file, f"{listing} names it") for file in pair)) for pair in files)
