"""Reading trials: all that a report is made of. Nothing here writes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, LabError
from riesz_lab.store.files import Row, TrialFiles, read_config, read_json, read_rows
from riesz_lab.store.result import Result, Which, read_result

MADE_BY = "riesz demo, riesz train, riesz sweep and riesz compare make trials"


@dataclass(frozen=True)
class StoredTrial:
    """A trial as it is stored."""

    path: Path  # its directory
    config: Config  # its settings
    result: Result | None  # how it ended; None if it is not complete
    failure: str | None = None  # why its last session failed; None if it did not

    @property
    def status(self) -> str:
        """finished, diverged, collapsed, failed, or unfinished."""
        if self.result is not None:
            return self.result.status
        return "unfinished" if self.failure is None else "failed"

    @cached_property
    def files(self) -> TrialFiles:
        return TrialFiles(self.path)

    def score(self, which: Which = "last") -> float | None:
        return None if self.result is None else self.result.value(which)

    def last(self) -> Row:
        """The history row of the last epoch; empty if there is none."""
        return (None if self.result is None else self.result.last) or {}

    def history(self) -> list[Row]:
        return read_rows(self.files.history_file)

    def timing(self) -> list[Row]:
        """One row per epoch and session."""
        return read_rows(self.files.timing_file)

    @property
    def seconds(self) -> float:
        """What it took, over all sessions."""
        return sum(map(_seconds, self.timing()))

    @property
    def date(self) -> str:
        """The day it was completed, such as 2026-03-01."""
        return datetime.fromtimestamp(self.files.result_file.stat().st_mtime).strftime("%Y-%m-%d")

    def updates(self) -> list[Row]:
        """One row per epoch: what it did to each conv weight; empty for trials from before it was measured."""
        return read_rows(self.files.updates_file)


class Store:
    """All trials below some folders, each once: folders may overlap, and hold links and copies.

    Attributes:
        trials: the readable ones, in order of their paths.
        broken: directories that look like trials and cannot be read, with the reason.
        copies: further directories of a trial, with the one that counts: a complete one, else the first.
    """

    def __init__(self, *folders: Path | str):
        self.broken: dict[Path, str] = {}
        self.copies: dict[Path, Path] = {}
        by_id: dict[str, list[StoredTrial]] = {}
        directories = {
            file.parent.resolve(): file.parent for file in sorted(_configs(*map(Path, folders)), reverse=True)
        }
        for path in sorted(directories.values()):
            try:
                trial = read_trial(path)
                by_id.setdefault(trial.config.id, []).append(trial)
            except (LabError, OSError) as error:
                self.broken[path] = str(error)
        self.trials: list[StoredTrial] = []
        for same in by_id.values():
            first = max(same, key=lambda trial: trial.result is not None)  # the first of equals
            self.trials.append(first)
            self.copies |= {trial.path: first.path for trial in same if trial is not first}
        self.trials.sort(key=lambda trial: trial.path)

    def groups(self) -> dict[str, list[StoredTrial]]:
        return grouped(self.trials)


def grouped(trials: Iterable[StoredTrial]) -> dict[str, list[StoredTrial]]:
    """Trials that differ by their seeds alone, by the id of the group."""
    groups: dict[str, list[StoredTrial]] = {}
    for trial in trials:
        groups.setdefault(trial.config.group, []).append(trial)
    return groups


def open_store(folder: Path) -> Store:
    """The store of a folder that must exist: a misspelt one would look like one without trials."""
    if not folder.is_dir():
        raise LabError(f"there is no folder {folder}; say where the trials are: --runs DIR; {MADE_BY}")
    return Store(folder)


def _configs(*folders: Path) -> Iterable[Path]:
    # A trial is RUNS/<recipe>/<trial>; a folder of one recipe or one trial is accepted too.
    for folder in folders:
        for pattern in ("config.json", "*/config.json", "*/*/config.json"):
            yield from folder.glob(pattern)


def read_trial(path: Path) -> StoredTrial:
    """One trial's directory; an error that names the file if it cannot be read."""
    files = TrialFiles(path)
    named = re.search(r"-([0-9a-f]{12})$", path.name)
    config = read_config(files.config_file, named[1] if named else None)
    if named is not None and named[1] != config.id:
        raise BadFileError(f"{files.config_file} holds other settings than the directory's name says")
    result = read_result(files.result_file)
    return StoredTrial(path, config, result, None if result is not None else _failure(files.failure_file))


def _seconds(row: Row) -> float:
    """Seconds that a row of timing covers: a whole trial of a user's loop, an epoch of the lab's."""
    steps = float(row.get("steps") or 0) * float(row.get("step_ms") or 0) / 1000
    return float(row.get("seconds") or steps + float(row.get("eval_seconds") or 0))


def _failure(file: Path) -> str | None:
    if not file.exists():
        return None
    try:
        return str(read_json(file)["reason"])
    except (BadFileError, KeyError, TypeError):
        return "it failed, and left no readable reason"
