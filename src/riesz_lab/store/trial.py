"""Writing a trial: its directory is the only record of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, BusyError, LabError
from riesz_lab.store.files import Row, TrialFiles, append_row, make_folder, read_config, read_json
from riesz_lab.store.result import Result, read_result
from riesz_lab.utils import atomic


class Trial(TrialFiles):
    """One config and its directory."""

    def __init__(self, runs: Path | str, config: Config):
        kind = config.metric.partition("(")[0]
        super().__init__(Path(runs) / config.recipe / f"{kind}-seed{config.seed}-{config.id}")
        self.config = config

    @contextmanager
    def open(self) -> Iterator[Trial]:
        """Create the directory, lock it, remove what a killed process left."""
        make_folder(self.path, parents=True)
        with lock(self.path):
            self._tidy()
            make_folder(self.checkpoints)
            self._write_config()
            # From here on, an interrupted trial is to be continued: an old failure is not its state.
            self.failure_file.unlink(missing_ok=True)
            yield self

    def result(self) -> Result | None:
        """The result, if the trial is complete."""
        return read_result(self.result_file)

    def write_history(self, rows: list[Row]) -> None:
        """All rows at once: the file never holds more or less than the state it belongs to."""
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        atomic.write_bytes(self.history_file, lines.encode())

    def add_picture(self, name: str, png: bytes) -> None:
        make_folder(self.pictures)
        atomic.write_bytes(self.pictures / name, png)

    def add_timing(self, row: Row) -> None:
        append_row(self.timing_file, row)

    def add_updates(self, row: Row) -> None:
        append_row(self.updates_file, row)

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
        """Record when and where the trial stopped, failed or completed."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        append_row(
            self.sessions_file, {"event": event, "time": now, "process": os.getpid(), "host": socket.gethostname()}
        )

    def fail(self, reason: str, details: str = "") -> None:
        """Record why a session failed."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.config_file.exists():
            self._write_config()
        atomic.write_json(self.failure_file, {"reason": reason, "details": details})

    def add_session(self, environment: dict[str, Any]) -> None:
        """Record where this session runs, if it differs from the last one."""
        try:
            sessions = read_json(self.environment_file) if self.environment_file.exists() else []
        except BadFileError:
            sessions = []
        if not isinstance(sessions, list):
            sessions = []
        if sessions[-1:] != [environment]:
            atomic.write_json(self.environment_file, [*sessions, environment])

    def finish(self, weights: bytes, result: Result) -> None:
        """Write the final weights, then the result that makes the trial complete, then remove the checkpoints."""
        if self.result_file.exists():
            raise BusyError(f"trial {self.path} was completed by another process, in spite of its lock; left as it is")
        atomic.write_bytes(self.weights_file, weights)
        atomic.write_json(self.result_file, result.to_dict())
        atomic.remove_directory(self.checkpoints)

    def _write_config(self) -> None:
        if not self.config_file.exists():
            atomic.write_json(self.config_file, self.config.to_dict())
        elif read_config(self.config_file) != self.config:
            raise LabError(
                f"{self.config_file} holds other settings than its directory's name says; move the directory away"
            )

    def _tidy(self) -> None:
        for folder in (self.path, self.checkpoints, self.pictures):
            for left in folder.glob(".*.tmp"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        if self.result_file.exists():
            atomic.remove_directory(self.checkpoints)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Lock a trial's directory; BusyError if another process has. The kernel drops the lock when the process ends."""
    file = TrialFiles(path).lock_file
    try:
        held = FileLock(file, blocking=False).acquire()
    except Timeout:
        raise BusyError(
            f"trial {path} is being trained by {file.read_text().strip()[:200] or 'another process'}; a second process "
            "would overwrite its files. Wait for it, stop it, or choose another seed"
        ) from None
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    with held:
        file.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield
