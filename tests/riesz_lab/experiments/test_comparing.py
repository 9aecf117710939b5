"""One engine with sweeps: trials in several processes are those of one, and functions are imported by name."""

import functools
import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

import riesz_lab
from riesz_lab import cli
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments import Seeds, UntilSure, result
from riesz_lab.experiments.function import reference_to
from riesz_lab.experiments.running.display import Live, draw
from riesz_lab.experiments.running.jobs import Pending
from riesz_lab.statistics.sequential import sequential
from riesz_lab.store import Store
from riesz_lab.utils.importing import load_object
from sweep_helpers import two_arms, write

SCRIPT = """
import torch
from torch import nn

def train(attach, seed, lr=0.1):
    model = nn.Conv2d(1, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    attach(optimizer, model)
    for epoch in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 8, 8)).square().mean().backward()
        optimizer.step()
        attach.log(size=model.weight.detach().square().sum())
    score = -model(torch.ones(1, 1, 8, 8)).square().mean()
    return {"score": score, "held_out": score - lr}

def build():
    images = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    return model, (data, data), nn.functional.cross_entropy

def slow(attach, seed):
    import time
    train(attach, seed)
    time.sleep(0.5)
    return torch.rand(())
"""


def module_level(attach, seed):
    return 1.0


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    return tmp_path


def trials(runs):
    """Every file of every trial that does not say when or where it ran."""
    files = ("config_file", "history_file", "weights_file", "result_file")
    return {
        trial.path.name: [getattr(trial.files, file).read_bytes() for file in files] for trial in Store(runs).trials
    }


@pytest.mark.parametrize("kind", ["tuned", "build"])
def test_workers_train_the_same_bits_as_this_process(kind, script):
    function = load_object("function", "mine.py:train" if kind == "tuned" else "mine.py:build")
    options = {"tune": ["lr"], "lr": [0.1, 0.2, 0.4]} if kind == "tuned" else {"epochs": 1, "batch_size": 10}
    asked = {"metrics": ["sobolev-tilde"], "seeds": 2, "tune_seeds": 1, "threads": 1, **options}
    here = riesz_lab.compare(function, runs="here", **asked)
    lines = []
    there = riesz_lab.compare(function, runs="there", workers=2, say=lines.append, **asked)
    assert trials("here") == trials("there")
    trained = [line for line in lines if line.endswith(")")]
    assert len(trained) == len(trials("there")) >= 4
    assert here.answers == there.answers
    assert any(" left)" in line for line in lines)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda attach, seed: 1.0, "is a lambda"),
        (functools.partial(module_level), "is a partial"),
        (type("Trainer", (), {"__call__": lambda self, attach, seed: 1.0})(), "is a Trainer"),
    ],
)
def test_a_function_without_a_name_asks_for_one_worker(function, reason, tmp_path):
    with pytest.raises(ConfigError, match=f"workers: expected 1.*{reason}.*top level of a file"):
        riesz_lab.compare(function, workers=2, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_what_a_name_leads_to_must_be_the_function():
    def inner(attach, seed):
        return 1.0

    with pytest.raises(ConfigError, match="is defined within another function"):
        reference_to(inner)
    inner.__qualname__ = "module_level"
    with pytest.raises(ConfigError, match=r"is not what .*module_level names"):
        reference_to(inner)
    assert reference_to(module_level).endswith("test_comparing:module_level")
    assert reference_to(riesz_lab.compare) == "riesz_lab.experiments.compare:compare"


def test_a_file_that_is_changed_meanwhile_is_noticed(script):
    function = load_object("function", "mine.py:train")
    (script / "mine.py").write_text(SCRIPT + "\n# changed")
    question = {"metrics": ["sobolev-tilde"], "seeds": 3, "runs": "runs"}
    # The identity is read when the comparison begins: a worker imports what is there then.
    assert len(riesz_lab.compare(function, workers=2, **question).arms) == 2
    (script / "mine.py").write_text(SCRIPT.replace("return {", "open('mine.py', 'a').write('#'); return {"))
    with pytest.raises(LabError, match="was changed meanwhile"):
        riesz_lab.compare(load_object("function", "mine.py:train"), workers=2, **question)


def test_dry_run_lists_trials_and_changes_nothing(script, capsys):
    command = ["compare", "mine.py:train", "--metrics", "sobolev-tilde", "--seeds", "2", "--set", "lr=0.1"]
    assert cli.main([*command, "--dry-run"]) == 0
    assert "4 trials, 0 complete, 4 to run: their time is known after the first." in capsys.readouterr().out
    assert not (script / "runs").exists()
    assert cli.main(command) == 0
    assert cli.main([*command, "--seeds", "3", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"SobolevTilde +3 +2\n", shown)
    assert re.search(r"\n6 trials, 4 complete, 2 to run: about \d+:\d\d, as the 4 stored ones took\.\n", shown)
    tuned = ["--tune", "lr", "--set", "lr=0.1,0.2", "--until-sure", "--budget", "9", "--dry-run"]
    assert cli.main([*command[:-2], *tuned]) == 0
    shown = capsys.readouterr().out
    assert "Tuning begins with lr 0.1, 0.2" in shown
    assert "\n30 trials, 0 complete, 30 to run, fewer if it is sure before, more if the grid is extended: " in shown


def test_a_killed_driver_loses_no_complete_trial(script):
    command = [sys.executable, "-m", "riesz_lab", "compare", "mine.py:slow", "--metrics", "sobolev-tilde"]
    command += ["--seeds", "4", "--workers", "2", "--threads", "1", "-o", "a.csv"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while len(list(script.glob("runs/*/*/result.json"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    complete = len(list(script.glob("runs/*/*/result.json")))
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert complete <= int(re.search(r"8 trials, (\d+) complete", again.stdout)[1]) < 8
    assert len(list(script.glob("runs/*/*/result.json"))) == 8


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupted_comparison_says_that_trials_are_kept(workers, script):
    command = [sys.executable, "-m", "riesz_lab", "compare", "mine.py:slow", "--metrics", "sobolev-tilde"]
    command += ["--seeds", "20", "--workers", workers, "--threads", "1", "-o", "a.csv"]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(script.glob("runs/*/*/result.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(stopped.pid, signal.SIGINT)
    _, err = stopped.communicate()
    assert stopped.returncode in (130, 143)
    assert err == "riesz: stopped. Complete trials are kept: run the same again to continue\n"
    assert list(script.glob("runs/*/*/result.json"))


def test_the_live_table_has_every_arm_with_its_interval(tmp_path):
    asked = two_arms(stopping=UntilSure(budget=50))
    for config in asked.with_seeds(4).all_configs():
        write(tmp_path, config, 0.5 + 0.1 * (config.metric != "identity") + 0.001 * config.seed % 3)
    now, console = result(asked, Store(tmp_path)), Console(width=160, file=io.StringIO(), record=True)
    shown = Live(tmp_path)
    try:
        console.print(shown.table())  # before anything is known
        shown.begin(result(asked, []), Pending(), 1)
        shown.look(now, Pending())
        shown.tick([])
        console.print(shown.table())
    finally:
        shown.close()
    text = console.export_text()
    assert "starting" in text
    assert "ours" in text
    assert draw(now.arms["ours"].look, 0.2)[-5:].strip() or now.arms["ours"].verdict in text


def test_the_live_table_shows_what_runs_and_what_failed(tmp_path):
    asked = two_arms(seeds=Seeds(count=3))
    now, (first, second, *_) = result(asked, []), asked.all_configs()
    pending = Pending(waiting={first.id: first}, failed={second.id: "no luck"})
    console, shown = Console(width=160, file=io.StringIO(), record=True), Live(tmp_path)
    try:
        shown.begin(now, pending, 2)
        shown.began(first)
        shown.tick([first])
        console.print(shown.table())
    finally:
        shown.close()
    text = console.export_text()
    assert "two: 0/6 trials" in text
    assert re.search(r"SGD +│ +0/3 +│ +│ seed 0 epoch 1/20", text)
    assert re.search(r"ours +│ +0/3 +│ +1 ", text)


def test_the_live_table_tells_an_arm_from_its_control(tmp_path):
    """The label of a control begins with that of its arm."""
    asked = two_arms(seeds=Seeds(count=1))
    control = replace(asked["ours"], label="ours, norm kept", config=replace(asked["ours"].config, control="norm"))
    now = result(replace(asked, arms=(*asked.arms, control)), [])
    pending = Pending(failed={control.config.id: "no luck"})
    console, shown = Console(width=160, file=io.StringIO(), record=True), Live(tmp_path)
    try:
        shown.begin(now, pending, 2)
        console.print(shown.table())
    finally:
        shown.close()
    text = console.export_text()
    assert re.search(r"ours +│ +0/1 +│ +│", text)
    assert re.search(r"ours, norm kept +│ +0/1 +│ +1 ", text)


def test_an_interval_is_drawn_about_zero_and_the_margin():
    wide = sequential([1.0, -1.0, 0.5, -0.5, 0.1], margin=0.5)
    assert draw(wide, 1.0) == "-" * 15 + "+" + "-" * 15
    narrow = draw(sequential([1.0, 1.01, 0.99, 1.0, 1.0], margin=0.5), 1.5)
    assert narrow.index(".") < narrow.index("|") < narrow.rindex(".") < narrow.index("+")


def test_the_page_is_opened_on_request(script, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command = ["compare", "mine.py:train", "--metrics", "sobolev-tilde", "--seeds", "1", "--open"]
    assert cli.main(command) == 0
    assert opened == [(script / "comparison.html").as_uri()]


def test_the_page_says_what_each_layer_went_through(script, capsys):
    command = ["compare", "mine.py:train", "--metrics", "reweighted-l2", "--seeds", "2", "--set", "lr=0.1"]
    assert cli.main([*command, "-o", "r.md"]) == 0
    page = (script / "r.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| weight |"))
    layer, method, ratio, cosine = (cell.strip() for cell in row.strip("|").split("|"))
    assert (layer, method) == ("weight", "ReweightedL2")
    assert 1 < float(ratio) <= 2  # between no and a whole gradient along the mean
    assert 0.5 < float(cosine) < 1
    assert "size" in page  # the curve of what was logged
    assert cli.main(["runs"]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"^compare-mine-train +train, with and without +2 +1 +runs/experiments/compare-mine-train-", shown, re.M
    )


def test_numbers_are_written_as_csv(script):
    command = ["compare", "mine.py:train", "--metrics", "sobolev-tilde", "--margin", "9", "-o", "r.csv"]
    assert cli.main([*command, "--until-sure", "--budget", "9", "--tune", "lr", "--tune-seeds", "1"]) == 0
    assert (script / "r.csv").read_text().startswith("experiment,arm,baseline")
