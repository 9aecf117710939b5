"""A comparison on disk: which trials were compared, how their settings were chosen, and what was concluded.

    RUNS/<recipe>/comparison-<id>.json

Trials of several settings lie in one folder; this file says which arm had which.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from riesz_lab.errors import BadFileError
from riesz_lab.store.files import read_json

PATTERNS = ("comparison-*.json", "*/comparison-*.json")


@dataclass(frozen=True, kw_only=True)
class ArmRecord:
    """An arm: the group of its trials, the ids of those that were compared, and its judgement."""

    label: str
    baseline: str | None
    group: str
    trials: list[str]
    verdict: str | None
    pairs: int
    difference: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class RateRecord:
    """A point of the grid: the settings, and the held-out scores of an arm there, by seed; None where it diverged."""

    label: str
    settings: dict[str, Any]
    held_out: list[float | None]


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord:
    """A comparison. `sequential`: intervals are valid at every look; else the number of pairs was fixed in advance."""

    function: str
    score: str
    higher_is_better: bool
    margin: float
    sequential: bool
    budget: int | None
    arms: list[ArmRecord]
    tuned: list[RateRecord]
    best: dict[str, dict[str, Any]]
    tuning_trials: int
    tuning_seconds: float
    answers: list[str]
    warnings: list[str]
    next_steps: list[str]
    notes: list[str]

    @property
    def has_table(self) -> bool:
        """Whether a table of a fixed number of pairs holds for its trials: judged once, at one setting for all arms."""
        return not self.sequential and not self.best


def read_records(*folders: Path) -> tuple[dict[Path, ComparisonRecord], dict[Path, str]]:
    """The comparisons below some folders, by file; and the files that are none, with the reason."""
    records: dict[Path, ComparisonRecord] = {}
    broken: dict[Path, str] = {}
    # As trials: RUNS/<recipe>, or the folder of one recipe.
    for path in sorted({path for folder in folders for p in PATTERNS for path in folder.glob(p)}):
        try:
            record = msgspec.convert(read_json(path), ComparisonRecord)
            names = {tuple(settings) for settings in record.best.values()}
            if any(set(point.settings) != set(name) for point in record.tuned for name in names):
                raise BadFileError("its points have other settings than its best ones")
            records[path] = record
        except (msgspec.ValidationError, BadFileError) as error:
            broken[path] = f"not a comparison: {error}"
    return records, broken
