"""Reading trials: all that a report is made of. Nothing here writes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, LabError
from riesz_lab.store.files import Row, TrialFiles, read_config, read_json, read_rows
from riesz_lab.store.result import Result, Which, read_result


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

    @property
    def files(self) -> TrialFiles:
        return TrialFiles(self.path)

    def score(self, which: Which = "last") -> float | None:
        return None if self.result is None else self.result.value(which)

    def last(self) -> Row:
        """The history row of the last epoch; empty if there is none."""
        return (None if self.result is None else self.result.last) or {}

    @property
    def higher_is_better(self) -> bool:
        return self.result is None or self.result.higher_is_better

    def history(self) -> list[Row]:
        return read_rows(self.files.history_file)

    def timing(self) -> list[Row]:
        """One row per epoch and session."""
        return read_rows(self.files.timing_file)

    def updates(self) -> list[Row]:
        """One row per epoch: what it did to each conv weight; empty for trials from before it was measured."""
        return read_rows(self.files.updates_file)


class Store:
    """All trials below some folders.

    Attributes:
        trials: the readable ones, in order of their paths.
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
    """The store of a folder that must exist: a misspelt one would look like one without trials."""
    if not folder.is_dir():
        raise LabError(f"there is no folder {folder}; say where the trials are: --runs DIR")
    return Store(folder)


def _configs(folder: Path) -> Iterable[Path]:
    # A trial is RUNS/<recipe>/<trial>; a folder of one recipe or one trial is accepted too.
    for pattern in ("config.json", "*/config.json", "*/*/config.json"):
        yield from folder.glob(pattern)


def read_trial(path: Path) -> StoredTrial:
    """One trial's directory; an error that names the file if it cannot be read."""
    files = TrialFiles(path)
    config = read_config(files.config_file)
    named = re.search(r"-([0-9a-f]{12})$", path.name)
    if named is not None and named[1] != config.id:
        raise BadFileError(f"{files.config_file} holds other settings than the directory's name says")
    result = read_result(files.result_file)
    return StoredTrial(path, config, result, None if result is not None else _failure(files.failure_file))


def _failure(file: Path) -> str | None:
    if not file.exists():
        return None
    try:
        return str(read_json(file)["reason"])
    except (BadFileError, KeyError, TypeError):
        return "it failed, and left no readable reason"
