"""Reading trials: everything a report may know. Nothing here writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, LabError
from riesz_lab.store.trial import read_config, read_json

STATUSES = ("finished", "diverged", "collapsed")
"""How a complete trial ended: well; with a loss that is no number; or as its task's rule of collapse says."""


@dataclass(frozen=True)
class StoredTrial:
    """A trial as its directory tells it.

    Attributes:
        path: its directory.
        config: its settings.
        result: what its result.json holds; None if it is not complete.
        failure: why its last session failed; None if it did not.
    """

    path: Path
    config: Config
    result: dict[str, Any] | None
    failure: str | None = None

    @property
    def status(self) -> str:
        """finished, diverged, collapsed, failed, or unfinished."""
        if self.result is not None:
            return str(self.result["status"])
        return "unfinished" if self.failure is None else "failed"

    def score(self, which: str = "last") -> float | None:
        """The last or best score; None if there is none."""
        row = None if self.result is None else self.result[which]
        return None if row is None else row[self.result["score"]]  # type: ignore[index]

    @property
    def higher_is_better(self) -> bool:
        """Whether more of the score is better."""
        return self.result is None or bool(self.result.get("higher_is_better", True))

    def history(self) -> list[dict[str, Any]]:
        """One row per epoch."""
        return self._rows("history.jsonl")

    def timing(self) -> list[dict[str, Any]]:
        """One row per epoch and session."""
        return self._rows("timing.jsonl")

    def updates(self) -> list[dict[str, Any]]:
        """One row per epoch: what it did to each conv weight; empty for trials of before it was measured."""
        return self._rows("updates.jsonl")

    def _rows(self, name: str) -> list[dict[str, Any]]:
        file = self.path / name
        if not file.exists():
            return []
        rows = []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                # Timing is appended to: a kill may tear its last line. History is written as a whole.
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows


class Store:
    """All trials below some folders.

    Attributes:
        trials: those that can be read, in order of their paths.
        broken: directories that look like trials and cannot be read, with the reason.
    """

    def __init__(self, *folders: Path | str):
        self.trials: list[StoredTrial] = []
        self.broken: dict[Path, str] = {}
        for file in sorted(file for folder in folders for file in _configs(Path(folder))):
            try:
                self.trials.append(read_trial(file.parent))
            except (LabError, OSError) as error:
                self.broken[file.parent] = str(error)

    def groups(self) -> dict[str, list[StoredTrial]]:
        """Trials that differ by their seeds alone, by the id of the group."""
        groups: dict[str, list[StoredTrial]] = {}
        for trial in self.trials:
            groups.setdefault(trial.config.group, []).append(trial)
        return groups


def open_store(folder: Path) -> Store:
    """The store of a folder that must be there: a misspelt one would look like one without trials."""
    if not folder.is_dir():
        raise LabError(f"there is no folder {folder}; say where the trials are: --runs DIR")
    return Store(folder)


def _configs(folder: Path) -> Iterable[Path]:
    # A trial is RUNS/<recipe>/<trial>; a folder of one recipe or one trial is accepted too.
    for pattern in ("config.json", "*/config.json", "*/*/config.json"):
        yield from folder.glob(pattern)


def read_trial(path: Path) -> StoredTrial:
    """One trial's directory; an error that names the file if it cannot be read."""
    config = read_config(path / "config.json")
    named = re.search(r"-([0-9a-f]{12})$", path.name)
    if named is not None and named[1] != config.id:
        raise BadFileError(f"{path / 'config.json'} holds other settings than the directory's name says")
    result = read_json(path / "result.json") if (path / "result.json").exists() else None
    if result is not None:
        _check_result(path, result)
        return StoredTrial(path, config, result)
    return StoredTrial(path, config, None, _failure(path / "failure.json"))


def _failure(file: Path) -> str | None:
    if not file.exists():
        return None
    try:
        return str(read_json(file)["reason"])
    except (BadFileError, KeyError, TypeError):
        return "it failed, and left no readable reason"


def _check_result(path: Path, result: object) -> None:
    ok = (
        isinstance(result, dict)
        and result.get("status") in STATUSES
        and isinstance(result.get("score"), str)
        and all(
            which in result
            and (result[which] is None or (isinstance(result[which], dict) and result["score"] in result[which]))
            for which in ("last", "best")
        )
    )
    if not ok:
        raise BadFileError(f"{path / 'result.json'} is not the result of a trial")
