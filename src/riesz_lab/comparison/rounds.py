"""Seeds for all arms: a fixed number, or more until every arm has a conclusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from riesz_lab.comparison.margin import Margin
from riesz_lab.comparison.trials import Trials
from riesz_lab.config import Config
from riesz_lab.statistics.sequential import Sequential, sequential
from riesz_lab.statistics.verdict import LEAST_PAIRS, format_signed
from riesz_lab.store import Store
from riesz_lab.sweeps import Sweep, Table, results


def run_fixed(trials: Trials, sweep: Sweep) -> None:
    """Every arm with every seed of the sweep."""
    configs = sweep.all_configs()
    labels = {config.id: arm.label for arm in reversed(sweep.arms) for config in sweep.configs(arm)}
    for number, config in enumerate(configs, 1):
        title = f"{number:>{len(str(len(configs)))}}/{len(configs)} {labels[config.id]}, seed {config.seed}"
        trials.run(config, title, left=sum(not trials.is_stored(each) for each in configs[number:]))


@dataclass
class Verdicts:
    """What a sequential comparison has come to.

    Attributes:
        arms: the judgement of every arm that has a baseline, at its last look.
        hopeless: arms that were stopped because no conclusion was in reach, by the pairs they had.
        budget: the most pairs.
    """

    budget: int
    arms: dict[str, Sequential] = field(default_factory=dict)
    hopeless: dict[str, int] = field(default_factory=dict)


def run_until_sure(
    trials: Trials, sweep: Sweep, budget: int, margin: Margin, say: Callable[[str], None]
) -> tuple[Sweep, Verdicts]:
    """Add seeds until every arm has a conclusion, is hopeless, or has had `budget` pairs.

    Returns:
        The sweep with as many seeds as were run, and the judgements.
    """
    verdicts = Verdicts(budget)
    active = [arm.label for arm in sweep.arms if arm.baseline is not None]
    count = 0
    while active and count < budget:
        count += 1
        for config, label in _round(sweep, active, count):
            trials.run(config, f"pair {count} {label}, seed {config.seed}")
        now = replace(sweep, trials=count)
        verdicts.arms |= {label: each for label, each in judge(now, trials, margin).items() if label in active}
        if count < LEAST_PAIRS:
            continue
        for label in list(active):
            judged = verdicts.arms[label]
            if judged.conclusion == "undecided" and judged.hopeless(budget) and count < budget:
                verdicts.hopeless[label] = judged.n
            if judged.conclusion != "undecided" or label in verdicts.hopeless:
                active.remove(label)
            say(f"  {label}: {_look(judged, trials)}" + (", hopeless" if label in verdicts.hopeless else ""))
    return replace(sweep, trials=max(1, count)), verdicts


def _round(sweep: Sweep, active: list[str], count: int) -> list[tuple[Config, str]]:
    """The trials of one seed: active arms, and the baselines they need."""
    needed = set(active)
    while more := {baseline for label in needed if (baseline := sweep[label].baseline)} - needed:
        needed |= more
    arms = [arm for arm in sweep.arms if arm.label in needed]
    return [(replace(sweep, trials=count).configs(arm)[-1], arm.label) for arm in arms]


def judge(sweep: Sweep, trials: Trials, margin: Margin) -> dict[str, Sequential]:
    """The sequential judgement of every arm that has a baseline, of the trials so far."""
    return judge_table(results(sweep, Store(trials.runs / sweep.name)), margin)


def judge_table(table: Table, margin: Margin) -> dict[str, Sequential]:
    compared = [row for row in table.rows.values() if row.arm.baseline is not None]
    size = margin.value(table.percent, baseline_scores(table))
    judged = {}
    for row in compared:
        assert row.arm.baseline is not None
        assert row.comparison is not None
        base = table.rows[row.arm.baseline].scores
        differences, largest = _differences(base, row.scores)
        judged[row.arm.label] = sequential(
            differences,
            margin=size,
            arms=len(compared),
            diverged=row.comparison.diverged,
            higher_is_better=row.comparison.higher_is_better,
            rounding=8 * float(np.finfo(float).eps) * largest,
        )
    return judged


def baseline_scores(table: Table) -> list[list[float]]:
    """The finite scores of every plain arm."""
    plain = [row for row in table.rows.values() if row.arm.baseline is None]
    return [[score for score in row.scores.values() if score is not None] for row in plain]


def _differences(
    base: Mapping[object, float | None], method: Mapping[object, float | None]
) -> tuple[list[float], float]:
    pairs = [(base[key], method[key]) for key in base if key in method]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    largest = max((abs(score) for pair in both for score in pair), default=0.0)
    return [after - before for before, after in both], largest


def _look(judged: Sequential, trials: Trials) -> str:
    from riesz_lab.store.result import is_percent

    percent = is_percent(trials.score)
    if judged.interval is None or not np.isfinite(judged.interval[0]):
        return f"{judged.conclusion} after {judged.n} pairs"
    low, high = (format_signed(end, percent) for end in judged.interval)
    return f"{judged.conclusion} after {judged.n} pairs, {low} to {high}"
