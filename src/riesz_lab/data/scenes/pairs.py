"""Images and masks of your own, two folders per split, below a folder with the name of the dataset:

{train,test}/images/<name>.jpg   JPEG or PNG
{train,test}/masks/<name>.png    0 for the first class, 1 for the second, ...; 255 is void
classes.txt                      the names of the classes, one per line, in this order
"""

from __future__ import annotations

from pathlib import Path

from riesz_lab.data.files import File
from riesz_lab.data.scenes.labels import Labels, plain, voc_colours
from riesz_lab.data.scenes.scene import Scene, Scenes
from riesz_lab.errors import BadFileError, MissingDataError

SUFFIXES = (".jpg", ".jpeg", ".png")
MOST_CLASSES = 254


def load(folder: Path) -> Scenes:
    """Such a dataset."""
    train, test = (paired(folder / split / "images", folder / split / "masks") for split in ("train", "test"))
    return Scenes(train, test, _labels(folder / "classes.txt"))


def paired(images: Path, masks: Path) -> tuple[Scene, ...]:
    """The images of one folder with the masks of the same names of the other."""
    return match(_by_name(images), _by_name(masks), str(images), str(masks))


def match(images: dict[str, File], masks: dict[str, File], image_folder: str, mask_folder: str) -> tuple[Scene, ...]:
    for mine, others, place in ((images, masks, mask_folder), (masks, images, image_folder)):
        if missing := sorted(set(mine) - set(others)):
            raise MissingDataError(
                f"{mine[missing[0]]} has no counterpart in {place}: expected the same name"
                + (f" ({len(missing)} files like it)" if len(missing) > 1 else "")
            )
    if not images:
        raise MissingDataError(f"{image_folder} holds no image; allowed: {', '.join(SUFFIXES)}")
    return tuple(Scene(images[name], masks[name]) for name in sorted(images))


def _by_name(folder: Path) -> dict[str, File]:
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is not there")
    found: dict[str, File] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES and not path.name.startswith("."):
            if path.stem in found:
                raise BadFileError(f"{path} and {found[path.stem]} have one name; which of them is meant?")
            found[path.stem] = File(path)
    return found


def _labels(listing: Path) -> Labels:
    if not listing.is_file():
        raise MissingDataError(f"{listing} is not there: the names of the classes, one per line, in the masks' order")
    names = tuple(
        line.strip() for line in listing.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
    )
    if not 2 <= len(names) <= MOST_CLASSES:
        raise BadFileError(f"{listing} names {len(names)} classes; allowed: 2 to {MOST_CLASSES}")
    return plain(names, voc_colours(len(names)), void=255)
