"""What is concluded from which outcome is what the protocol says, on trials with made-up scores."""

from __future__ import annotations

import pytest
from evidence import controls, page, sweeps
from evidence.claims import CLAIMS
from evidence.conclusions import small_batches
from evidence.tables import SEARCH, tables

from riesz_lab.errors import ConfigError
from stored import store_trial

NOISE = (0.0, 0.0004, -0.0003, 0.0002, -0.0001)


def store(runs, sweep, gains, base=0.8):
    """Every trial of a sweep; `gains` are those of the arms over `base`, by label."""
    for arm in sweep.arms:
        for config, noise in zip(sweep.configs(arm), NOISE, strict=False):
            spread = noise if arm.config.metric != "identity" else 0.0
            store_trial(runs, config, score=base + gains.get(arm.label, 0.0) + spread)


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
    for number, config in enumerate(sweeps.lambda_mnist().configs(sweeps.lambda_mnist()["ReweightedL2 lam = 5"])):
        store_trial(tmp_path, config, score=0.8 + 0.01 * (-1) ** number)
    (undecided,) = (line for line in conclusion(tmp_path, sweeps.lambda_mnist) if line.startswith("undecided"))
    assert "ReweightedL2 lam = 5 (+0.20, " in undecided
    assert "; detectable: " in undecided


def test_a_gain_that_a_longer_step_explains_is_told_from_one_that_it_does_not(tmp_path):
    gains = {"ReweightedL2 lam = 1": 0.01, "ReweightedL2 lam = 5": 0.02, "plain SGD 0.02": 0.01, "plain SGD 0.06": 0.01}
    store(tmp_path, sweeps.plain_sgd(), gains)
    lines = dict(line.split(": ", 1) for line in conclusion(tmp_path, sweeps.plain_sgd_matched))
    assert lines["ReweightedL2 lam = 1"].startswith("the gain is step length; ")
    assert lines["ReweightedL2 lam = 5"].startswith("the gain is more than step length; better (+1.00, ")
    assert lines["ReweightedL2 lam = 20"].startswith("no gain to explain; ")


def test_nothing_is_explained_before_the_gain_is_known(tmp_path):
    tuned = sweeps.tuned_fashion()
    store(tmp_path, SEARCH, {})
    store(tmp_path, tables(tmp_path)[tuned.name].sweep, {})
    (line,) = conclusion(tmp_path, sweeps.tuned_fashion)
    assert line == "not decided: trials of evidence-lambda-fashion are missing"


@pytest.mark.parametrize(
    ("gain_at_best", "spread", "outcome"),
    [
        (0.0, 1, "no difference (+0.00, -0.03 to +0.04); the gain is a matter of the rate"),
        (0.01, 1, "better (+1.00, +0.97 to +1.04); the gain is more than a matter of the rate"),
        (0.0, 20, "open whether the gain is more than a matter of the rate"),
    ],
)
def test_the_gain_of_small_batches_is_read_at_the_rate_that_suits_sgd_too(tmp_path, gain_at_best, spread, outcome):
    best, sweep = "b8 lr 0.03 SGD", sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD + SobolevTilde": 0.015, best: 0.02, f"{best} + ReweightedL2": 0.02})
    for config, noise in zip(sweep.configs(sweep[f"{best} + SobolevTilde"]), NOISE, strict=True):
        store_trial(tmp_path, config, score=0.82 + gain_at_best + spread * noise)
    tilde, reweighted = small_batches(tables(tmp_path))
    assert tilde.startswith("SobolevTilde, batch 8, rate 0.1: better (+1.50, ")
    assert "; at 0.03, the rate that suits SGD best there: " in tilde
    assert f"{outcome}; batch 128, rate 0.1: no difference (" in tilde
    assert "; no gain to explain; " in reweighted
    text = page.files(tmp_path)["evidence.md"].decode()
    assert "On CIFAR-10 at batch 8 and a rate of 0.1, against SGD: SobolevTilde +1.50 points (better), and " in text


def test_trials_that_tune_are_planned_and_the_page_says_which_rates_they_chose(tmp_path):
    asked = sweeps.tuned_fashion()
    for arm in SEARCH.arms:
        for config in SEARCH.configs(arm):
            store_trial(tmp_path, config, score=0.8 - abs(arm.config.lr - 0.02) + 0.0001 * (config.seed % 2))
    text = page.files(tmp_path)["evidence.md"].decode()
    assert text.splitlines()[2].startswith("30 of 229 planned trials are complete")
    assert "Rates tried: 0.0025, 0.005, 0.01, 0.02, 0.04. Best: SGD 0.02, SGD + SobolevTilde 0.02, " in text
    store(tmp_path, tables(tmp_path)[asked.name].sweep, {})
    assert page.files(tmp_path)["evidence.md"].decode().splitlines()[2].startswith("45 of 229 planned trials")


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
    text = page.files(tmp_path)["evidence.md"].decode()
    assert "### lambda-fashion-controls" in text
    assert "1 of 7 sweeps are complete; verdicts on the metrics in them: 4 no difference, 2 worse." in text
