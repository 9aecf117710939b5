"""The numbers behind the pages, on trials with made-up scores."""

from __future__ import annotations

import json
import random
import statistics

import pytest
from evidence import contrasts, results
from evidence.numbers import Group, arms_of, group

from riesz_lab.experiments import result
from riesz_lab.store import Store
from stored import change, store_trial


def store(runs, name, gains, base=0.8, spread=0.00005):
    """Every trial of an experiment; `gains` are those of the arms over `base`, by label."""
    experiment = results.judge([]).results[name].experiment
    for arm in experiment.arms:
        rng, configs = random.Random(arm.label), experiment.configs(arm)
        noise = [rng.gauss(0.0, spread) for _ in configs]
        for config, one in zip(configs, noise, strict=True):
            score = base + gains.get(arm.label, 0.0) + one - statistics.fmean(noise)
            store_trial(runs, config, score=score)
    return read(runs, name)


def read(runs, name):
    return arms_of(result(results.judge([]).results[name].experiment, Store(runs)))


def test_verdicts_are_counted_and_their_range_is_of_the_differences(tmp_path):
    gains = {"ReweightedL2 lam = 1": 0.01, "ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    found = group(store(tmp_path, "lambda-mnist", gains))
    assert (found.total, found.better, found.worse, found.same, found.undecided) == (6, 1, 2, 3, 0)
    assert (found.least, found.greatest) == ("-2.0", "+1.0")


def test_sgd_at_another_rate_is_no_metric(tmp_path):
    arms = store(tmp_path, "plain-sgd", {"plain SGD 0.02": 0.01})
    assert arms["plain SGD 0.02"].better == "better"
    assert (group(arms).total, group(arms).better) == (4, 0)


def test_a_contrast_is_taken_seed_by_seed_and_corrected_for_both_metrics(tmp_path):
    gains = {"b8 lr 0.1 SGD + SobolevTilde": 0.015, "b128 lr 0.1 SGD + SobolevTilde": 0.05}
    found = contrasts.small_batches(store(tmp_path, "regimes", gains))
    tilde, reweighted = found["SobolevTilde"], found["ReweightedL2"]
    assert (tilde.worse, tilde.size, tilde.comparison.family) == ("worse", "-3.500", 2)
    assert reweighted.same == "same"


def test_pairs_that_diverged_have_no_part_in_a_contrast(tmp_path):
    store(tmp_path, "regimes", {})
    experiment = results.judge([]).results["regimes"].experiment
    sgd = experiment.configs(experiment["b8 lr 0.1 SGD"])[0]
    change(store_trial(tmp_path, sgd), "result.json", status="diverged", last=None, best=None)
    assert contrasts.small_batches(read(tmp_path, "regimes"))["SobolevTilde"].comparison.n == 4


def test_a_kept_norm_is_compared_with_the_arm_it_controls(tmp_path):
    worse = {"ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    arms = store(tmp_path, "lambda-fashion", worse)
    kept = {"ReweightedL2 lam = 20, norm kept": 0.0, "SobolevTilde lam = 20, as scale, norm kept": -0.02}
    found = contrasts.norm_kept(arms, store(tmp_path, "lambda-fashion-controls", worse | kept))
    assert {label: one.verdict for label, one in found.items()} == {
        "ReweightedL2 lam = 20": "better",
        "SobolevTilde lam = 20, as scale": "same",
    }
    assert Group(*found.values()).greatest == "+1.0"


def test_the_lengthening_of_gradients_is_a_median_over_epochs_by_layer_and_trial(tmp_path):
    arms = store(tmp_path, "lambda-mnist", {})
    arm = arms["ReweightedL2 lam = 1"]
    ratios = {0: {"a": (1.0, 2.0, 9.0), "b": (3.0, None, 5.0)}}
    for number, trial in enumerate(arm.trials):
        by_layer = ratios.get(number, {"a": (1.5, 1.5, 1.5), "b": (2.0, 2.0, 2.0)})
        epochs = [{name: {"ratio": values[epoch]} for name, values in by_layer.items()} for epoch in range(3)]
        rows = (json.dumps({"epoch": epoch, "layers": layers}) + "\n" for epoch, layers in enumerate(epochs))
        (trial.path / "updates.jsonl").write_text("".join(rows))
    assert arm.longer == "1.5 to 4.0"


def test_accuracy_on_training_images_is_that_of_the_last_epoch(tmp_path):
    arm = store(tmp_path, "lambda-mnist", {})["SGD (lam = 0)"]
    for number, trial in enumerate(arm.trials):
        last = trial.last() | {"train_accuracy": 0.9 + 0.02 * number}
        change(trial.path, "result.json", last=last)
    assert read(tmp_path, "lambda-mnist")["SGD (lam = 0)"].train == "94.00"


@pytest.mark.parametrize(("value", "word"), [("+0.20", "contains"), ("+3.00", "excludes")])
def test_an_interval_contains_or_excludes_a_value(tmp_path, value, word):
    arm = store(tmp_path, "lambda-mnist", {}, spread=0.01)["ReweightedL2 lam = 1"]
    assert getattr(arm, word)(value) == word
