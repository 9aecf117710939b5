"""From an answer to its record on disk.

The id in the file's name stands for the arms and their settings, so that the same comparison with more seeds replaces
the file.
"""

import hashlib
from dataclasses import asdict
from pathlib import Path

from riesz_lab.comparison.answer import Answer
from riesz_lab.store.comparison import ArmRecord, ComparisonRecord, RateRecord
from riesz_lab.utils import atomic


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


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _ends(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None or _finite(interval[0]) is None else interval
