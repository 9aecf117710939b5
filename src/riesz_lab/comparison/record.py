"""A comparison on disk: which trials were compared, how their settings were chosen, and what was concluded.

    RUNS/<recipe>/comparison-<id>.json

Trials of several settings lie in one folder; this file says which arm had which. The id stands for the arms and their
settings, so that the same comparison with more seeds replaces the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from riesz_lab.comparison.answer import Answer
from riesz_lab.errors import BadFileError
from riesz_lab.store.files import read_json
from riesz_lab.utils import atomic

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


def make_record(answer: Answer) -> ComparisonRecord:
    tuned, higher = answer.tuned, True
    arms = []
    for label, row in answer.rows.items():
        now = answer.verdicts.arms.get(label) if answer.verdicts is not None else None
        compared = row.comparison
        higher = compared.higher_is_better if compared is not None else higher
        # Never both: those of a fixed number do not hold after looks.
        fixed = compared if answer.verdicts is None else None
        shown = now or fixed
        arms.append(
            ArmRecord(
                label=label,
                baseline=row.arm.baseline,
                group=row.arm.config.group,
                trials=[trial.config.id for trial in row.trials.values()],
                verdict=now.conclusion if now else fixed.verdict if fixed else None,
                pairs=shown.n if shown else 0,
                difference=_finite(shown.difference) if shown else None,
                interval=_ends(shown.interval) if shown else None,
            )
        )
    points = [] if tuned is None else [(label, *each) for label, by in tuned.by_seed.items() for each in by.items()]
    return ComparisonRecord(
        function=answer.function,
        score=answer.score,
        higher_is_better=higher,
        margin=answer.sweep.margin,
        sequential=answer.verdicts is not None,
        budget=None if answer.verdicts is None else answer.verdicts.budget,
        arms=arms,
        tuned=[
            RateRecord(label=label, settings=dict(zip(tuned.grid, point, strict=True)), held_out=scores)
            for label, point, scores in points
            if tuned is not None
        ],
        best={} if tuned is None else tuned.best,
        tuning_trials=0 if tuned is None else tuned.trials,
        tuning_seconds=0.0 if tuned is None else tuned.seconds,
        answers=answer.answers,
        warnings=answer.warnings,
        next_steps=answer.next_steps,
        notes=answer.notes,
    )


def write_record(answer: Answer, runs: Path) -> Path:
    """Store a comparison beside its trials."""
    record = make_record(answer)
    names = [record.score, str(record.sequential), *sorted(arm.group for arm in record.arms)]
    name = hashlib.sha256("/".join(names).encode()).hexdigest()[:12]
    path = runs / answer.sweep.name / f"comparison-{name}.json"
    atomic.write_json(path, asdict(record))
    return path


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


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _ends(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None or _finite(interval[0]) is None else interval
