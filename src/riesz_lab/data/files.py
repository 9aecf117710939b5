"""Untrusted files of a dataset: read up to a cap, decoded only as the named formats."""

import functools
import io
import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from riesz_lab.errors import BadFileError, MissingDataError

MOST_PIXELS = 4_000_000
FILE_CAP = 32 * 2**20
MOST_MEMBERS = 100_000
IMAGE_FORMATS = ("JPEG", "PNG")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class File:
    """A file, or a member of a zip archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    def read(self) -> bytes:
        """The content, if it is no larger than `FILE_CAP`."""
        if not self.member:
            self._check(self.path.stat().st_size)
            return self.path.read_bytes()
        archive = _archive(self.path, os.getpid())
        self._check(archive.getinfo(self.member).file_size)
        with archive.open(self.member) as stream:
            # The announced size may be wrong; the cap holds.
            data = stream.read(FILE_CAP + 1)
        self._check(len(data))
        return data

    def _check(self, size: int) -> None:
        if size > FILE_CAP:
            raise BadFileError(f"{self} is larger than {FILE_CAP} bytes")


def existing(path: Path, reason: str) -> File:
    """The file, or a `MissingDataError` that says why it is expected."""
    if not path.is_file():
        raise MissingDataError(f"{path} is missing: {reason}")
    return File(path)


def members(path: Path) -> list[str]:
    try:
        names = _archive(path, os.getpid()).namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise BadFileError(f"{path} cannot be read as a zip archive: {error}") from None
    if len(names) > MOST_MEMBERS:
        raise BadFileError(f"{path}: expected at most {MOST_MEMBERS} members, got {len(names)}")
    return names


def decode(file: File, formats: tuple[str, ...], *, size: tuple[int, int] | None = None) -> Image.Image:
    """An image of one of these formats; with `size`, it must be (width, height)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(file.read()), formats=formats) as image:
                width, height = image.size
                if size is not None and image.size != size:
                    raise BadFileError(f"{file}: expected {size[0]}x{size[1]} pixels, got {width}x{height}")
                if width * height > MOST_PIXELS:
                    raise BadFileError(f"{file}: expected at most {MOST_PIXELS:,} pixels, got {width}x{height}")
                image.load()
                decoded: Image.Image = image.copy()
                return decoded
    except BadFileError:
        raise
    except Exception as error:  # decoders raise anything on damaged files
        raise BadFileError(f"{file} cannot be read as an image ({', '.join(formats)}): {error}") from None


@functools.lru_cache(maxsize=8)
def _archive(path: Path, process: int) -> zipfile.ZipFile:
    # One handle per process: a forked one would share the position in the file.
    return zipfile.ZipFile(path)
