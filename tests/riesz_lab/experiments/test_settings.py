"""Settings reach the user's function, are crossed, and are tuned alike for every arm."""

import dataclasses
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import riesz
import riesz_lab
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments import read_experiments, result
from riesz_lab.experiments.experiment import FIRST_TUNING_SEED
from riesz_lab.experiments.function import inspect_function, settings_of
from riesz_lab.experiments.question import ask, start_grid
from riesz_lab.experiments.tuning import EXTENSIONS
from riesz_lab.store import Store


def model_and_optimizer(attach, lr):
    model = nn.Conv2d(1, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, isinstance(attach(optimizer, model), riesz.Attachment)


def peak(lr, best):
    """A score that is best at one rate."""
    return 1 - 0.1 * abs(torch.tensor(lr / best).log2().item())


calls = []


def train(attach, seed, lr=0.1, width=8):
    calls.append((lr, width))
    _, directed = model_and_optimizer(attach, lr)
    value = peak(lr, 0.1 if directed else 0.2) + 0.001 * (1 + directed) * torch.rand(()).item()
    # The test score would choose another rate.
    return {"score": value - lr, "held_out": value}


def anything(attach, seed, **settings):
    model_and_optimizer(attach, settings["lr"])
    return torch.rand(())


def needs(attach, seed, lr):
    model_and_optimizer(attach, lr)
    return torch.rand(())


def no_held_out(attach, seed, lr=0.1):
    model_and_optimizer(attach, lr)
    return torch.rand(())


def no_settings(attach, seed):
    model_and_optimizer(attach, 0.1)
    return torch.rand(())


def build(width=8):
    images = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    model = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 2))
    return model, (TensorDataset(*data[:40]), TensorDataset(*data[40:])), nn.functional.cross_entropy


def test_settings_reach_the_function_and_are_crossed(tmp_path):
    calls.clear()
    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path, lr=[0.01, 0.03], width=[4, 6])
    assert sorted(set(calls)) == [(0.01, 4), (0.01, 6), (0.03, 4), (0.03, 6)]
    assert len(answer.arms) == 8
    assert answer.arms["SobolevTilde, lr=0.03, width=4"].arm.baseline == "plain, lr=0.03, width=4"
    assert {comparison.family for comparison in answer.comparisons.values()} == {4}


def test_stored_trials_are_kept_by_settings(tmp_path):
    asked = {"metrics": ["sobolev-tilde"], "seeds": 1, "runs": tmp_path}
    ids = []
    for settings in ({}, {"lr": 0.1}, {"lr": 0.2}, {"lr": 0.2, "width": 4}):
        answer = riesz_lab.compare(train, **asked, **settings)
        assert answer.stored == ()
        ids.append(answer.arms["plain"].arm.config.id)
        assert settings_of(answer.arms["plain"].arm.config) == settings
    assert len(set(ids)) == 4
    # Without settings: the id that such a trial had before there were any.
    assert riesz_lab.compare(train, **asked).arms["plain"].arm.config.model_options == ("score=score", "better=higher")


@pytest.mark.parametrize("function", [anything, needs])
def test_settings_without_a_default(function, tmp_path):
    answer = riesz_lab.compare(function, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path, lr=0.2)
    assert settings_of(answer.arms["plain"].arm.config) == {"lr": 0.2}


def test_several_values_of_lam_in_one_metric(tmp_path):
    answer = riesz_lab.compare(train, metrics=["sobolev-tilde(lam=0.1,1,10)"], seeds=1, runs=tmp_path)
    assert list(answer.arms) == ["plain", "SobolevTilde, lam 0.1", "SobolevTilde", "SobolevTilde, lam 10"]
    assert {comparison.family for comparison in answer.comparisons.values()} == {3}


class Named(NamedTuple):
    score: float
    held_out: float


@dataclasses.dataclass
class Record:
    score: float
    held_out: float


@pytest.mark.parametrize("kind", [dict, Named, Record])
def test_scores_by_name(kind, tmp_path):
    def function(attach, seed, lr=0.1):
        model_and_optimizer(attach, lr)
        return kind(score=torch.rand(()), held_out=0.5)

    riesz_lab.compare(function, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path)
    rows = [trial.last() for trial in Store(tmp_path).trials]
    assert [row["held_out"] for row in rows] == [0.5, 0.5]


def test_tuning_is_fair_and_never_sees_the_test_score(tmp_path):
    answer = riesz_lab.compare(
        train, metrics=["sobolev-tilde"], seeds=3, tune=["lr"], runs=tmp_path, lr=[0.05, 0.1, 0.2, 0.4]
    )
    tuned = answer.tuned
    assert tuned.best == {"plain": {"lr": 0.2}, "SobolevTilde": {"lr": 0.1}}
    assert len(tuned.trials) == 2 * 4 * 3
    assert tuned.extended == 0
    trials = Store(tmp_path).trials
    tuning = [trial for trial in trials if trial.config.seed >= FIRST_TUNING_SEED]
    final = [trial for trial in trials if trial.config.seed < FIRST_TUNING_SEED]
    # The same number of trials for every arm, at the same rates; none of them is judged.
    counts = {(t.config.metric, settings_of(t.config)["lr"]): 0 for t in tuning}
    assert len(counts) == 8
    assert len(tuning) == 24
    assert all(trial.config.hold_out for trial in tuning)
    assert len(final) == 6
    assert "at each arm's best lr" in answer.text
    ((asked,), broken) = (each.values() for each in read_experiments(tmp_path))
    assert not broken
    assert asked == answer.experiment
    # The report reads the same from the store.
    assert result(asked, Store(tmp_path)).tuned == tuned
    assert [len(point.held_out) for points in tuned.points.values() for point in points] == [3] * 8
    assert "Cost of tuning: 24 trials" in answer.text


def test_an_edge_extends_the_grid_for_all_arms(tmp_path):
    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=1, tune=["lr"], runs=tmp_path, lr=[0.4, 0.8])
    assert answer.tuned.best == {"plain": {"lr": 0.2}, "SobolevTilde": {"lr": 0.1}}
    assert answer.tuned.grid == {"lr": [0.05, 0.1, 0.2, 0.4, 0.8]}
    assert answer.tuned.extended == 3
    assert {len(points) for points in answer.tuned.points.values()} == {5}
    assert not answer.tuned.at_the_edge


def test_an_edge_that_never_ends_stops_at_the_bound(tmp_path):
    def function(attach, seed, lr=0.1):
        model_and_optimizer(attach, lr)
        return {"score": torch.rand(()), "held_out": lr}

    answer = riesz_lab.compare(function, metrics=["sobolev-tilde"], seeds=1, tune=["lr"], runs=tmp_path, lr=[1.0, 2.0])
    assert answer.tuned.grid["lr"] == [2.0**k for k in range(2 + EXTENSIONS)]
    assert "lies at the edge of the grid, which was extended by 4 values" in answer.text


def test_a_grid_of_the_default_and_of_names(tmp_path):
    def function(attach, seed, lr=0.1, kind="a"):
        model_and_optimizer(attach, lr)
        return {"score": torch.rand(()), "held_out": peak(lr, 0.1) + (kind == "b")}

    answer = riesz_lab.compare(
        function, metrics=["sobolev-tilde"], seeds=1, tune=["lr", "kind"], tune_seeds=1, runs=tmp_path, kind=["a", "b"]
    )
    assert answer.tuned.grid == {"lr": [0.025, 0.05, 0.1, 0.2, 0.4], "kind": ["a", "b"]}
    assert answer.tuned.best["plain"] == {"lr": 0.1, "kind": "b"}


def test_a_rate_that_diverges_is_not_chosen(tmp_path):
    def function(attach, seed, lr=0.1):
        model_and_optimizer(attach, lr)
        diverged = lr > 0.15 and seed % 2
        return {"score": float("nan") if diverged else torch.rand(()), "held_out": lr}

    answer = riesz_lab.compare(
        function, metrics=["sobolev-tilde"], seeds=1, tune=["lr"], runs=tmp_path, lr=[0.05, 0.1, 0.2]
    )
    assert answer.tuned.best["plain"] == {"lr": 0.1}
    assert [point.mean is None for point in answer.tuned.points["plain"]] == [False, False, True]


def test_build_is_tuned_on_training_data(tmp_path):
    answer = riesz_lab.compare(
        build, metrics=["sobolev-tilde"], seeds=1, tune=["lr"], tune_seeds=1, runs=tmp_path, lr=[0.01, 0.1, 1.0],
        epochs=1, batch_size=10, width=4,
    )  # fmt: skip
    tuning = [trial.config for trial in Store(tmp_path).trials if trial.config.hold_out]
    assert {config.hold_out for config in tuning} == {4}
    assert {config.model_options for config in tuning} == {("width=4",)}
    assert set(answer.tuned.best) == {"SGD", "SobolevTilde"}


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (no_settings, {"lr": 0.1}, "does not take the setting 'lr': write it as no_settings.attach, seed, lr=...."),
        (no_settings, {"tune": ["lr"]}, "does not take the setting 'lr'"),
        (needs, {}, "needs the setting 'lr'"),
        (anything, {"tune": ["lr"]}, "expected a grid for 'lr'"),
        (train, {"tune": ["lr"], "lr": 0}, "expected a grid for 'lr'.*got 0"),
        (train, {"lr": [0.1, 0.1]}, "lr: expected one or more different values"),
        (train, {"lr": []}, "lr: expected one or more different values"),
        (no_held_out, {"tune": ["lr"]}, "no held-out score.*never chosen on the test score"),
        (train, {"score": "accuracy"}, "returned score, held_out: expected a field 'accuracy'"),
        (train, {"metrics": ["identity"]}, "is the plain optimizer"),
        (train, {"metrics": ["sobolev-tilde(0.1,1)"]}, "expected settings as name=value"),
        (train, {"tune": ["lr"], "tune_seeds": 0}, "tune_seeds: expected 1 or more"),
        (build, {"depth": 3}, "setting 'depth': neither 'build' nor the lab's loop takes it"),
    ],
)
def test_mistakes_are_explained(function, options, message, tmp_path):
    with pytest.raises((LabError, ConfigError), match=message):
        riesz_lab.compare(function, **{"metrics": ["sobolev-tilde"], "runs": tmp_path, "seeds": 1, **options})
    assert not list(tmp_path.glob("*/*/result.json"))


@pytest.mark.parametrize(
    ("own", "grid"), [(1, [1, 2, 4]), (2, [1, 2, 4, 8]), (16, [4, 8, 16, 32, 64]), (0.5, [0.125, 0.25, 0.5, 1.0, 2.0])]
)
def test_a_grid_of_counts_has_whole_numbers_from_one_on(own, grid):
    def train(attach, seed, width=own):
        return 0.0

    found = start_grid(inspect_function(train), ["width"], {})["width"]
    assert list(found) == grid
    assert {type(value) for value in found} == {type(own)}


def test_a_string_is_one_setting_to_tune_and_one_metric(tmp_path):
    def train(attach, seed, lr=0.1):
        raise AssertionError("not trained here")

    asked = {"seeds": 1, "controls": False, "score": "score", "higher_is_better": True, "margin": 0.1, "tune_seeds": 1}
    asked |= {"until_sure": False, "budget": 50, "plan": False, "settings": {}}
    _, one = ask(train, metrics="sobolev-tilde", tune="lr", **asked)
    _, listed = ask(train, metrics=["sobolev-tilde"], tune=["lr"], **asked)
    assert one == listed
    assert list(one.tuning.grid) == ["lr"]
