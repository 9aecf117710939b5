"""Load a dataset of images by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from riesz_lab.data.images import cifar10, idx, mnist5k
from riesz_lab.data.images.batches import as_image
from riesz_lab.data.images.builtin import builtin
from riesz_lab.data.images.types import Data, Images
from riesz_lab.errors import LabError, MissingDataError
from riesz_lab.utils.importing import load_object

READERS: dict[str, Callable[[Path, str], Images]] = {
    "mnist5k": lambda folder, split: mnist5k.load(split),
    "mnist": idx.load,
    "fashion-mnist": idx.load,
    "cifar10": cifar10.load,
}
"""From the folder of a built-in dataset and a split to its images."""


def check(name: str, folder: Path) -> None:
    """Raise if the dataset is missing; cheap."""
    if ":" in name:
        load_object("dataset", name)
        return
    try:
        for source in builtin(name).sources:
            if name == "cifar10":
                cifar10.layout(folder / name)
            else:
                idx.find(folder / name, source.name.removesuffix(".gz"))
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}. Get it with `riesz data fetch {name}`; if it is elsewhere, use --data-dir DIR or RIESZ_DATA"
        ) from None


def load(name: str, folder: Path) -> Data:
    """A built-in dataset by name, or the user's by import path."""
    if ":" in name:
        data = load_object("dataset", name)()
        if isinstance(data, Data):
            return data
        if isinstance(data, tuple) and len(data) == 2 and all(isinstance(split, (Images, Dataset)) for split in data):
            return from_pair(*data, name=name)
        raise LabError(f"dataset {name!r}: expected riesz_lab.Data, or (train, test), got {type(data).__name__}")
    known = builtin(name)
    train, test = (READERS[name](folder / name, split) for split in ("train", "test"))
    return Data(train=train, test=test, classes=10, channels=known.channels, mean=known.mean, std=known.std)


def from_pair(train: Any, test: Any, *, name: str = "your dataset") -> Data:
    """`Data` of two datasets with an attribute `classes`, such as those of torchvision."""
    classes = getattr(train, "classes", None)
    if classes is None:
        raise LabError(f"{name!r} has no `classes`; return riesz_lab.Data(train, test, classes=, channels=)")
    channels = train.images_NHWC.shape[-1] if isinstance(train, Images) else as_image(train[0][0]).shape[0]
    return Data(train=train, test=test, classes=len(classes), channels=channels)
