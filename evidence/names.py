"""Every name that the templates may use: the arms of each experiment, counts, tables, and what the paper prints."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import riesz
from evidence import contrasts, regularity, tables
from evidence.numbers import Arms, Difference, Group, StaleSentenceError, arms_of, group, metrics
from evidence.reproduce import describe_machine
from evidence.results import Evidence
from riesz_lab.experiments import experiment
from riesz_lab.experiments.library.paper import CHANCE
from riesz_lab.report.figures.regimes import regime_maps
from riesz_lab.report.paper import published
from riesz_lab.store import StoredTrial

AT_ONE_RATE = ("lambda-fashion", "lambda-mnist", "plain-sgd", "regimes")
"""The experiments in which metrics meet SGD at the same rate; question 5 is asked of their weights."""

METRICS = {"SobolevTilde": "sobolev-tilde", "ReweightedL2": "reweighted-l2"}
"""As the paper's table has them."""


def names(evidence: Evidence) -> dict[str, Any]:
    """By name: what `{{ name }}` stands for."""
    experiments = {name: arms_of(result) for name, result in evidence.results.items()}
    arms = {name.replace("-", "_"): arms for name, arms in experiments.items()}
    return {
        **arms,
        **_of_filters(experiments),
        **_of_tuning(evidence),
        "paper": {**published(), **paper_gains()},
        "trials": _trials(evidence),
        "machines": dict(Counter(map(describe_machine, evidence.trials)).most_common()),
        "spread": _spread(experiments),
        "small_batches": contrasts.small_batches(experiments["regimes"]),
        "best_cells": {
            one.method: Group(*(Difference(one.method, cell) for cell in one.comparisons.values()))
            for one in regime_maps(evidence.results["regimes"])
            if one.against_best
        },
        "results": tables.results,
        "changes": tables.changes,
        "group": group,
        "none_of": none_of,
        "check": check,
        "planned": lambda name: len(experiment(name).all_configs()),
        "slowest_wave": f"{riesz.SobolevTilde(lam=1, scale=20).symbol(100)[1]:.1f}",
    }


def none_of(number: int) -> str:
    """The word, if it is so."""
    if number:
        raise StaleSentenceError(f"the page says 'none', the trials say {number}")
    return "None"


def check(holds: bool) -> str:
    """Nothing, if what a sentence says holds."""
    if not holds:
        raise StaleSentenceError("what a sentence says, and is checked beside it, does not hold")
    return ""


def paper_gains() -> dict[str, Any]:
    """What the paper's metrics gain on CIFAR-10, in points; by metric and batch size, with ResNet-56 and SGD."""
    rows = published()["cifar10"]
    gains = [row[column] - row["baseline"] for row in rows for column in METRICS.values()]
    resnet = [row for row in rows if (row["network"], row["optimizer"]) == ("ResNet-56", "SGD")]
    return {
        "comparisons": len(gains),
        "higher": sum(gain > 0 for gain in gains),
        "largest": f"{max(gains):+.2f}",
        **{
            name: {row["batch"]: f"{row[column] - row['baseline']:+.2f}" for row in resnet}
            for name, column in METRICS.items()
        },
    }


def _trials(evidence: Evidence) -> dict[str, Any]:
    complete = [trial for trial in evidence.trials if trial.result is not None and trial.config.id in evidence.planned]
    scores = [trial.score() if trial.status == "finished" else None for trial in complete]
    return {
        "complete": len(complete),
        "planned": len(evidence.planned),
        "failed": sum(score is None or score <= CHANCE for score in scores),
        "hours": f"{sum(map(_hours, evidence.trials)):.1f}",
    }


def _hours(trial: StoredTrial) -> float:
    seconds = sum(
        row["steps"] * (row["step_ms"] or 0.0) / 1000 + (row.get("eval_seconds") or 0.0) for row in trial.timing()
    )
    return float(seconds) / 3600


def _spread(experiments: dict[str, Arms]) -> dict[str, int]:
    """In how many comparisons the variance over seeds is smaller with a metric."""
    each = [one.comparison.variance_ratio for name in AT_ONE_RATE for one in metrics(experiments[name])]
    return {"smaller": sum(ratio is not None and ratio < 1 for ratio in each), "total": len(each)}


def _of_tuning(evidence: Evidence) -> dict[str, Any]:
    """The held-out scores that chose the rates, and how well they tell rates apart."""
    found = evidence.results["tuned-fashion"]
    assert found.tuned is not None
    assert found.experiment.tuning is not None
    means = {
        label: {point.settings["lr"]: point.mean or 0.0 for point in points}
        for label, points in found.tuned.points.items()
    }
    best = max(mean for by_rate in means.values() for mean in by_rate.values())
    texts = {label: {rate: f"{100 * mean:.2f}" for rate, mean in by_rate.items()} for label, by_rate in means.items()}
    rates = {label: values["lr"] for label, values in found.tuned.best.items()}
    return {
        "held_out": texts,
        "best_rate": rates,
        "held_out_table": partial(tables.held_out, texts, rates),
        "held_out_error": f"{100 * math.sqrt(best * (1 - best) / (found.experiment.tuning.hold_out or 1)):.1f}",
    }


def _of_filters(experiments: dict[str, Arms]) -> dict[str, Any]:
    """Question 5: level and order of the trained filters."""
    measured = {name: experiments[name] for name in AT_ONE_RATE}
    controls = {name: arms for name, arms in experiments.items() if name.endswith("-controls")}
    compared, pairs = regularity.against_sgd(measured), regularity.against_reweighted(measured)
    level, order = (
        Group(*(one for (*_, quantity), one in compared.items() if quantity == wanted))
        for wanted in regularity.QUANTITIES
    )
    in_every_seed = [one for one in pairs.values() if one.comparison.wins == one.comparison.n]
    return {
        "levels": level,
        "orders": order,
        "order_pairs": Group(*pairs.values()),
        "order_gains": Group(*in_every_seed),
        "alike_along_input": {
            who: regularity.more_alike_along_input(measured, plain=who == "sgd") for who in ("sgd", "metric")
        },
        "filters": partial(tables.filters, {**measured, **controls}, compared),
        "order_table": partial(tables.orders, pairs),
        "plain_filter_table": partial(tables.plain_filters, measured),
    }
