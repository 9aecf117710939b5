"""Writing a trial: its directory is the only record of it."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, BusyError, LabError
from riesz_lab.store.files import (
    Row,
    TrialFiles,
    append_row,
    read_config,
    read_json,
    read_rows,
    write_rows,
)
from riesz_lab.store.result import Result, read_result
from riesz_lab.utils import atomic


class Trial(TrialFiles):
    """One config and its directory."""

    def __init__(self, runs: Path | str, config: Config):
        kind = config.metric.partition("(")[0]
        super().__init__(Path(runs) / config.recipe / f"{kind}-seed{config.seed}-{config.id}")
        self.config = config

    @contextmanager
    def open(self) -> "Iterator[Trial]":
        """Create the directory, lock it, remove what a killed process left."""
        atomic.make_directory(self.path)
        with lock(self.path):
            self._tidy()
            atomic.make_directory(self.checkpoints)
            self._write_config()
            # From here on, an interrupted trial is to be continued: an old failure is not its state.
            self.failure_file.unlink(missing_ok=True)
            yield self

    def result(self) -> Result | None:
        return read_result(self.result_file)

    def write_history(self, rows: list[Row]) -> None:
        """All rows at once: the file never holds more or less than the state it belongs to."""
        write_rows(self.history_file, rows)

    def keep_updates(self, epochs: int) -> None:
        """Drop what was written after the first so many epochs: it is computed again."""
        if self.updates_file.exists():
            kept = [row for row in read_rows(self.updates_file) if row.get("epoch", epochs + 1) <= epochs]
            write_rows(self.updates_file, kept)

    def add_event(self, event: str) -> None:
        """Record when and where the trial stopped, failed or completed."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        row = {"event": event, "time": now, "process": os.getpid(), "host": socket.gethostname()}
        append_row(self.sessions_file, row)

    def fail(self, reason: str, details: str = "") -> None:
        with self._notes():
            if not self.config_file.exists():
                self._write_config()
            atomic.write_json(self.failure_file, {"reason": reason, "details": details})

    def add_session(self, environment: dict[str, Any]) -> None:
        """Record where this session runs, if it differs from the last one."""
        try:
            stored = read_json(self.environment_file)
        except BadFileError:  # unreadable, or missing
            stored = []
        sessions = stored if isinstance(stored, list) else []
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
            why = "holds other settings than its directory's name says; move the directory away"
            raise LabError(f"{self.config_file} {why}")

    def tidy_complete(self) -> None:
        """Remove what a process left that was killed after it had written the result; not while another is at work."""
        if self.checkpoints.exists() or any(self.path.glob(".*.tmp")):
            with suppress(BusyError), lock(self.path):
                self._tidy()

    def _tidy(self) -> None:
        with self._notes():  # what another process is writing is not left over
            for folder in (self.path, self.checkpoints, self.pictures):
                for left in folder.glob(".*.tmp"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        if self.result_file.exists():
            atomic.remove_directory(self.checkpoints)

    @contextmanager
    def _notes(self) -> Iterator[None]:
        """For what processes write that do not train the trial, such as a driver that gives it up."""
        atomic.make_directory(self.path)
        try:
            held = FileLock(self.notes_lock_file).acquire()
        except OSError as error:
            raise atomic.cannot_write(self.path, error) from error
        with held:
            yield


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
