"""Atomic writes: a kill or a full disk at any moment leaves the old file or the new one."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from riesz_lab.errors import ConfigError, LabError


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file as a whole: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:  # Ctrl-C leaves nothing either
        with suppress(OSError):  # on a read-only file system, even for a missing file
            temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raise if a file cannot be written there: better known before hours of training."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"output: expected a folder that exists, got {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"output: expected a file that can be written, got {path}")


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_directory(path: Path, fill: Callable[[Path], None]) -> None:
    """Create a directory atomically: `fill` writes into a temporary one, which is then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        fill(temporary)
        for file in temporary.iterdir():
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        sync_directory(temporary)
        if path.exists():
            return  # saved twice at one step (a resumed trial that was stopped at once): keep the first
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory atomically: it is renamed first, so that a kill leaves no half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.rename(temporary)
    except OSError:
        return  # missing, or without permission
    shutil.rmtree(temporary, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """A rename survives a power cut only once its directory is on the disk."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: OSError) -> LabError:
    return LabError(
        f"cannot write {path}: {error.strerror or error}. Nothing saved before is lost: make room or fix the "
        "permissions, then run the same command to continue"
    )
