"""What is concluded from which outcome is what the protocol says, on trials with made-up scores."""

from __future__ import annotations

import pytest
from evidence import controls, page, sweeps
from evidence.claims import CLAIMS
from evidence.conclusions import small_batches
from evidence.tables import tables

from riesz_lab.errors import ConfigError
from riesz_lab.sweeps import tuning
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
    store(tmp_path, tuning.search(tuned, tuning.Tuning(factors=sweeps.LR_FACTORS)), {})
    chosen = tables(tmp_path)[tuned.name].sweep
    store(tmp_path, chosen, {})
    (line,) = conclusion(tmp_path, sweeps.tuned_fashion)
    assert line == "not decided: trials of evidence-lambda-fashion are missing"


@pytest.mark.parametrize(
    ("gain_at_best", "outcome"), [(0.0, "the gain is a matter of the rate"), (0.01, "the gain is more than")]
)
def test_the_gain_of_small_batches_is_read_at_the_rate_that_suits_sgd_too(tmp_path, gain_at_best, outcome):
    best = "b8 lr 0.03 SGD"
    gains = {"b8 lr 0.1 SGD + SobolevTilde": 0.015, best: 0.02}
    gains |= {f"{best} + {name}": 0.02 + gain_at_best for name in ("SobolevTilde", "ReweightedL2")}
    store(tmp_path, sweeps.regimes(), gains)
    tilde, reweighted = small_batches(tables(tmp_path))
    assert tilde.startswith("b8 lr 0.1 SGD + SobolevTilde: better (+1.50, ")
    assert "; at the rate that suits SGD best there, 0.03: " in tilde
    assert outcome in tilde
    assert reweighted.endswith("; no gain to explain")
    assert (
        "Small batches on CIFAR-10: b8 lr 0.1 SGD + SobolevTilde: better"
        in page.files(tmp_path)["evidence.md"].decode()
    )


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
