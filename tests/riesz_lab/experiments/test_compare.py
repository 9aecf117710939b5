"""`riesz_lab.compare` and `riesz compare`: a user's own function, in both forms."""

import json
import re

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import riesz
import riesz_lab
from riesz_lab import cli
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments import read_experiments
from riesz_lab.experiments.user_loop import PlainAttachment
from riesz_lab.store.selection import record

SCRIPT = """
import torch
from torch import nn

def train(attach, seed):
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    attach(optimizer, model)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 1, 8, 8)).square().mean().backward()
        optimizer.step()
    return model(torch.ones(1, 1, 8, 8)).square()
"""


def build():
    images = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    return model, (TensorDataset(*data[:40]), TensorDataset(*data[40:])), nn.functional.cross_entropy


def regression():
    images = torch.randn(40, 1, 8, 8)
    data = list(zip(images, images.mean((1, 2, 3)), strict=True))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 1), nn.Flatten(0))
    return model, (data[:30], data[30:]), nn.functional.mse_loss


def test_command_on_a_script_prints_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "report.html").write_text("the page of riesz report")
    command = ["compare", "mine.py:train", "--seeds", "3", "--lower-is-better", "--controls"]
    assert cli.main(command) == 0
    assert (tmp_path / "report.html").read_text() == "the page of riesz report"
    out = capsys.readouterr().out
    assert "1/21 plain, seed 0: score" in out
    assert re.search(r"^SobolevTilde, channels permuted .* SobolevTilde( |$)", out, re.M)
    assert re.search(r"^ReweightedL2, random signs .* plain( |$)", out, re.M)
    page = (tmp_path / "comparison.html").read_text()
    assert "Does a metric help mine.py:train?" in page
    assert "the paper" not in page.partition("<script>")[0].lower()
    # With a margin beyond all scores, the stored trials are told as equal, on the screen and on the page.
    assert cli.main([*command, "--margin", "1e6"]) == 0
    told = "same within 1000000"
    assert told in capsys.readouterr().out
    assert told in (tmp_path / "comparison.html").read_text()
    assert cli.main(command) == 0
    assert "21 trials, 21 complete" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(SCRIPT + "\n# changed")
    assert cli.main(command) == 0
    assert "21 trials, 0 complete" in capsys.readouterr().out
    assert ">21 trials<" in (tmp_path / "comparison.html").read_text()


def test_chance_is_shared_and_the_plain_arm_is_plain(tmp_path):
    seen = {}

    def train(attach, seed):
        model = nn.Conv2d(1, 8, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        attachment = attach(optimizer, model)
        seen[isinstance(attachment, PlainAttachment), seed] = model.weight.detach().clone()
        return float(seed)

    riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=3, runs=tmp_path)
    assert len(seen) == 6
    for seed in range(3):
        assert torch.equal(seen[True, seed], seen[False, seed])
    assert not torch.equal(seen[True, 0], seen[True, 1])


def test_another_score_or_direction_is_another_trial(tmp_path):
    def train(attach, seed):
        model = nn.Conv2d(1, 8, 3)
        attached = attach(torch.optim.SGD(model.parameters(), lr=0.1), model)
        return 0.5 + 0.1 * isinstance(attached, riesz.Attachment) + 0.001 * seed

    asked = {"metrics": ["sobolev-tilde"], "runs": tmp_path}
    for seeds, score, higher in ((3, "gain", True), (4, "loss", False)):
        table = riesz_lab.compare(train, seeds=seeds, score=score, higher_is_better=higher, **asked)
        found = table.comparisons["SobolevTilde"]
        assert (table.score.name, found.higher_is_better, found.n) == (score, higher, seeds)
        assert (found.wins, found.losses) == ((seeds, 0) if higher else (0, seeds))
    # Each is an experiment of its own, so that no report pools them.
    experiments, _ = read_experiments(tmp_path)
    assert {each.score.name for each in experiments.values()} == {"gain", "loss"}


def test_build_is_trained_by_the_lab(tmp_path):
    table = riesz_lab.compare(build, seeds=3, epochs=2, batch_size=8, lr=0.05, runs=tmp_path)
    assert table.score.name == "test_accuracy"
    assert [row.arm.label for row in table.arms.values()] == ["SGD", "ReweightedL2", "SobolevTilde"]
    trial = next(iter(table.arms["SobolevTilde"].trials.values()))
    assert [row["epoch"] for row in trial.history()] == [1, 2]
    assert [row["epoch"] for row in trial.updates()] == [1, 2]


def test_without_classes_the_score_is_the_loss(tmp_path):
    table = riesz_lab.compare(regression, metrics=["reweighted-l2"], seeds=3, epochs=1, batch_size=10, runs=tmp_path)
    assert table.score.name == "test_loss"
    assert not table.comparisons["ReweightedL2"].higher_is_better


def test_a_score_that_is_no_number_is_a_divergent_trial(tmp_path):
    def train(attach, seed):
        model = nn.Conv2d(1, 8, 3)
        attach(torch.optim.SGD(model.parameters(), lr=0.1), model)
        return float("nan")

    table = riesz_lab.compare(train, metrics=["reweighted-l2"], seeds=1, runs=tmp_path)
    flat = record(next(iter(table.arms["ReweightedL2"].trials.values())))
    # The loop is the user's: the lab knows neither its rate nor its epochs.
    assert (flat["metric"], flat["lr"], flat["epochs"]) == ("reweighted-l2(lam=1.0)", None, None)
    assert table.comparisons["ReweightedL2"].collapsed == (1, 1)
    result = json.loads(next(tmp_path.glob("*/*/result.json")).read_text())
    assert result["status"] == "diverged"


def no_attach(attach, seed):
    return 1.0


def swapped(attach, seed):
    model = nn.Conv2d(1, 8, 3)
    attach(model, torch.optim.SGD(model.parameters(), lr=0.1))


def no_score(attach, seed):
    model = nn.Conv2d(1, 8, 3)
    attach(torch.optim.SGD(model.parameters(), lr=0.1), model)


def percent(attach, seed):
    no_score(attach, seed)
    return 85.0


def other(model, data):
    return 1.0


def nothing():
    return 3


def hidden():
    return min(0.5, 0.7)


@pytest.mark.parametrize(
    ("function", "settings", "told"),
    [
        (no_attach, {}, "did not call attach"),
        (swapped, {}, "expected .optimizer, model., got .Conv2d, SGD."),
        (no_score, {}, "expected a number, got None"),
        (percent, {"score": "test_accuracy"}, "'test_accuracy'.*expected a fraction from 0 to 1.*got 85.0"),
        (other, {}, "expected train.*got the arguments model, data"),
        (nothing, {}, "'nothing' takes no arguments.*it returns 3. .*write nothing.attach, seed"),
        (hidden, {}, "'hidden' takes no attach.*called as build.*expected model, .*got float 0.5.*hidden.attach, seed"),
        (no_score, {"epochs": 3}, "has a loop of its own"),
        (build, {"epoch": 3}, "epoch"),
        (build, {"metrics": ["sobolef"]}, "did you mean 'sobolev'"),
        (build, {"seeds": 0}, "seeds: expected 1 or more.*got 0"),
        (build, {"score": "f1"}, "is trained by the lab's loop"),
    ],
)
def test_mistakes_are_explained(function, settings, told, tmp_path):
    with pytest.raises((LabError, ConfigError, TypeError, ValueError), match=told):
        riesz_lab.compare(function, runs=tmp_path, **settings)
    assert not list(tmp_path.glob("*/*/result.json"))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nowhere.py:train", "there is no such file"),
        ("mine.py:nothing", "has no 'nothing'"),
        ("no_such_module:train", "cannot be imported"),
    ],
)
def test_functions_that_cannot_be_found_are_named(path, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    assert cli.main(["compare", path]) == 1
    assert told in capsys.readouterr().err


def test_a_misspelt_metric_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    assert cli.main(["compare", "mine.py:train", "--metrics", "sobolevtilde"]) == 1
    assert "did you mean 'sobolev-tilde'" in capsys.readouterr().err
