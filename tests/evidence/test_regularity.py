"""Correlation of trained filters: compared with SGD's by seed, on trials with made-up weights."""

from __future__ import annotations

import json

import pytest
from evidence import regularity, results
from evidence.numbers import arms_of

from riesz_lab.experiments import result
from riesz_lab.store import Store
from stored import store_trial

MNIST = "lambda-mnist"


def store(runs, layers_of, seeds=range(5)):
    """Trials of the MNIST experiment; `layers_of(label, seed)` are the layers that were measured, None for no trial."""
    experiment = results.judge([]).results[MNIST].experiment
    for arm in experiment.arms:
        for config in experiment.configs(arm):
            if config.seed in seeds and (layers := layers_of(arm.label, config.seed)) is not None:
                path = store_trial(runs, config)
                (path / "regularity.json").write_text(json.dumps(layers))
    return {MNIST: {label: arm for label, arm in arms_of(result(experiment, Store(runs))).items() if arm.trials}}


def layer(order, level=0.0, direction="output", name="conv", p=0.5):
    return {"layer": name, "direction": direction, "order": order, "level": level, "p": p}


def test_it_is_compared_with_the_baseline_of_the_same_seed(tmp_path):
    orders = {"SGD (lam = 0)": 0.0, "ReweightedL2 lam = 5": 0.05}

    def layers(label, seed):  # initial weights differ by seed far more than methods do
        order = orders.get(label)
        if order is None or (order == 0.0 and seed == 4):
            return None
        if seed == 4:
            return []  # it diverged
        return [layer(order + (0.0, 0.3, -0.2, 0.1, 0.2)[seed] + 0.0001 * seed * bool(order))]

    compared = regularity.against_sgd(store(tmp_path, layers))
    one = compared[MNIST, "ReweightedL2 lam = 5", "order"]
    assert (one.comparison.n, one.higher) == (4, "higher")
    assert one.comparison.difference == pytest.approx(0.05015)
    assert one.comparison.family == 2


def test_sobolev_tilde_meets_reweighted_l2_at_the_same_lam(tmp_path):
    orders = {
        "ReweightedL2 lam = 5": 0.01,
        "SobolevTilde lam = 5, as scale": 0.03,
        "SobolevTilde lam = 20, as scale": 0.9,
    }

    def layers(label, seed):
        order = orders.get(label, 0.0)
        wave = 0.001 * seed * (order > 0.02)
        return [layer(order + wave, p=0.03 + order), layer(0.0, direction="input", p=0.9)] if order else None

    experiments = store(tmp_path, layers, seeds=range(3))
    ((key, one),) = regularity.against_reweighted(experiments).items()  # lam = 20 has no partner
    assert key == (MNIST, "SobolevTilde lam = 5, as scale")
    assert (one.comparison.difference, one.comparison.wins) == (pytest.approx(0.021), 3)
    beyond = [regularity.filters_of(arm).beyond_random for arm in experiments[MNIST].values()]
    assert beyond == ["3 of 3", "0 of 3", "0 of 3"]


def test_input_and_output_are_compared_over_the_same_layers(tmp_path):
    levels = {"SGD (lam = 0)": (0.1, 0.2), "ReweightedL2 lam = 1": (0.4, 0.3)}

    def layers(label, seed):
        if label not in levels:
            return None
        output, along_input = levels[label]
        first = layer(0.0, -0.3, name="conv1")  # of one image channel: it has no input direction
        return [first, layer(0.0, output), layer(0.0, along_input, "input")]

    experiments = store(tmp_path, layers, seeds=range(3))
    assert regularity.more_alike_along_input(experiments, plain=True) == "1 of 1"
    assert regularity.more_alike_along_input(experiments, plain=False) == "0 of 1"
    sgd = regularity.filters_of(experiments[MNIST]["SGD (lam = 0)"])
    assert sgd.mean("level") == pytest.approx(-0.1)  # of all layers
    own = sgd.in_both_directions().own()
    assert own["output", "level"].comparison.difference == pytest.approx(0.1)
    assert own["input", "level"].comparison.difference == pytest.approx(0.2)
