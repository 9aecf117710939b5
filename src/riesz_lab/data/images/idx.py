"""MNIST's IDX files, gzip or plain: a big-endian header, then bytes.

    magic (4 bytes: 0, 0, 8 = uint8, number of dims), one 4-byte size per dim, the values

The header is checked before anything is allocated; no more than it announces is unpacked.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from riesz_lab.data.images.builtin import IDX_FILES
from riesz_lab.data.images.types import Images
from riesz_lab.errors import BadFileError, MissingDataError

MOST_IMAGES = 1_000_000
SIDE = 28


def load(folder: Path, split: str) -> Images:
    images, labels = IDX_FILES[:2] if split == "train" else IDX_FILES[2:]
    images_NHW, labels_N = read(find(folder, images), dims=3), read(find(folder, labels), dims=1)
    if len(images_NHW) != len(labels_N):
        raise BadFileError(f"{folder}: expected a label per {split} image, got {len(labels_N)} for {len(images_NHW)}")
    if labels_N.max() > 9:
        raise BadFileError(f"{folder}: expected {split} labels 0 to 9, got {int(labels_N.max())}")
    return Images(images_NHW.unsqueeze(-1), labels_N.long())


def find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise MissingDataError(f"{folder / name} (or {name}.gz) is missing")


def read(path: Path, dims: int) -> Tensor:
    """The tensor in an IDX file of bytes."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            header = file.read(4 + 4 * dims)
            if len(header) < 4 + 4 * dims or header[:4] != bytes((0, 0, 8, dims)):
                raise BadFileError(f"{path}: expected an IDX file of bytes with {dims} dims, got {header[:4]!r}")
            shape = struct.unpack(f">{dims}I", header[4:])
            if not 0 < shape[0] <= MOST_IMAGES or any(side != SIDE for side in shape[1:]):
                wanted = (f"1..{MOST_IMAGES}", *[SIDE] * (dims - 1))
                raise BadFileError(f"{path}: expected shape {wanted}, got {shape}")
            size = math.prod(shape)
            # One byte more than announced, to notice a longer file.
            values = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFileError(f"{path} cannot be read: {error}") from None
    if len(values) != size:
        got = "more" if len(values) > size else len(values)
        raise BadFileError(f"{path}: expected {size} values, as announced, got {got}")
    return torch.frombuffer(bytearray(values), dtype=torch.uint8).reshape(shape)
