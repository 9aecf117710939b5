"""From stored trials to a table: a pure function of a sweep and a store."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from riesz_lab.config import Config
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.result import Which
from riesz_lab.sweeps.definition import Arm, Sweep
from riesz_lab.tasks import task_class

Key = Hashable
"""(initialisation seed, data seed) of a trial."""


@dataclass(frozen=True)
class Row:
    """One arm of a table.

    Attributes:
        arm: its settings.
        trials: those that are complete, by (initialisation seed, data seed).
        wanted: how many the sweep asks for.
        scores: of the complete ones; None for one that diverged or collapsed.
        comparison: with its baseline, Holm-corrected over the table; None for an arm without one.
    """

    arm: Arm
    trials: dict[Key, StoredTrial]
    wanted: int
    scores: dict[Key, float | None]
    comparison: Comparison | None


@dataclass(frozen=True)
class Table:
    """The results of a sweep.

    Attributes:
        sweep: what was run.
        which: whether the scores are those of the last epoch or of the best.
        score: the name of the score.
        rows: one per arm, by label.
    """

    sweep: Sweep
    which: Which
    score: str
    rows: dict[str, Row]

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Of every arm that has a baseline, by label."""
        return {label: row.comparison for label, row in self.rows.items() if row.comparison is not None}

    @property
    def sentences(self) -> list[str]:
        """The verdicts in plain words."""
        return [
            f"{label} against {self.rows[label].arm.baseline}: {comparison.sentence}."
            for label, comparison in self.comparisons.items()
        ]

    @property
    def percent(self) -> bool:
        """Whether the scores are fractions, printed in percent."""
        return is_percent(self.score)


def results(sweep: Sweep, store: Store, which: Which = "last") -> Table:
    """The table of a sweep, of the trials that are complete.

    Args:
        sweep: what was run.
        store: where to look.
        which: score of the "last" epoch, or of the "best". The best is chosen by looking at the test set, so only the
            last is honest; the best is for comparison with papers that report it.
    """
    complete = {trial.config.id: trial for trial in store.trials if trial.result is not None}
    trials = {arm.label: _complete(sweep.configs(arm), complete) for arm in sweep.arms}
    score, higher_is_better = _score(sweep, [trial for by_seed in trials.values() for trial in by_seed.values()])
    scores = {
        label: {key: trial.score(which) if trial.status == "finished" else None for key, trial in by_seed.items()}
        for label, by_seed in trials.items()
    }
    comparisons = holm(
        {
            arm.label: paired(
                scores[arm.baseline],
                scores[arm.label],
                margin=_margin(sweep, scores[arm.baseline]),
                higher_is_better=higher_is_better,
                percent=is_percent(score),
                collapsed=sweep.collapsed,
            )
            for arm in sweep.arms
            if arm.baseline is not None
        },
        sweep.family,
    )
    rows = {
        arm.label: Row(arm, trials[arm.label], len(sweep.configs(arm)), scores[arm.label], comparisons.get(arm.label))
        for arm in sweep.arms
    }
    return Table(sweep, which, score, rows)


def _margin(sweep: Sweep, baseline: dict[Key, float | None]) -> float:
    finite = [score for score in baseline.values() if score is not None]
    if sweep.relative_margin is None or not any(finite):
        return sweep.margin
    return abs(sweep.relative_margin * sum(finite) / len(finite))


def is_percent(score: str) -> bool:
    return score.endswith(("accuracy", "miou"))


def _score(sweep: Sweep, trials: list[StoredTrial]) -> tuple[str, bool]:
    """The score's name and whether higher is better: read from the trials, since a task may have several scores."""
    task = task_class(sweep.arms[0].config.task)
    for trial in trials:
        if trial.result is not None:
            return trial.result.score, trial.result.higher_is_better
    return getattr(task, "score", "score"), task.higher_is_better


def _complete(configs: list[Config], complete: dict[str, StoredTrial]) -> dict[Key, StoredTrial]:
    return {
        (config.effective_init_seed, config.effective_data_seed): complete[config.id]
        for config in configs
        if config.id in complete
    }
