"""CIFAR-10 in any of three layouts below one folder, tried in this order:

    cifar-10-batches-bin/data_batch_1.bin ... test_batch.bin    the binary release
    cifar-10-batches-py/data_batch_1 ... test_batch             the python release, through a restricted unpickler
    {train,test}/<class>/<image>.jpg                            images by class

A record of the binary release is one byte of label, then 1024 bytes of each of red, green and blue.
"""

from pathlib import Path

import torch
from torch import Tensor

from riesz_lab.data.images import folder as by_class
from riesz_lab.data.images import unpickle
from riesz_lab.data.images.types import Images
from riesz_lab.errors import BadFileError, MissingDataError
from riesz_lab.utils import atomic

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
RECORDS = 10_000
RECORD = 1 + 3 * 32 * 32
SIDE = 32


def layout(folder: Path) -> str:
    """The first complete one: "bin", "py" or "folder"."""
    names = [name for split in BATCHES.values() for name in split]
    if all((folder / "cifar-10-batches-bin" / f"{name}.bin").is_file() for name in names):
        return "bin"
    if all((folder / "cifar-10-batches-py" / name).is_file() for name in names):
        return "py"
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        for split in ("train", "test"):
            classes = tuple(path.name for path in by_class.class_folders(folder / split))
            if classes != CLASSES:
                raise BadFileError(f"{folder / split}: expected the classes {CLASSES}, got {classes}")
        return "folder"
    raise MissingDataError(
        f"CIFAR-10 is not in {folder}: expected cifar-10-batches-bin/data_batch_1.bin and its siblings, "
        "cifar-10-batches-py/data_batch_1 and its siblings, or {train,test}/<class>/<image>.jpg"
    )


def load(folder: Path, split: str) -> Images:
    kind = layout(folder)
    if kind == "folder":
        return by_class.load(folder / split, SIDE)
    read = _binary if kind == "bin" else _python
    parts = [read(folder, name) for name in BATCHES[split]]
    rows = torch.cat([pixels for pixels, _ in parts])
    images_NHWC = rows.reshape(-1, 3, SIDE, SIDE).permute(0, 2, 3, 1).contiguous()
    return Images(images_NHWC, torch.cat([labels for _, labels in parts]))


def pack(source: Path, folder: Path) -> list[Path]:
    """Write images by class, `source/{train,test}/<class>/<image>.jpg`, as the binary release, which loads faster.

    Images are shuffled with a fixed seed, because those of the release are.

    Returns:
        The files written.
    """
    if layout(source) != "folder":
        raise BadFileError(f"expected images by class, {{train,test}}/<class>/<image>.jpg, got a release: {source}")
    written = []
    for split, names in BATCHES.items():
        images = load(source, split)
        if len(images) != RECORDS * len(names):
            raise BadFileError(f"expected {RECORDS * len(names)} images in {source / split}, got {len(images)}")
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        pixels = images.images_NHWC[order].permute(0, 3, 1, 2).reshape(len(images), -1)
        records = torch.cat([images.labels_N[order].to(torch.uint8)[:, None], pixels], 1)
        for name, part in zip(names, torch.split(records, RECORDS), strict=True):
            path = folder / "cifar-10-batches-bin" / f"{name}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, part.numpy().tobytes())
            written.append(path)
    return written


def _binary(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    path = folder / "cifar-10-batches-bin" / f"{name}.bin"
    size = path.stat().st_size
    if size != RECORDS * RECORD:
        raise BadFileError(f"{path}: expected {RECORDS} records of {RECORD} bytes, got {size} bytes")
    records = torch.from_file(str(path), size=size, dtype=torch.uint8).reshape(RECORDS, RECORD)
    labels = records[:, 0].long()
    if labels.max() > 9:
        raise BadFileError(f"{path}: expected labels 0 to 9, got {int(labels.max())}")
    return records[:, 1:], labels


def _python(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    path = folder / "cifar-10-batches-py" / name
    rows, labels = unpickle.load_batch(path)
    if len(rows) != RECORDS:
        raise BadFileError(f"{path}: expected {RECORDS} images, got {len(rows)}")
    return rows, torch.tensor(labels)
