"""When an experiment has enough trials: which are still missing, and what the pairs so far conclude.

A rule is a function of what is stored. A driver trains what is missing and asks again, until nothing is.

    Fixed       the experiment's seeds; judged once, by t tests with Holm's correction
    UntilSure   one pair at a time for every arm that has no verdict yet; judged at every look
    Pilot       a few pairs, or all that are stored; judged to plan how many a verdict would take
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from riesz_lab.config import Config
from riesz_lab.experiments.experiment import Experiment, Fixed, Pilot, Score, UntilSure
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.statistics.sequential import Sequential, sequential
from riesz_lab.statistics.ties import p_of_ties
from riesz_lab.statistics.verdict import LEAST_PAIRS, Verdict
from riesz_lab.store import StoredTrial
from riesz_lab.store.result import Which

Key = Hashable
"""(initialisation seed, data seed) of a trial."""
Scores = Mapping[Key, float | None]
Judged = Comparison | Sequential


@dataclass(frozen=True)
class Judgement:
    """What an arm's pairs conclude."""

    judged: Judged
    pairs: int  # it was judged by, with those that have no difference
    stopped: bool = False  # whether it gets no more pairs, since no verdict is in reach


@dataclass
class Rounds:
    """How far an experiment has come."""

    seeds: int  # that the arms have had, or are to have
    missing: list[tuple[Config, str]] = field(default_factory=list)  # the next trials, each with its arm's label
    judgements: dict[str, Judgement] = field(default_factory=dict)  # of every arm that has a baseline
    ended: frozenset[str] = frozenset()  # the arms that get no more pairs, though others may


def key(config: Config) -> Key:
    return config.effective_init_seed, config.effective_data_seed


def score_of(trial: StoredTrial, score: Score, which: Which = "last") -> float | None:
    """A trial's score; None if it diverged or collapsed."""
    if trial.result is None or trial.status != "finished":
        return None
    if trial.result.score == score.name:
        return trial.result.value(which)
    row = trial.result.last if which == "last" else trial.result.best
    value = (row or {}).get(score.name)
    return float(value) if isinstance(value, int | float) else None


def follow(experiment: Experiment, complete: Mapping[str, StoredTrial], score: Score, which: Which = "last") -> Rounds:
    """The rule of an experiment, applied to what is stored.

    Args:
        experiment: what is asked, its arms at their final settings.
        complete: stored trials by id.
        score: what is compared.
        which: of the last epoch, or of the best.
    """
    rule = experiment.stopping
    if isinstance(rule, UntilSure):
        return _until_sure(experiment, rule.budget, complete, score, which)
    if isinstance(rule, Pilot):
        count = max(rule.pairs, _stored_pairs(experiment, complete))
        experiment = experiment.with_seeds(count)
    elif isinstance(rule, Fixed):
        count = experiment.seeds.count
    else:
        raise TypeError(f"stopping: expected one of Fixed, UntilSure, Pilot, got {rule!r}")
    labels = {config.id: arm.label for arm in reversed(experiment.chosen) for config in experiment.configs(arm)}
    missing = [(config, labels[config.id]) for config in experiment.all_configs() if config.id not in complete]
    scores = {arm.label: scores_of(experiment, arm.label, complete, score, which) for arm in experiment.arms}
    judged: Mapping[str, Judged]
    judged = look(experiment, scores, score) if rule.sequential else compare(experiment, scores, score)
    pairs = {label: len(scores[experiment[label].baseline or label]) for label in judged}
    return Rounds(count, missing, {label: Judgement(each, pairs[label]) for label, each in judged.items()})


def scores_of(
    experiment: Experiment, label: str, complete: Mapping[str, StoredTrial], score: Score, which: Which = "last"
) -> dict[Key, float | None]:
    """The scores of an arm's complete trials."""
    configs = experiment.configs(experiment[label])
    return {key(config): score_of(complete[config.id], score, which) for config in configs if config.id in complete}


def compare(experiment: Experiment, scores: Mapping[str, Scores], score: Score) -> dict[str, Comparison]:
    """Every chosen arm against its baseline, once; claims are corrected for all comparisons of the experiment."""
    compared = {
        arm.label: paired(
            scores[arm.baseline],
            scores[arm.label],
            margin=margin_of(experiment, arm.baseline, scores, score),
            higher_is_better=score.higher_is_better,
            percent=score.percent,
            collapsed=experiment.collapsed,
        )
        for arm in experiment.chosen
        if arm.baseline is not None
    }
    return holm(compared, experiment.comparisons)


def look(
    experiment: Experiment, scores: Mapping[str, Scores], score: Score, labels: Iterable[str] = ()
) -> dict[str, Sequential]:
    """The chosen arms, or some of them, judged by intervals that hold at every look; all compared arms share the 5%."""
    return {
        arm.label: look_at_pairs(
            scores[arm.baseline],
            scores[arm.label],
            margin_of(experiment, arm.baseline, scores, score),
            score,
            arms=experiment.comparisons,
        )
        for arm in experiment.chosen
        if arm.baseline is not None and (not labels or arm.label in labels)
    }


def look_at_pairs(baseline: Scores, method: Scores, margin: float, score: Score, arms: int = 1) -> Sequential:
    """Scores by key, judged by an interval that holds at every look."""
    pairs = [(baseline[each], method[each]) for each in baseline if each in method]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    largest = max((abs(value) for pair in both for value in pair), default=0.0)
    return sequential(
        [after - before for before, after in both],
        margin=margin,
        arms=arms,
        diverged=(
            sum(before is None and after is not None for before, after in pairs),
            sum(before is not None and after is None for before, after in pairs),
        ),
        higher_is_better=score.higher_is_better,
        rounding=8 * float(np.finfo(float).eps) * largest,
        p_ties=p_of_ties(len(both), margin, both, score.percent),
    )


def margin_of(experiment: Experiment, baseline: str, scores: Mapping[str, Scores], score: Score) -> float:
    """The margin in the unit of the scores."""

    def finite(label: str) -> list[float]:
        return [value for value in scores[label].values() if value is not None]

    baselines = [finite(arm.label) for arm in experiment.arms if arm.baseline is None]
    return experiment.margin.value(score.percent, finite(baseline), baselines)


def _until_sure(
    experiment: Experiment, budget: int, complete: Mapping[str, StoredTrial], score: Score, which: Which
) -> Rounds:
    """Look after every pair, as if the trials were trained now: what they decide does not depend on when they were."""
    active = [arm.label for arm in experiment.chosen if arm.baseline is not None]
    whole = replace(experiment.with_seeds(budget), selected=frozenset())
    configs = {arm.label: whole.configs(arm) for arm in experiment.arms}
    scores: dict[str, dict[Key, float | None]] = {label: {} for label in configs}
    rounds = Rounds(1)
    count = 0
    while active and count < budget:
        needed = experiment.with_baselines(active)
        batch = {arm.label: configs[arm.label][count] for arm in experiment.arms if arm.label in needed}
        if missing := [(config, label) for label, config in batch.items() if config.id not in complete]:
            rounds.missing = missing
            break
        for label, config in batch.items():
            scores[label][key(config)] = score_of(complete[config.id], score, which)
        count += 1
        judged = look(experiment, scores, score, active)
        rounds.judgements |= {label: Judgement(each, count) for label, each in judged.items()}
        for label, each in judged.items() if count >= LEAST_PAIRS else ():
            stopped = each.verdict == Verdict.UNDECIDED and count < budget and each.futile(budget, count)
            if stopped or each.verdict != Verdict.UNDECIDED:
                rounds.judgements[label] = Judgement(each, count, stopped)
                active.remove(label)
                rounds.ended |= {label}
    rounds.seeds = max(1, count + bool(rounds.missing))
    for label in (arm.label for arm in experiment.chosen if arm.baseline is not None):
        if label not in rounds.judgements:
            rounds.judgements[label] = Judgement(look(experiment, scores, score, [label])[label], 0)
    return rounds


def _stored_pairs(experiment: Experiment, complete: Mapping[str, StoredTrial]) -> int:
    """How many seeds are complete in every arm, from the first one on."""
    count = 0
    while all(config.id in complete for config in _last_round(experiment.with_seeds(count + 1))):
        count += 1
    return count


def _last_round(experiment: Experiment) -> list[Config]:
    return [experiment.configs(arm)[-1] for arm in experiment.chosen]
