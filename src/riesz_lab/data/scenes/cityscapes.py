"""Cityscapes in its public layout:

leftImg8bit/{train,val}/<city>/<name>_leftImg8bit.png
gtFine/{train,val}/<city>/<name>_gtFine_labelIds.png      34 labels
gtFine/{train,val}/<city>/<name>_gtFine_instanceIds.png   objects
"""

from pathlib import Path

from riesz_lab.data.files import File, existing
from riesz_lab.data.scenes.labels import BLACK, VOID, Labels
from riesz_lab.data.scenes.scene import Scene
from riesz_lab.errors import MissingDataError

# The benchmark's label map: name, colour, whether it is one of the 19 that are trained on. The position is the labelId;
# the position among those trained on is the trainId. (The 35th label, licence plate, is -1 and never drawn.)
LABEL_MAP = (
    ("unlabeled", BLACK, False), ("ego vehicle", BLACK, False), ("rectification border", BLACK, False),
    ("out of roi", BLACK, False), ("static", BLACK, False), ("dynamic", (111, 74, 0), False),
    ("ground", (81, 0, 81), False), ("road", (128, 64, 128), True), ("sidewalk", (244, 35, 232), True),
    ("parking", (250, 170, 160), False), ("rail track", (230, 150, 140), False), ("building", (70, 70, 70), True),
    ("wall", (102, 102, 156), True), ("fence", (190, 153, 153), True), ("guard rail", (180, 165, 180), False),
    ("bridge", (150, 100, 100), False), ("tunnel", (150, 120, 90), False), ("pole", (153, 153, 153), True),
    ("polegroup", (153, 153, 153), False), ("traffic light", (250, 170, 30), True),
    ("traffic sign", (220, 220, 0), True), ("vegetation", (107, 142, 35), True), ("terrain", (152, 251, 152), True),
    ("sky", (70, 130, 180), True), ("person", (220, 20, 60), True), ("rider", (255, 0, 0), True),
    ("car", (0, 0, 142), True), ("truck", (0, 0, 70), True), ("bus", (0, 60, 100), True),
    ("caravan", (0, 0, 90), False), ("trailer", (0, 0, 110), False), ("train", (0, 80, 100), True),
    ("motorcycle", (0, 0, 230), True), ("bicycle", (119, 11, 32), True),
)  # fmt: skip
SPLITS = {"train": "train", "test": "val"}
"""The labels of the test images are not public: the test split is val, as everywhere."""


def labels(which: str) -> Labels:
    """All 34 labels, or the 19 that are trained on and void for the rest."""
    kept = [value for value, (_, _, trained) in enumerate(LABEL_MAP) if trained or which == "all"]
    values = {value: kept.index(value) if value in kept else VOID for value in range(len(LABEL_MAP))}
    return Labels(tuple(LABEL_MAP[v][0] for v in kept), tuple(LABEL_MAP[v][1] for v in kept), values)


def scenes(folder: Path, split: str) -> tuple[Scene, ...]:
    images, truth = (folder / kind / SPLITS[split] for kind in ("leftImg8bit", "gtFine"))
    for path in (images, truth):
        if not path.is_dir():
            raise MissingDataError(f"{path} is missing: expected Cityscapes' leftImg8bit and gtFine in {folder}")
    scenes = []
    for image in sorted(images.glob("*/*_leftImg8bit.png")):
        stem = f"{image.parent.name}/{image.name.removesuffix('_leftImg8bit.png')}_gtFine"
        masks = (truth / f"{stem}_{kind}.png" for kind in ("labelIds", "instanceIds"))
        scenes.append(Scene(File(image), *(existing(mask, f"expected for {image}") for mask in masks)))
    if not scenes:
        raise MissingDataError(f"{images}: expected <city>/<name>_leftImg8bit.png, got none")
    return tuple(scenes)
