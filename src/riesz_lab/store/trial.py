"""A trial's directory: the only place where its truth lives.

    RUNS/<recipe>/<metric>-seed<seed>-<id>/
        config.json           the settings; the id is their hash
        environment.json      where it ran: one entry per session
        history.jsonl         one line per epoch
        updates.jsonl         one line per epoch: what it did to each conv weight (see `updates`)
        pictures/             what an evaluation had to show, where a task makes pictures
        timing.jsonl          seconds, images/s and memory per epoch: what two equal trials may differ in
        checkpoints/          the state while it runs, gone once it is finished
        weights.safetensors   the final weights
        result.json           status, last and best scores; written last, so a trial with it is complete
        failure.json          why the last session failed, if it did; gone once another begins
        sessions.jsonl        when and where a sweep's workers stopped, failed or completed it
        lock                  held while a process works here

Everything but timing, environment and sessions is the same, bit for bit, however often the trial was killed and
continued.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, BusyError, ConfigError, LabError
from riesz_lab.utils import atomic

JSON_CAP = 64 * 2**20


class Trial:
    """One config and its directory."""

    def __init__(self, runs: Path | str, config: Config):
        kind = config.metric.partition("(")[0]
        self.config = config
        self.path = Path(runs) / config.recipe / f"{kind}-seed{config.seed}-{config.id}"
        self.checkpoints = self.path / "checkpoints"
        self.pictures = self.path / "pictures"
        self.result_file = self.path / "result.json"
        self.weights_file = self.path / "weights.safetensors"
        self.history_file = self.path / "history.jsonl"
        self.timing_file = self.path / "timing.jsonl"
        self.updates_file = self.path / "updates.jsonl"
        self.failure_file = self.path / "failure.json"
        self.sessions_file = self.path / "sessions.jsonl"

    @contextmanager
    def open(self) -> Iterator[Trial]:
        """Hold the trial: create its directory, lock it, tidy what a killed process left."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise atomic.cannot_write(self.path, error) from error
        with held(self.path):
            self._tidy()
            try:
                self.checkpoints.mkdir(exist_ok=True)
            except OSError as error:
                raise atomic.cannot_write(self.checkpoints, error) from error
            self._write_config()
            # From here on, a trial that is interrupted is to be continued: an old failure is not its state.
            self.failure_file.unlink(missing_ok=True)
            yield self

    def result(self) -> dict[str, Any] | None:
        """The result, if the trial is complete."""
        return read_json(self.result_file) if self.result_file.exists() else None

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        """All rows at once: the file never holds more or less than the state it belongs to."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        atomic.write_bytes(self.history_file, lines.encode())

    def add_picture(self, name: str, png: bytes) -> None:
        try:
            self.pictures.mkdir(exist_ok=True)
        except OSError as error:
            raise atomic.cannot_write(self.pictures, error) from error
        atomic.write_bytes(self.pictures / name, png)

    def add_timing(self, row: dict[str, Any]) -> None:
        _append(self.timing_file, row)

    def add_updates(self, row: dict[str, Any]) -> None:
        _append(self.updates_file, row)

    def keep_updates(self, epochs: int) -> None:
        """Drop what was written after the first so many epochs: it is computed again."""
        if not self.updates_file.exists():
            return
        kept = b""
        for line in self.updates_file.read_bytes().splitlines(keepends=True):
            try:
                if json.loads(line)["epoch"] > epochs:
                    continue
            except (ValueError, KeyError, TypeError):  # torn by a kill
                continue
            kept += line
        atomic.write_bytes(self.updates_file, kept)

    def add_event(self, event: str) -> None:
        """Tell when and where something happened: stopped, failed, completed."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        _append(self.sessions_file, {"event": event, "time": now, "process": os.getpid(), "host": socket.gethostname()})

    def fail(self, reason: str, details: str = "") -> None:
        """Record why a session failed."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "config.json").exists():
            self._write_config()
        atomic.write_json(self.failure_file, {"reason": reason, "details": details})

    def add_session(self, environment: dict[str, Any]) -> None:
        """Record where this session runs, if it differs from the last one."""
        file = self.path / "environment.json"
        try:
            sessions = read_json(file) if file.exists() else []
        except BadFileError:
            sessions = []
        if not isinstance(sessions, list) or sessions[-1:] != [environment]:
            atomic.write_json(file, [*sessions, environment] if isinstance(sessions, list) else [environment])

    def finish(self, weights: bytes, result: dict[str, Any]) -> None:
        """Write the final weights, then the result that makes the trial complete, then drop the checkpoints."""
        if self.result_file.exists():
            raise BusyError(f"trial {self.path} was completed by another process, in spite of its lock; left as it is")
        atomic.write_bytes(self.weights_file, weights)
        atomic.write_json(self.result_file, result)
        atomic.remove_directory(self.checkpoints)

    def _write_config(self) -> None:
        file = self.path / "config.json"
        if not file.exists():
            atomic.write_json(file, self.config.to_dict())
        elif read_config(file) != self.config:
            raise LabError(f"{file} holds other settings than its directory's name says; move the directory away")

    def _tidy(self) -> None:
        for folder in (self.path, self.checkpoints, self.pictures):
            for left in folder.glob(".*.tmp"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        if self.result_file.exists():
            atomic.remove_directory(self.checkpoints)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a trial's directory, so that no other process works in it; BusyError if one does."""
    try:
        lock = open(path / "lock", "a+")  # noqa: SIM115 - closed below, and by the kernel if we are killed
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    with lock:
        if not _try_lock(lock):
            lock.seek(0)
            raise BusyError(
                f"trial {path} is being trained by {lock.read(200).strip() or 'another process'}; a second process "
                "would overwrite its files. Wait for it, stop it, or choose another seed"
            )
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield


def _append(path: Path, row: dict[str, Any]) -> None:
    try:
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise atomic.cannot_write(path, error) from error


def read_json(path: Path) -> Any:
    """A JSON file of this store, or an error that names it."""
    try:
        if path.stat().st_size > JSON_CAP:
            raise BadFileError(f"{path} is larger than {JSON_CAP} bytes: not a file of this store")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFileError(f"{path} cannot be read as JSON: {error}") from None


def read_config(path: Path) -> Config:
    """A stored config, or an error that names the file."""
    try:
        return Config.from_dict(read_json(path))
    except ConfigError as error:
        raise BadFileError(f"{path}: {error}") from None


def _try_lock(file: IO[str]) -> bool:
    """An advisory lock on the open file: the kernel drops it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
