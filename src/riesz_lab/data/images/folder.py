"""Images in a folder by class: `<folder>/<class>/<image>.jpg` or .png, all of one size."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
import torch

from riesz_lab.data.files import IMAGE_FORMATS, IMAGE_SUFFIXES, File, decode
from riesz_lab.data.images.types import Images
from riesz_lab.errors import MissingDataError


def class_folders(folder: Path) -> list[Path]:
    """The classes, in alphabetical order: their position is the label."""
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is missing: expected {folder}/<class>/<image>.jpg")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise MissingDataError(f"{folder}: expected {folder}/<class>/<image>.jpg, got no folder")
    return folders


def load(folder: Path, side: int) -> Images:
    """Every image of every class; each must be `side` x `side`."""
    files: list[Path] = []
    labels: list[int] = []
    for label, class_folder in enumerate(class_folders(folder)):
        names = sorted(path for path in class_folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
        if not names:
            raise MissingDataError(f"{class_folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), got none")
        files += names
        labels += [label] * len(names)
    images_NHWC = torch.empty(len(files), side, side, 3, dtype=torch.uint8)
    pixels = images_NHWC.numpy()
    # Decoding releases the GIL, so threads help.
    with ThreadPoolExecutor() as pool:
        for index, image_HWC in enumerate(pool.map(read, files, repeat(side))):
            pixels[index] = image_HWC
    return Images(images_NHWC, torch.tensor(labels))


def read(path: Path, side: int) -> np.ndarray:
    """One image as HWC bytes. Only the named formats are tried, and no image of unexpected size is decoded."""
    return np.asarray(decode(File(path), IMAGE_FORMATS, size=(side, side)).convert("RGB"))
