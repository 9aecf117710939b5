"""What is concluded from which outcome is what the protocol says, on trials with made-up scores."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from evidence import controls, page, small_batches, sweeps
from evidence.attribution import Attribution
from evidence.claims import CLAIMS
from evidence.tables import SEARCH, TUNING, tables

from riesz_lab.errors import ConfigError
from stored import store_trial


def store(runs, sweep, gains, base=0.8):
    """Every trial of a sweep; `gains` are those of the arms over `base`, by label."""
    for arm in sweep.arms:
        store_arm(runs, sweep, arm.label, base + gains.get(arm.label, 0.0))


def store_arm(runs, sweep, label, mean, spread=0.00005):
    """The trials of an arm: their mean is exact, their noise its own."""
    rng, configs = random.Random(label), sweep.configs(sweep[label])
    noise = [rng.gauss(0.0, spread) for _ in configs]
    for config, one in zip(configs, noise, strict=True):
        store_trial(runs, config, score=mean + one - sum(noise) / len(noise))


def diverge(trial):
    file = trial / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "diverged", "last": None, "best": None}))


def conclusion(runs, make):
    (claim,) = (claim for claim in CLAIMS if claim.sweep is make)
    return claim.conclude(tables(runs))


def test_a_claim_is_confirmed_denied_contradicted_or_undecided(tmp_path):
    gains = {"ReweightedL2 lam = 1": 0.01, "ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    store(tmp_path, sweeps.lambda_mnist(), gains)
    confirmed, denied, contradicted = conclusion(tmp_path, sweeps.lambda_mnist)
    assert confirmed.startswith("confirmed in direction: ReweightedL2 lam = 1 (+1.00, ")
    assert denied.startswith("does not hold here by more than 0.2 points: ReweightedL2 lam = 5 (+0.00, ")
    assert contradicted.startswith("contradicted at these settings: ReweightedL2 lam = 20 (-1.00, ")
    assert "SobolevTilde lam = 20, as scale (-2.00, " in contradicted
    store_arm(tmp_path, sweeps.lambda_mnist(), "ReweightedL2 lam = 5", 0.8, spread=0.005)
    (undecided,) = (line for line in conclusion(tmp_path, sweeps.lambda_mnist) if line.startswith("undecided"))
    assert "ReweightedL2 lam = 5 (+0.00, " in undecided
    assert "; one test alone detects " in undecided


def test_the_summary_leads_with_the_papers_protocol_on_both_datasets(tmp_path):
    fashion, mnist = sweeps.lambda_fashion(), sweeps.lambda_mnist()
    assert page.text(tmp_path).splitlines()[2] == "No pair of trials is complete yet."
    store(tmp_path, fashion, {"ReweightedL2 lam = 1": 0.01, "ReweightedL2 lam = 20": -0.01})
    on_fashion = (
        "By the paper's protocol, on Fashion-MNIST 1 of 6 settings is better, 4 are equal within the margin and 1 is"
        " worse (mean differences to SGD from -1.00 to +1.00 points, 5 pairs each)"
    )
    assert page.text(tmp_path).splitlines()[2] == f"{on_fashion}."
    for label, score in {"SGD (lam = 0)": 0.8, "ReweightedL2 lam = 5": 0.803}.items():
        store_arm(tmp_path, mnist, label, score)
    on_mnist = (
        "on MNIST nothing is decided yet (a first look: mean differences to SGD from +0.30 to +0.30 points, 5 pairs"
        " each)"
    )
    assert page.text(tmp_path).splitlines()[2] == f"{on_fashion}; {on_mnist}."


def test_a_gain_that_a_longer_step_explains_is_told_from_one_that_it_does_not(tmp_path):
    gains = {
        "plain SGD 0.02": 0.01, "ReweightedL2 lam = 1": 0.01,
        "plain SGD 0.06": 0.01, "ReweightedL2 lam = 5": 0.02, "SobolevTilde lam = 5, as scale": 0.001,
        "plain SGD 0.2": 0.0, "ReweightedL2 lam = 20": 0.01,
    }  # fmt: skip
    store(tmp_path, sweeps.plain_sgd(), gains)
    store_arm(tmp_path, sweeps.plain_sgd(), "plain SGD 0.2", 0.81, spread=0.005)
    lines = dict(line.split(": ", 1) for line in conclusion(tmp_path, sweeps.plain_sgd_matched))
    assert lines["ReweightedL2 lam = 1"].startswith("the gain is step length; no difference (")
    assert lines["ReweightedL2 lam = 5"].startswith("the gain is more than step length; better (+1.0")
    assert lines["ReweightedL2 lam = 20"].startswith("open whether the gain is more than step length; no evidence (")
    assert lines["SobolevTilde lam = 5, as scale"].startswith("the gain is no larger than the margin: nothing to")
    counted = (
        "1 of 4 settings is equal within the margin, 1 is better, 1 shows no evidence of a difference and 1 is worse."
    )
    assert f"whose step along the mean is about as long as theirs, {counted}" in page.text(tmp_path)


def test_a_control_in_which_trials_diverged_attributes_nothing(tmp_path):
    store(tmp_path, sweeps.plain_sgd(), {"plain SGD 0.02": 0.01, "ReweightedL2 lam = 1": 0.01})
    found = tables(tmp_path)
    then, now = (
        found[f"evidence-plain-sgd{kind}"].rows["ReweightedL2 lam = 1"].comparison for kind in ("", "-matched")
    )
    assert Attribution(then, now, then).fate == "gone"
    assert Attribution(then, replace(now, diverged=(1, 0)), then).fate == "open"


RATES = [0.01 * factor for factor in TUNING.factors]
TRIED = len(SEARCH.all_configs())
PLANNED = 199 + TRIED
"""Trials of the protocol, whatever grid of rates it needs; without controls."""


def store_tuning(runs, best):
    """Trials that tune, of which `best` rate wins."""
    for arm in SEARCH.arms:
        for config in SEARCH.configs(arm):
            store_trial(runs, config, score=0.8 - abs(arm.config.lr - best) + 0.0002 * (config.seed % 2))


def test_a_gain_at_tuned_rates_counts_once_that_at_the_papers_rate_is_known(tmp_path):
    store_tuning(tmp_path, 0.02)
    store(tmp_path, tables(tmp_path)["evidence-tuned-fashion"].sweep, {"SGD + ReweightedL2": 0.01})
    assert conclusion(tmp_path, sweeps.tuned_fashion) == ["not decided: trials of evidence-lambda-fashion are missing"]
    store(tmp_path, sweeps.lambda_fashion(), {"SobolevTilde lam = 1, as scale": 0.01})
    tilde, reweighted = conclusion(tmp_path, sweeps.tuned_fashion)
    assert tilde.startswith("SGD + SobolevTilde: the gain is a matter of the rate; no difference (")
    assert reweighted.startswith("SGD + ReweightedL2: a gain here alone; better (+1.0")


def test_a_rate_at_the_edge_of_the_grid_decides_nothing(tmp_path):
    store_tuning(tmp_path, max(RATES))
    row = next(line for line in page.text(tmp_path).splitlines() if "Not in the paper, which tunes no rate" in line)
    edge = "not decided: the best rate lies at the edge of the grid, which is to be widened: SGD, "
    assert f"{TRIED} of {TRIED} | {edge}" in row


def test_an_arm_that_diverges_at_every_rate_is_named(tmp_path):
    store_tuning(tmp_path, 0.02)
    for arm in SEARCH.arms:
        if arm.config.metric.startswith("reweighted"):
            diverge(store_trial(tmp_path, SEARCH.configs(arm)[0]))
    row = next(line for line in page.text(tmp_path).splitlines() if "Not in the paper, which tunes no rate" in line)
    assert "not decided: arm 'SGD + ReweightedL2' diverged at every rate of the grid" in row


def test_trials_that_tune_are_planned_and_shown(tmp_path):
    store_tuning(tmp_path, 0.02)
    lines = page.text(tmp_path).splitlines()
    assert lines[5].startswith(f"{TRIED} of {PLANNED} planned trials are complete")
    means = " | ".join(f"{80.01 - 100 * abs(rate - 0.02):.2f}" for rate in RATES)  # of two seeds, by rate
    assert f"| SGD | {means} | 0.02 |" in lines
    store(tmp_path, tables(tmp_path)["evidence-tuned-fashion"].sweep, {})
    assert page.text(tmp_path).splitlines()[5].startswith(f"{TRIED + 15} of {PLANNED} planned trials")


BEST = "b8 lr 0.03 SGD"


@pytest.mark.parametrize(
    ("at_sgds_rate", "spread", "elsewhere", "outcome"),
    [
        (0.0, 0.0001, 0.0, "the gain is a matter of the rate"),
        (0.01, 0.0001, 0.0, "the gain is more than a matter of the rate"),
        (0.0, 0.0001, 0.04, "the gain is more than a matter of the rate"),  # at the rate that suits the metric
        (0.0, 0.005, 0.0, "open whether the gain is more than a matter of the rate"),
    ],
)
def test_the_gain_of_small_batches_is_read_at_the_rates_that_suit_too(
    tmp_path, at_sgds_rate, spread, elsewhere, outcome
):
    sweep = sweeps.regimes()
    gains = {"b8 lr 0.1 SGD + SobolevTilde": 0.015, BEST: 0.02, f"{BEST} + ReweightedL2": 0.02}
    store(tmp_path, sweep, gains | {"b8 lr 0.01 SGD + SobolevTilde": elsewhere})
    store_arm(tmp_path, sweep, f"{BEST} + SobolevTilde", 0.82 + at_sgds_rate, spread)
    tilde, reweighted = small_batches.conclude(tables(tmp_path)[sweep.name])
    assert tilde.startswith("SobolevTilde, batch 8, rate 0.1: better (+1.50, ")
    assert "; at 0.03, which suits SGD best there: " in tilde
    assert ("at the edge" in tilde) == bool(elsewhere)
    assert tilde.endswith(outcome)
    assert reweighted.endswith("; no gain shown, so none to explain")
    assert f"), {outcome}; ReweightedL2" in page.text(tmp_path)


@pytest.mark.parametrize(
    ("small", "large", "word"),
    [
        (0.015, 0.0, "higher (+1.5"),
        (0.015, 0.05, "lower (-3.5"),
        (0.015, 0.015, "no difference (+0.00"),
        (-0.01, -0.02, "higher (+1.0"),
    ],
)
def test_whether_small_batches_gain_most_is_tested_by_seed(tmp_path, small, large, word):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD + SobolevTilde": small, "b128 lr 0.1 SGD + SobolevTilde": large})
    tilde, _ = small_batches.conclude(tables(tmp_path)[sweep.name])
    assert tilde.split("; difference at 8 minus that at 128: ")[1].startswith(word)
    assert "gain more" not in tilde


def test_trials_that_diverged_are_counted_and_conclude_nothing(tmp_path):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD + ReweightedL2": 0.02})
    for config in sweep.configs(sweep["b8 lr 0.1 SGD"]):
        diverge(store_trial(tmp_path, config))
    page_text = page.text(tmp_path)
    complete = f"90 of {PLANNED} planned trials are complete, after 0.0 hours of training"
    assert f"{complete}; 5 of them diverged or collapsed." in page_text
    assert "SobolevTilde no claim (no pair of scores; failed: 0 of 5, of the baseline's 5), no gain shown" in page_text
    assert "| b8 lr 0.1 SGD | 5/5, 5 diverged | - |" in page_text
    assert "nan" not in page_text


def test_what_differs_gets_controls_once_its_sweep_is_complete(tmp_path):
    sweep = sweeps.lambda_fashion()
    worse = {"ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    for config in sweep.configs(sweep.arms[0]):
        store_trial(tmp_path, config, score=0.8)
    with pytest.raises(ConfigError, match="controls are chosen once all of its trials are complete"):
        controls._stored(sweep.name, tmp_path)
    store(tmp_path, sweep, {})
    with pytest.raises(ConfigError, match="no metric differs"):
        controls._stored(sweep.name, tmp_path)
    store(tmp_path, sweep, worse)
    found = controls._stored(sweep.name, tmp_path)
    assert {arm.label: arm.baseline for arm in found.arms} == {
        "SGD (lam = 0)": None,
        "ReweightedL2 lam = 20": None,
        "ReweightedL2 lam = 20, norm kept": "SGD (lam = 0)",
        "SobolevTilde lam = 20, as scale": None,
        "SobolevTilde lam = 20, as scale, norm kept": "SGD (lam = 0)",
        "SobolevTilde lam = 20, as scale, channels permuted": "SobolevTilde lam = 20, as scale",
    }
    assert "SGD at the same rate (1 of 4), 4 of 6 settings are equal within the margin and 2 are worse." in page.text(
        tmp_path
    )
    kept, tilde = "ReweightedL2 lam = 20, norm kept", "SobolevTilde lam = 20, as scale"
    store(tmp_path, found, worse | {kept: 0.0, f"{tilde}, norm kept": -0.02, f"{tilde}, channels permuted": -0.005})
    row = next(line for line in page.text(tmp_path).splitlines() if "where lambda-fashion differs" in line)
    assert "30 of 30 | **ReweightedL2 lam = 20 (worse)**: with the norm kept the difference is gone (" in row
    assert f"**{tilde} (worse)**: with the norm kept the difference remains (-2.0" in row
    assert "; the order of the channels matters (+1.50" in row


def test_a_control_of_a_tuned_arm_meets_sgd_at_the_same_rate(tmp_path):
    for arm in SEARCH.arms:
        best = 0.02 if arm.config.metric == "identity" else 0.005
        for config in SEARCH.configs(arm):
            store_trial(tmp_path, config, score=0.8 - abs(arm.config.lr - best))
    store(tmp_path, tables(tmp_path)["evidence-tuned-fashion"].sweep, {"SGD + ReweightedL2": 0.01})
    found = controls._stored("evidence-tuned-fashion", tmp_path)
    assert [(arm.label, arm.config.lr, arm.baseline) for arm in found.arms] == [
        ("SGD at 0.005", 0.005, None),
        ("SGD + ReweightedL2", 0.005, None),
        ("SGD + ReweightedL2, norm kept", 0.005, "SGD at 0.005"),
    ]
