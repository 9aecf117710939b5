"""What an experiment says: a pure function of what was asked and of the trials that are stored.

Terminal, page, Markdown, CSV, JSON and the evidence are renderings of a `Result`, and of nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from riesz_lab.config import Config
from riesz_lab.experiments.arm import Arm, format_values
from riesz_lab.experiments.experiment import ACCURACY, MIOU, Experiment, Score, fid_score
from riesz_lab.experiments.stopping import Judged, Judgement, Key, follow, key, score_of
from riesz_lab.experiments.tuning import Tuned, tune
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.statistics.verdict import Interval, Verdict
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.result import Which


@dataclass(frozen=True)
class ArmResult:
    """One arm, at the settings it was compared at."""

    arm: Arm
    chosen: dict[str, Any]  # the settings that tuning chose for it; empty if nothing was tuned
    trials: dict[Key, StoredTrial]  # those that are complete, by (initialisation seed, data seed)
    wanted: int  # how many the experiment asks for, as far as it has come
    scores: dict[Key, float | None]  # of the complete ones; None for one that diverged or collapsed
    judgement: Judgement | None  # against its baseline; None for an arm without one

    @cached_property
    def finite(self) -> list[float]:
        """The scores of the trials that neither diverged nor collapsed."""
        return [score for score in self.scores.values() if score is not None]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The comparison of a fixed number of pairs, if that is how it was judged."""
        judged = self.judged
        return judged if isinstance(judged, Comparison) else None

    @cached_property
    def look(self) -> Sequential | None:
        """The judgement that is valid at every look, if that is how it was judged."""
        judged = self.judged
        return judged if isinstance(judged, Sequential) else None

    @cached_property
    def judged(self) -> Judged | None:
        """Either of them: both have n, difference, interval, margin and diverged."""
        return None if self.judgement is None else self.judgement.judged

    @cached_property
    def verdict(self) -> Verdict | None:
        """better, worse, same (within the margin) or undecided; None for an arm without a baseline."""
        return None if self.judged is None else self.judged.verdict

    @cached_property
    def reason(self) -> str:
        """What the verdict rests on, where that is something else than the interval and the margin."""
        if self.judgement is None:
            return ""
        stopped = "stopped: no verdict is in reach" if self.judgement.stopped else ""
        return "; ".join(filter(None, (self.judgement.judged.reason, stopped)))

    @cached_property
    def interval(self) -> Interval | None:
        return None if self.judged is None else self.judged.interval


@dataclass(frozen=True)
class Result:
    """The results of an experiment so far."""

    experiment: Experiment
    which: Which  # whether the scores are those of the last epoch or of the best
    score: Score  # what was compared, as the trials recorded it
    arms: dict[str, ArmResult]  # those that are run, by label
    tuned: Tuned | None  # how the settings of the arms were chosen; None if they were not tuned
    missing: tuple[tuple[Config, str], ...]  # the trials to train next, each with its title; empty once it is complete
    arm_of: Mapping[str, str]  # the label of the arm that each of these is trained for, by the id of its config

    @cached_property
    def complete(self) -> bool:
        return not self.missing

    @cached_property
    def sequential(self) -> bool:
        """Whether intervals hold at every look; else the number of pairs was fixed in advance."""
        return self.experiment.stopping.sequential

    @cached_property
    def compared(self) -> dict[str, ArmResult]:
        """The arms that have a baseline, by label."""
        return {label: each for label, each in self.arms.items() if each.judgement is not None}

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Of a fixed number of pairs, by label."""
        return {label: each.comparison for label, each in self.arms.items() if each.comparison is not None}

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Of every arm that has a baseline, by label."""
        return {label: each.verdict for label, each in self.arms.items() if each.verdict is not None}

    @cached_property
    def trials(self) -> list[StoredTrial]:
        """All that it rests on, each once: those that were compared, then those that tuned."""
        found = [trial for each in self.arms.values() for trial in each.trials.values()]
        found += self.tuned.trials if self.tuned else []
        return list({trial.config.id: trial for trial in found}.values())


def result(experiment: Experiment, store: Store | Iterable[StoredTrial], which: Which = "last") -> Result:
    """What an experiment says by the trials that are complete.

    Args:
        experiment: what is asked.
        store: where to look, or the trials themselves.
        which: score of the "last" epoch, or of the "best". The best is chosen by looking at the test set, so only the
            last is honest; the best is for comparison with papers that report it.

    Example:
        >>> from riesz_lab.experiments import experiment, result
        >>> found = result(experiment("controls-mini"), [])
        >>> found.arms["ReweightedL2"].verdict, len(found.missing)
        (<Verdict.UNDECIDED: 'undecided'>, 45)
    """
    trials = store.trials if isinstance(store, Store) else store
    return judge(experiment, {trial.config.id: trial for trial in trials if trial.result is not None}, which)


def judge(experiment: Experiment, complete: Mapping[str, StoredTrial], which: Which = "last") -> Result:
    """The same of complete trials by id."""
    tuned = tune(experiment, complete) if experiment.tuning else None
    if tuned is not None and tuned.why_not:
        # Arms without their settings have no trials yet.
        score = _score(experiment, [], complete)
        arms = {arm.label: ArmResult(arm, {}, {}, experiment.seeds.count, {}, None) for arm in experiment.chosen}
        arm_of = {config.id: label for label, trials in tuned.missing.items() for config, _ in trials}
        missing = [
            (config, f"{label}, {format_values(values)}, seed {config.seed}")
            for label, trials in tuned.missing.items()
            for config, values in trials
        ]
        by_seed = tuple(sorted(missing, key=lambda each: each[0].seed))
        return Result(experiment, which, score, arms, tuned, by_seed, arm_of)
    final, own = experiment, experiment.tuning.own if experiment.tuning else ()
    if tuned is not None:
        settled = [arm.at(tuned.best[arm.label], own) if arm.label in tuned.best else arm for arm in experiment.arms]
        final = replace(experiment, arms=tuple(settled))
    configs = {arm.label: final.configs(arm) for arm in final.chosen}
    stored = [complete[config.id] for each in configs.values() for config in each if config.id in complete]
    score = _score(final, stored, complete)
    rounds = follow(final, complete, score, which)
    arms = {}
    for arm in final.chosen:
        wanted = final.with_seeds(rounds.seeds).configs(arm)
        trials = {key(config): complete[config.id] for config in wanted if config.id in complete}
        arms[arm.label] = ArmResult(
            arm=arm,
            chosen=tuned.best[arm.label] if tuned is not None else {},
            trials=trials,
            wanted=len(trials) if arm.label in rounds.ended else len(wanted),
            scores={seeds: score_of(trial, score, which) for seeds, trial in trials.items()},
            judgement=rounds.judgements.get(arm.label),
        )
    missing = [(config, f"{label}, {describe_seeds(config)}") for config, label in rounds.missing]
    arm_of = {config.id: label for config, label in rounds.missing}
    return Result(experiment, which, score, arms, tuned, tuple(missing), arm_of)


def describe_seeds(config: Config) -> str:
    if config.effective_init_seed == config.effective_data_seed:
        return f"seed {config.effective_data_seed}"
    return f"init seed {config.effective_init_seed}, data seed {config.effective_data_seed}"


def _score(experiment: Experiment, stored: list[StoredTrial], complete: Mapping[str, StoredTrial]) -> Score:
    """As asked; else as the trials recorded it, since a task may have several; else that of the task."""
    if experiment.score is not None:
        return experiment.score
    tasks = {arm.config.task for arm in experiment.arms}
    for trial in stored:
        if trial.result is not None:
            return Score(trial.result.score, trial.result.higher_is_better, trial.result.percent)
    if tasks == {"generation"}:
        return fid_score(experiment.arms[0].config)
    return MIOU if tasks == {"segmentation"} else ACCURACY
