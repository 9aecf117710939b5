"""A known truth: one "method" is the baseline at half its rate, the other the baseline in disguise.

The two output channels are used as a difference, so their gradients are g and -g. Smoothing them with sigma = 1/4
halves both; ReweightedL2 changes their mean alone, which is zero.
"""

import pytest
import torch
from torch import nn

import riesz
import riesz_lab

HALF, DISGUISE = "laplacian-smoothing(sigma=0.25)", "reweighted-l2"
HALF_LABEL, DISGUISE_LABEL = "LS along output, sigma 0.25", "ReweightedL2"


def train(attach, seed, lr=0.02):
    model = nn.Conv2d(1, 2, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    attach(optimizer, model)
    truth = torch.linspace(-1, 1, 9)

    def draw(count):
        x = torch.randn(count, 1, 3, 3)
        return x, x.flatten(1) @ truth + 0.5 * torch.randn(count)

    def loss(x, y):
        out = model(x).flatten(1)
        return (out[:, 0] - out[:, 1] - y).square().mean()

    held_out, test = draw(200), draw(200)
    for _ in range(20):
        optimizer.zero_grad()
        loss(*draw(8)).backward()
        optimizer.step()
    with torch.no_grad():
        return {"score": -loss(*test).log(), "held_out": -loss(*held_out).log()}


def test_the_methods_are_what_they_are_said_to_be():
    gradient = torch.randn(1, 1, 3, 3, dtype=torch.float64)
    for metric, factor in ((HALF, 0.5), (DISGUISE, 1.0)):
        weight = nn.Conv2d(1, 2, 3, bias=False).double()
        optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
        riesz.attach(optimizer, weight, metric=riesz.metric(metric))
        before = weight.weight.detach().clone()
        weight.weight.grad = torch.cat([gradient, -gradient])
        optimizer.step()
        torch.testing.assert_close(before - weight.weight, factor * torch.cat([gradient, -gradient]))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def test_at_one_rate_half_the_rate_passes_for_a_worse_method(runs):
    answer = riesz_lab.compare(train, metrics=[HALF, DISGUISE], seeds=5, margin=0.1, runs=runs)
    claims = answer.verdicts
    assert claims[HALF_LABEL] == "worse"
    # Equal in every pair, which excludes no difference of a score without bounds.
    assert claims[DISGUISE_LABEL] == "undecided"
    assert answer.arms[DISGUISE_LABEL].reason.startswith("identical scores in all 5 pairs")
    assert f"{HALF_LABEL} against plain: worse, -" in answer.text
    # The answer says that it is one of a single rate, and how to ask for more.
    assert "compare at each arm's best rate" in answer.text


def test_at_each_arms_best_rate_neither_makes_a_difference(runs):
    answer = riesz_lab.compare(
        train, metrics=[HALF, DISGUISE], margin=0.1, tune=["lr"], lr=[0.01, 0.02, 0.04], until_sure=True, budget=12,
        runs=runs,
    )  # fmt: skip
    best = {label: values["lr"] for label, values in answer.tuned.best.items()}
    assert best[HALF_LABEL] == pytest.approx(2 * best["plain"])
    assert best[DISGUISE_LABEL] == best["plain"]
    assert not answer.tuned.at_the_edge
    for label in (HALF_LABEL, DISGUISE_LABEL):
        assert answer.arms[label].look.identical


def train_on_its_own(attach, seed, lr=0.02):
    """The same truth, with other data for every arm: no pair of scores is equal."""

    def attach_and_seed(optimizer, model):
        attached = attach(optimizer, model)
        torch.manual_seed(seed + 10_000 * len(repr(attached)))
        return attached

    return train(attach_and_seed, seed, lr)


def test_the_interval_says_so_too_where_scores_differ_by_chance(runs):
    options = {"metrics": [HALF, DISGUISE], "margin": 0.5, "runs": runs}
    untuned = riesz_lab.compare(train_on_its_own, **options)
    assert untuned.verdicts[HALF_LABEL] == "worse"
    answer = riesz_lab.compare(
        train_on_its_own, tune=["lr"], lr=[0.02, 0.04, 0.08], until_sure=True, budget=30, **options
    )
    for arm in answer.compared.values():
        assert arm.verdict == "same"
        assert not arm.look.identical
