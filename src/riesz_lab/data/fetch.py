"""Downloading and verifying datasets.

A download is kept only if its checksum is right, and never grows beyond its announced size. An archive is streamed:
only the expected regular files are written, each up to its cap, below the dataset's folder.
"""

import gzip
import hashlib
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pooch

from riesz_lab.data.images import cifar10, idx
from riesz_lab.data.images.builtin import Source, builtin
from riesz_lab.errors import BadFileError, LabError, MissingDataError, first_line
from riesz_lab.utils import atomic
from riesz_lab.utils.amounts import count

CHUNK = 2**20
SUMS = "SHA256SUMS"
MOST_MEMBERS = 100
MOST_OTHER = 2**20
"""Bytes of an unexpected member of an archive: more than a readme has."""


def fetch(name: str, folder: Path, *, quiet: bool = False) -> None:
    """Download what is missing of a dataset into `folder / name`, and unpack it."""
    known = builtin(name)
    target = folder / name
    if name == "cifar10" and (target / "cifar-10-batches-bin" / SUMS).is_file():
        return
    atomic.make_directory(target)
    for source in known.sources:
        _download(source, target, quiet)
    if name == "cifar10":
        archive = target / known.sources[0].name
        size = cifar10.RECORDS * cifar10.RECORD
        members = [f"cifar-10-batches-bin/{name}.bin" for split in cifar10.BATCHES.values() for name in split]
        unpack(archive, target, dict.fromkeys(members, size))
        archive.unlink()


def _download(source: Source, folder: Path, quiet: bool) -> None:
    def download(url: str, output_file: str, _: Any) -> None:
        """For pooch: stream to the file, show progress, stop at the announced size."""
        import requests
        from rich.progress import Progress

        with (
            requests.get(url, stream=True, timeout=30) as response,
            open(output_file, "wb") as file,
            Progress(disable=quiet or not sys.stderr.isatty()) as bar,
        ):
            response.raise_for_status()
            task = bar.add_task(url.rpartition("/")[2], total=source.size)
            for chunk in response.iter_content(CHUNK):
                if file.tell() + len(chunk) > source.size:
                    raise LabError(f"expected {source.size} bytes, as announced, got more")
                file.write(chunk)
                bar.update(task, completed=file.tell())

    try:
        pooch.retrieve(source.url, source.checksum, fname=source.name, path=folder, downloader=download)
    except Exception as error:  # every layer of the network has its own errors
        (folder / f"{source.name}.part").unlink(missing_ok=True)
        # An OSError of requests quotes its own objects; that there is no connection is all there is to say. Of its
        # kinds are a proxy that does not answer and a certificate that is not trusted.
        kinds = {kind.__name__ for kind in type(error).__mro__}
        offline = bool(kinds & {"ConnectionError", "Timeout"})
        reason = "there is no connection to it" if offline else first_line(error)
        raise MissingDataError(
            f"{source.name} could not be downloaded from {source.url}: {reason}; to put it there by hand, save it as "
            f"{folder / source.name} ({source.size} bytes, {source.checksum})"
        ) from None


def unpack(archive: Path, target: Path, expected: dict[str, int]) -> None:
    """Write the expected members of a tar.gz below `target`, and the sums of what was written beside them.

    Members are recognised by their exact names: no other name in the archive ever becomes a path.
    """
    sums: dict[str, str] = {}
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for number, member in enumerate(tar):
                if number >= MOST_MEMBERS:
                    raise BadFileError(f"{archive}: expected at most {MOST_MEMBERS} members, got more")
                if member.name in expected and member.isreg() and member.name not in sums:
                    if member.size != (wanted := expected[member.name]):
                        raise BadFileError(f"{archive}: {member.name}: expected {wanted} bytes, got {member.size}")
                    sums[member.name] = _write_member(tar, member, target / member.name)
                elif member.size > MOST_OTHER:
                    raise BadFileError(f"{archive}: {member.name[:100]!r}: unexpected, with {member.size} bytes")
                if len(sums) == len(expected):
                    break
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
        raise BadFileError(f"{archive} cannot be unpacked: {error}") from None
    if missing := sorted(set(expected) - set(sums)):
        raise BadFileError(f"{archive} lacks {missing[0]}")
    folder = (target / next(iter(expected))).parent
    lines = "".join(f"{digest}  {Path(name).name}\n" for name, digest in sorted(sums.items()))
    atomic.write_bytes(folder / SUMS, lines.encode())


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    stream = tar.extractfile(member)
    assert stream is not None  # a regular file
    path.parent.mkdir(exist_ok=True)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise BadFileError(f"{member.name}: expected {member.size} bytes, got {len(data)}")
    atomic.write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


# -- verifying -----------------------------------------------------------------------------------------------------


def verify(name: str, folder: Path) -> Iterator[tuple[str, bool, str]]:
    """Per file: its name, whether it is right, and a remark."""
    sources = builtin(name).sources
    if not sources:
        yield name, True, "comes inside a Python package"
    elif name == "cifar10":
        yield from _verify_cifar10(folder / name)
    else:
        yield from (_verify_idx(source, folder / name) for source in sources)


def _verify_idx(source: Source, target: Path) -> tuple[str, bool, str]:
    try:
        path = idx.find(target, source.name.removesuffix(".gz"))
    except MissingDataError:
        return source.name, False, f"missing; expected at {target / source.name}, {source.checksum}"
    if path.suffix == ".gz" and _digest(path, "md5") == source.checksum.partition(":")[2]:
        return path.name, True, "as published"
    try:
        content = _digest(path, "md5", gzip.open if path.suffix == ".gz" else open, cap=idx.MOST_IMAGES * 800)
    except (OSError, EOFError, zlib.error) as error:
        return path.name, False, f"cannot be read: {error}"
    if content == source.content:
        return path.name, True, "content as published"
    return path.name, False, f"content differs from what was published: md5 {content}, expected {source.content}"


def _verify_cifar10(target: Path) -> Iterator[tuple[str, bool, str]]:
    try:
        layout = cifar10.layout(target)
    except (MissingDataError, BadFileError) as error:
        yield "cifar10", False, str(error)
        return
    sums = target / "cifar-10-batches-bin" / SUMS
    if layout == "bin" and sums.is_file():
        for line in sums.read_text().splitlines()[:MOST_MEMBERS]:
            digest, _, file = line.partition("  ")
            path = sums.parent / os.path.basename(file)
            right = path.is_file() and _digest(path, "sha256") == digest
            yield path.name, right, "as unpacked" if right else f"differs from what was unpacked: expected {digest}"
        return
    for split in ("train", "test"):
        try:
            images = cifar10.load(target, split)
            yield f"{split} ({layout})", True, f"{count(len(images), 'image')}, well-formed; no checksum is published"
        except (BadFileError, MissingDataError) as error:
            yield f"{split} ({layout})", False, str(error)


def _digest(path: Path, kind: str, opener: Callable[..., Any] = open, cap: int = 2**32) -> str:
    digest = hashlib.new(kind)
    done = 0
    with opener(path, "rb") as file:
        while chunk := file.read(CHUNK):
            done += len(chunk)
            if done > cap:
                raise OSError(f"expected at most {cap} bytes, got more")
            digest.update(chunk)
    return digest.hexdigest()
