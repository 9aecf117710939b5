"""Images and masks of your own, two folders per split, below a folder with the name of the dataset:

{train,test}/images/<name>.jpg   JPEG or PNG
{train,test}/masks/<name>.png    0 for the first class, 1 for the second, ...; 255 is void
classes.txt                      the names of the classes, one per line, in this order
"""

from pathlib import Path

from riesz_lab.data.files import IMAGE_SUFFIXES, File, existing
from riesz_lab.data.scenes.labels import Labels, plain, voc_colours
from riesz_lab.data.scenes.scene import Scene, Scenes
from riesz_lab.errors import BadFileError, MissingDataError

MOST_CLASSES = 254


def load(folder: Path) -> Scenes:
    train, test = (paired(folder / split / "images", folder / split / "masks") for split in ("train", "test"))
    return Scenes(train, test, _labels(folder / "classes.txt"))


def paired(images: Path, masks: Path) -> tuple[Scene, ...]:
    """The images of one folder with the masks of the same names in the other."""
    return match(_by_name(images), _by_name(masks), str(images), str(masks))


def match(images: dict[str, File], masks: dict[str, File], image_folder: str, mask_folder: str) -> tuple[Scene, ...]:
    for files, others, folder in ((images, masks, mask_folder), (masks, images, image_folder)):
        if missing := sorted(set(files) - set(others)):
            more = f" ({len(missing)} files like it)" if len(missing) > 1 else ""
            raise MissingDataError(f"{files[missing[0]]} has no counterpart in {folder}: expected the same name{more}")
    if not images:
        raise MissingDataError(f"{image_folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), got none")
    return tuple(Scene(images[name], masks[name]) for name in sorted(images))


def _by_name(folder: Path) -> dict[str, File]:
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is missing")
    files: dict[str, File] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith("."):
            if path.stem in files:
                raise BadFileError(f"{path} and {files[path.stem]}: expected one file of a name, got two")
            files[path.stem] = File(path)
    return files


def _labels(listing: Path) -> Labels:
    existing(listing, "the names of the classes, one per line, in the order of the masks' values")
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    names = tuple(line.strip() for line in lines if line.strip())
    if not 2 <= len(names) <= MOST_CLASSES:
        raise BadFileError(f"{listing}: expected 2 to {MOST_CLASSES} classes, got {len(names)}")
    return plain(names, voc_colours(len(names)), void=255)
