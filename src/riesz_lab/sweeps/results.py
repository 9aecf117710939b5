"""From stored trials to a table: a pure function of a sweep and a store."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from riesz_lab.experiments.arm import Arm
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.statistics.comparison import Scores
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.result import Which
from riesz_lab.sweeps.definition import Sweep

Key = Hashable
"""(initialisation seed, data seed) of a trial."""


@dataclass(frozen=True)
class ArmResult:
    """One arm of a table."""

    arm: Arm  # its settings
    trials: dict[Key, StoredTrial]  # those that are complete, by (initialisation seed, data seed)
    wanted: int  # how many the sweep asks for
    scores: dict[Key, float | None]  # of the complete ones; None for one that diverged or collapsed
    comparison: Comparison | None  # with its baseline, Holm-corrected over the table; None for an arm without one

    @property
    def finite(self) -> list[float]:
        """The scores of the trials that neither diverged nor collapsed."""
        return [score for score in self.scores.values() if score is not None]


@dataclass(frozen=True)
class SweepResult:
    """The results of a sweep."""

    sweep: Sweep  # what was run
    which: Which  # whether the scores are those of the last epoch or of the best
    score: str  # the name of the score
    higher_is_better: bool
    percent: bool  # whether scores are fractions that are printed in percent
    rows: dict[str, ArmResult]  # one per arm, by label

    @property
    def complete(self) -> bool:
        """Whether all trials that the sweep asks for are there."""
        return all(len(row.scores) == row.wanted for row in self.rows.values())

    def paired(self, baseline: Scores, method: Scores, margin: float) -> Comparison:
        """Other scores of this sweep, compared as its own are."""
        sense = {"higher_is_better": self.higher_is_better, "percent": self.percent}
        return paired(baseline, method, margin=margin, collapsed=self.sweep.collapsed, **sense)

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Of every arm that has a baseline, by label."""
        return {label: row.comparison for label, row in self.rows.items() if row.comparison is not None}

    @property
    def sentences(self) -> list[str]:
        return [
            f"{label} against {self.rows[label].arm.baseline}: {comparison.sentence}."
            for label, comparison in self.comparisons.items()
        ]


def results(sweep: Sweep, store: Store, which: Which = "last") -> SweepResult:
    """The table of a sweep, of the trials that are complete.

    Args:
        sweep: what was run.
        store: where to look.
        which: score of the "last" epoch, or of the "best". The best is chosen by looking at the test set, so only the
            last is honest; the best is for comparison with papers that report it.
    """
    complete = {trial.config.id: trial for trial in store.trials if trial.result is not None}
    trials: dict[str, dict[Key, StoredTrial]] = {arm.label: {} for arm in sweep.arms}
    for arm in sweep.arms:
        for config in sweep.configs(arm):
            if config.id in complete:
                trials[arm.label][config.effective_init_seed, config.effective_data_seed] = complete[config.id]
    score, higher_is_better, percent = _score(sweep, trials.values())
    scores = {
        label: {key: trial.score(which) if trial.status == "finished" else None for key, trial in by_seed.items()}
        for label, by_seed in trials.items()
    }
    comparisons = {
        arm.label: paired(
            scores[arm.baseline],
            scores[arm.label],
            margin=_margin(sweep, scores[arm.baseline]),
            higher_is_better=higher_is_better,
            percent=percent,
            collapsed=sweep.collapsed,
        )
        for arm in sweep.arms
        if arm.baseline is not None
    }
    comparisons = holm(comparisons, sweep.family)
    rows = {
        arm.label: ArmResult(
            arm, trials[arm.label], len(sweep.configs(arm)), scores[arm.label], comparisons.get(arm.label)
        )
        for arm in sweep.arms
    }
    return SweepResult(sweep, which, score, higher_is_better, percent, rows)


def _margin(sweep: Sweep, baseline: dict[Key, float | None]) -> float:
    finite = [score for score in baseline.values() if score is not None]
    if sweep.relative_margin is None or not any(finite):
        return sweep.margin
    return abs(sweep.relative_margin * sum(finite) / len(finite))


def _score(sweep: Sweep, by_arm: Iterable[dict[Key, StoredTrial]]) -> tuple[str, bool, bool]:
    """Name, sense and unit of the score, as trials recorded it, since a task may have several; else of the task."""
    for result in (trial.result for trials in by_arm for trial in trials.values()):
        if result is not None:
            return result.score, result.higher_is_better, result.percent
    from riesz_lab.tasks import task_class  # torch, on first use

    task = task_class(sweep.arms[0].config.task)
    return getattr(task, "score", "score"), task.higher_is_better, task.percent
