"""The files of a trial: the one list of their names, and how they are read.

    RUNS/<recipe>/<metric>-seed<seed>-<id>/
        config.json           the settings; the id is their hash
        environment.json      versions and hardware: one entry per session that differs from the last
        history.jsonl         one line per epoch
        updates.jsonl         one line per epoch: what it did to each conv weight; of a user's loop, the last step alone
        pictures/             samples or predictions of an evaluation, where a task makes them
        timing.jsonl          per epoch: steps, step_ms, eval_seconds, peak_memory_mb; equal trials may differ in it
        checkpoints/          the state while it runs; removed once it is finished
        weights.safetensors   the final weights
        result.json           status, last and best scores; written last, so a trial with it is complete
        failure.json          why the last session failed, if it did; removed once another begins
        sessions.jsonl        when and where a sweep's workers stopped, failed or completed it
        lock                  locked while a process works here
        notes.lock            locked while a process writes failure.json

Everything but timing, environment and sessions is the same, bit for bit, however often the trial was killed and
continued.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, ConfigError
from riesz_lab.utils import atomic

Row = dict[str, Any]
"""One line of a .jsonl file."""

JSON_CAP = 64 * 2**20
LARGEST = 1e150
"""Sums and squares of smaller numbers stay finite."""


class TrialFiles:
    def __init__(self, path: Path):
        self.path = path
        self.config_file = path / "config.json"
        self.environment_file = path / "environment.json"
        self.history_file = path / "history.jsonl"
        self.updates_file = path / "updates.jsonl"
        self.pictures = path / "pictures"
        self.timing_file = path / "timing.jsonl"
        self.checkpoints = path / "checkpoints"
        self.weights_file = path / "weights.safetensors"
        self.result_file = path / "result.json"
        self.failure_file = path / "failure.json"
        self.sessions_file = path / "sessions.jsonl"
        self.lock_file = path / "lock"
        self.notes_lock_file = path / "notes.lock"


def read_json(path: Path) -> Any:
    """A JSON file of this store, or an error that names it."""
    try:
        if path.stat().st_size > JSON_CAP:
            raise BadFileError(f"{path} is larger than {JSON_CAP} bytes: not a file of this store")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFileError(f"{path} cannot be read as JSON: {error}") from None


def is_number(value: object) -> bool:
    """Whether a stored value is a number that can be computed with: JSON also knows NaN, and integers of any size."""
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]


def read_rows(path: Path) -> list[Row]:
    """The lines of a .jsonl file; [] if there is no such file. Lines torn by a kill are left out.

    A number that cannot be computed with is None, as one that was never measured.
    """
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(json.loads(line, parse_int=_int, parse_float=_float, parse_constant=lambda name: None))
    return [row for row in rows if isinstance(row, dict)]


def _int(text: str) -> int | None:
    return value if is_number(value := int(text)) else None


def _float(text: str) -> float | None:
    return value if is_number(value := float(text)) else None


def write_rows(path: Path, rows: list[Row]) -> None:
    atomic.write_bytes(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())


def append_row(path: Path, row: Row) -> None:
    try:
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise atomic.cannot_write(path, error) from error


def read_config(path: Path, expected_id: str | None = None) -> Config:
    """A stored config, or an error that names the file; see `Config.from_dict`."""
    try:
        return Config.from_dict(read_json(path), expected_id)
    except ConfigError as error:
        raise BadFileError(f"{path}: {error}") from None
