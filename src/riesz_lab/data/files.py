"""Files of a dataset that nobody vouches for: read up to a cap, decoded only as the formats that are named."""

from __future__ import annotations

import functools
import io
import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from riesz_lab.errors import BadFileError

MOST_PIXELS = 4_000_000
FILE_CAP = 32 * 2**20
MOST_MEMBERS = 100_000


@dataclass(frozen=True)
class File:
    """A file, or a member of a zip archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    def read(self) -> bytes:
        """Its bytes, if they are not too many."""
        if not self.member:
            size = self.path.stat().st_size
            self._check(size)
            return self.path.read_bytes()
        archive = _archive(self.path, os.getpid())
        self._check(archive.getinfo(self.member).file_size)
        with archive.open(self.member) as stream:
            # The announced size may be a lie; the cap is not.
            data = stream.read(FILE_CAP + 1)
        self._check(len(data))
        return data

    def _check(self, size: int) -> None:
        if size > FILE_CAP:
            raise BadFileError(f"{self} is larger than {FILE_CAP} bytes")


def members(path: Path) -> list[str]:
    """The names in a zip archive."""
    try:
        names = _archive(path, os.getpid()).namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise BadFileError(f"{path} cannot be read as a zip archive: {error}") from None
    if len(names) > MOST_MEMBERS:
        raise BadFileError(f"{path} has {len(names)} members; allowed: {MOST_MEMBERS}")
    return names


def decode(file: File, formats: tuple[str, ...], *, size: tuple[int, int] | None = None) -> Image.Image:
    """An image of one of these formats, decoded; with `size`, only if it is (width, height)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(file.read()), formats=formats) as image:
                width, height = image.size
                if size is not None and image.size != size:
                    raise BadFileError(f"{file} has {width}x{height} pixels; allowed: {size[0]}x{size[1]}")
                if width * height > MOST_PIXELS:
                    raise BadFileError(f"{file} has {width}x{height} pixels; allowed: {MOST_PIXELS:,} in all")
                image.load()
                return image.copy()
    except BadFileError:
        raise
    except Exception as error:  # decoders raise anything on damaged files
        told = f"cannot be read as an image ({', '.join(formats)})"
        raise BadFileError(f"{file} {told}: {error}") from None


@functools.lru_cache(maxsize=8)
def _archive(path: Path, process: int) -> zipfile.ZipFile:
    # One handle per process: a forked one would share, and move, the position in the file.
    return zipfile.ZipFile(path)
