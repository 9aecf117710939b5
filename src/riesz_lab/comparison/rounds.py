"""Seeds for all arms: a fixed number, or more until every arm has a conclusion."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from riesz_lab.comparison.display import Look
from riesz_lab.comparison.margin import Margin
from riesz_lab.comparison.trials import Trials
from riesz_lab.config import Config
from riesz_lab.statistics.sequential import Sequential, sequential
from riesz_lab.statistics.verdict import LEAST_PAIRS
from riesz_lab.store import Store
from riesz_lab.sweeps import Sweep, SweepResult, results
from riesz_lab.training.progress import clock


def run_fixed(trials: Trials, sweep: Sweep) -> None:
    """Every arm with every seed of the sweep."""
    labels = {config.id: arm.label for arm in reversed(sweep.arms) for config in sweep.configs(arm)}
    batch = [(config, f"{labels[config.id]}, seed {config.seed}") for config in sweep.all_configs()]
    trials.run(batch, "{done}/{total}")


@dataclass
class SequentialResult:
    """The result of a sequential comparison so far."""

    budget: int  # the most pairs
    arms: dict[str, Sequential] = field(default_factory=dict)  # every arm that has a baseline, at its last look
    # Arms that were stopped because no conclusion was in reach, by the pairs they had.
    futile: dict[str, int] = field(default_factory=dict)
    # How many pairs each arm was judged by, with those that have no difference. The store may hold more: a control is
    # compared with an arm that was stopped before it.
    pairs: dict[str, int] = field(default_factory=dict)


def run_until_sure(trials: Trials, sweep: Sweep, budget: int, margin: Margin) -> tuple[Sweep, SequentialResult]:
    """Add seeds until every arm has a conclusion, is futile, or has had `budget` pairs.

    Returns:
        The sweep with as many seeds as were run, and the judgements.
    """
    verdicts = SequentialResult(budget)
    active = [arm.label for arm in sweep.arms if arm.baseline is not None]
    count, ids = 0, set[str]()
    while active and count < budget:
        count += 1
        batch = [(config, f"{label}, seed {config.seed}") for config, label in _round(sweep, active, count)]
        trials.run(batch, f"pair {count}")
        ids |= {config.id for config, _ in batch}
        table = results(replace(sweep, trials=count), Store(trials.runs / sweep.name))
        verdicts.arms |= {label: each for label, each in judge_table(table, margin).items() if label in active}
        verdicts.pairs |= dict.fromkeys(active, count)
        if count < LEAST_PAIRS:
            continue
        looked_at = list(active)
        for label in looked_at:
            judged = verdicts.arms[label]
            if judged.conclusion == "undecided" and judged.futile(budget, count) and count < budget:
                verdicts.futile[label] = count
            if judged.conclusion != "undecided" or label in verdicts.futile:
                active.remove(label)
        note = f"{count} of at most {budget} pairs"
        more = bool(active) and count < budget
        if more:
            each = fmean(trials.seconds[id_] for id_ in ids)
            turns = math.ceil(len(_round(sweep, active, count)) / trials.execution.slots)
            note += f", about {clock((budget - count) * turns * each)} if all are needed"
        stored = more and active == looked_at and all(config.id in trials.stored for config, _ in batch)
        if not stored:
            trials.mention_stored()
        look = Look(dict(verdicts.arms), looked_at, dict(verdicts.futile), table.percent, note, stored)
        trials.display.look(look)
    return replace(sweep, trials=max(1, count)), verdicts


def _round(sweep: Sweep, active: list[str], count: int) -> list[tuple[Config, str]]:
    """The trials of one seed: active arms, and the baselines they need."""
    needed = set(active)
    while more := {baseline for label in needed if (baseline := sweep[label].baseline)} - needed:
        needed |= more
    arms = [arm for arm in sweep.arms if arm.label in needed]
    return [(replace(sweep, trials=count).configs(arm)[-1], arm.label) for arm in arms]


def judge_table(table: SweepResult, margin: Margin, arms: int | None = None) -> dict[str, Sequential]:
    """The sequential judgement of every arm that has a baseline, of the trials so far.

    Args:
        table: the trials.
        margin: the largest difference that does not matter.
        arms: how many share the 5%; those of the table if None.
    """
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
            arms=arms or len(compared),
            diverged=row.comparison.diverged,
            higher_is_better=row.comparison.higher_is_better,
            rounding=8 * float(np.finfo(float).eps) * largest,
        )
    return judged


def baseline_scores(table: SweepResult) -> list[list[float]]:
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
