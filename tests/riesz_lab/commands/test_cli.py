"""The command line as a user sees it: no traceback for a mistake, a suggestion where there is one."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from lab_helpers import write_idx
from riesz_lab import cli
from riesz_lab.commands import completion, demo
from riesz_lab.errors import LabError
from riesz_lab.recipes import RECIPES, recipe
from riesz_lab.store import Store
from sweep_helpers import short, write


def test_help_lists_every_command(riesz):
    status, out, _ = riesz("--help")
    assert status == 0
    assert all(f"  {name}" in out for name in cli.COMMANDS)


def test_a_reader_that_stops_is_no_error():
    reads, writes = os.pipe()
    os.close(reads)
    ended = subprocess.run([sys.executable, "-m", "riesz_lab", "--help"], stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_version(riesz):
    assert riesz("--version")[1].startswith("riesz ")


def test_misspelt_command(riesz):
    status, _, err = riesz("trian")
    assert status == 2
    assert "did you mean 'train'?" in err


def test_misspelt_recipe(riesz):
    status, _, err = riesz("train", "cifar10-resnet65-b8")
    assert status == 1
    assert "did you mean 'cifar10-resnet56-b8'?" in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--metrc", "sobolev"), "--metric"),
        (("--batch-size", "many"), "--batch-size"),
        (("--augment", "mixup"), "--augment"),
    ],
)
def test_misspelt_or_malformed_option(riesz, option, told):
    status, out, err = riesz("train", "demo", *option)
    assert status == 2
    assert told in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--metric", "sobolef"), "did you mean 'sobolev'"),
        (("--batch-size", "0"), "batch_size: expected int >= 1, got 0"),
        (("--model", "resnet"), "model: expected one of cnn, "),
        (("--dataset", "mnist6k"), "did you mean 'mnist5k'"),
        (("--dataset", "mnist"), "riesz data fetch mnist"),
        (("--precision", "16-mixed", "--accelerator", "cpu"), "expected '32' or 'bf16-mixed' on a CPU"),
        (("--devices", "0"), "devices: expected 1 or more, got 0"),
        (("--threads", "0"), "threads: expected 1 or more, got 0"),
    ],
)
def test_impossible_values_are_explained(riesz, option, told):
    status, _, err = riesz("train", "demo", "--data-dir", "nowhere", *option)
    assert status == 1
    assert told in err
    assert not os.path.exists("runs")


def test_train_help_lists_recipes_and_every_setting(riesz):
    assert all(name in riesz("train", "--help")[1] for name in RECIPES)
    out = riesz("train", "demo", "--help")[1]
    assert all(option in out for option in ("--metric", "--batch-size", "--max-steps", "--devices", "--runs", "--seed"))


def test_recipe_must_come_first(riesz):
    assert "the recipe comes first" in riesz("train", "--seed", "3")[2]


def test_recipes_tell_their_cost(riesz):
    status, out, _ = riesz("recipes")
    assert status == 0
    assert all(name in out for name in RECIPES)
    assert "853,018" in out


def test_a_recipe_whose_model_has_no_known_size_is_listed(riesz, monkeypatch):
    monkeypatch.setitem(RECIPES, "another", lambda: replace(recipe("demo"), recipe="another", model="resnet32"))
    status, out, err = riesz("recipes")
    assert status == 0, err
    assert re.search(r"^another .* resnet32 +\? .* \?$", out, re.MULTILINE)


def test_the_help_of_a_sweep_asks_its_question(riesz, tmp_path):
    (tmp_path / "at_recipe.py").write_text(
        "from riesz_lab.recipes import recipe\nfrom riesz_lab.experiments import Arm, Experiment\n"
        "def sweep():\n    return Experiment(name='x', question='y', arms=(Arm('SGD', recipe('demo')),))\n"
    )
    assert riesz("sweep", "at_recipe.py:sweep", "--help")[1].count("In the paper") == 0
    asked = riesz("sweep", "controls", "--help")[1]
    assert "(permuted)? In the paper: " in " ".join(re.sub("[│╭╮╰╯─]", " ", asked).split())


@pytest.mark.parametrize(
    ("arguments", "positionals"),
    [
        (("compare", "mine.py:train"), ["FILE.py:FUNCTION"]),
        (("compare", "mine.py:train", "--seeds", "3"), ["FILE.py:FUNCTION"]),
        (("figure", "overview", "runs"), ["NAME", "DIR"]),
        (("report", "runs"), ["DIR"]),
        (("inspect", "weights.pt"), ["FILE"]),
        (("runs", "compare", "a", "b"), ["GROUP", "GROUP"]),
        (("data", "fetch", "mnist"), ["NAME"]),
    ],
)
def test_help_names_the_arguments_that_are_given(riesz, arguments, positionals):
    status, out, _ = riesz(*arguments, "--help")
    assert status == 0
    assert re.search(r"\[-h\].*" + ".*".join(map(re.escape, positionals)), out)
    assert len(re.findall(rf"^\W*{re.escape(positionals[-1])}  ", out, re.MULTILINE)) == positionals.count(
        positionals[-1]
    )


def test_the_help_of_compare_says_which_options_are_for_build(riesz):
    out = " ".join(riesz("compare", "mine.py:train", "--help")[1].split())
    assert "passes over the training data. This and the next three are for build()" in out
    assert "for build." not in out


def test_a_sweep_that_needs_arguments_is_refused(riesz):
    status, _, err = riesz("sweep", "riesz_lab.commands.demo:demo_experiment", "--dry-run")
    assert status == 1
    assert "expected a function that needs no argument: missing a required argument: 'seeds'" in err


def test_sizes_of_files_have_digits(riesz, tmp_path):
    write(tmp_path / "runs", short(), 0.5)
    out = riesz("report", "-o", "report.md")[1]
    assert re.search(r"report\.md \([1-9]\d* kB\)", out)
    assert "0 MB" not in riesz("data", "list")[1].replace("170 MB", "")


def test_train_stores_a_result_and_shows_it_again(riesz, tmp_path):
    write_idx(tmp_path / "data" / "mnist")
    command = ("train", "mnist-cnn", "--max-steps", "3", "--batch-size", "8", "--seed", "3", "--data-dir", "data")
    command += ("--metric", "sobolev-tilde(lam=0.5)", "--threads", "1", "--accelerator", "cpu")
    status, out, _ = riesz(*command)
    assert status == 0
    assert f"142,410 parameters, 3 steps, stored in {tmp_path}/runs/mnist-cnn/sobolev-tilde-seed3-" in out
    (stored,) = (tmp_path / "runs").glob("*/*/config.json")
    assert json.loads(stored.read_text())["metric"] == "sobolev-tilde(lam=0.5)"
    assert "already complete" in riesz(*command)[1]
    # The stored config is a recipe too.
    assert "already complete" in riesz("train", stored, "--data-dir", "data")[1]


def test_a_config_from_a_file_runs_no_code_that_the_user_did_not_name(riesz, tmp_path):
    (tmp_path / "evil.json").write_text('{"dataset": "os:abort"}')
    status, _, err = riesz("train", "evil.json")
    assert status == 1
    assert "asks to run code, dataset='os:abort'" in err


@pytest.mark.parametrize("named", [["--dataset=os:abort"], ["--dataset", "os:abort"]])
def test_code_that_the_user_names_is_not_refused(riesz, tmp_path, monkeypatch, named):
    (tmp_path / "mine.json").write_text('{"dataset": "os:abort"}')

    def train(config, **_):
        raise LabError(f"trained on {config.dataset}")

    monkeypatch.setattr("riesz_lab.training.trainer.train", train)
    assert "trained on os:abort" in riesz("train", "mine.json", *named)[2]


HELP = [
    ["demo"], ["train", "demo"], ["sweep", "controls-mini"], ["report"], ["figure", "overview"], ["inspect"],
    ["runs", "list"], ["runs", "compare"], ["runs", "export"], ["runs", "remove"], ["recipes"], ["data", "list"],
    ["data", "fetch"], ["data", "verify"], ["data", "pack"], ["doctor"], ["completion"],
]  # fmt: skip


@pytest.mark.parametrize("columns", ["70", "100", "160"])
def test_help_shows_no_none_and_no_empty_default(riesz, monkeypatch, columns):
    for command in HELP:
        monkeypatch.setenv("COLUMNS", columns)
        status, out, _ = riesz(*command, "--help")
        assert status == 0
        flat = " ".join(out.replace("│", " ").split())
        assert "usage: riesz" in flat
        assert "{None}" not in flat
        assert "default: )" not in flat.replace("default:)", "default: )")
        assert "default: None" not in flat


def test_train_without_a_recipe_is_an_error(riesz):
    status, out, err = riesz("train")
    assert (status, out) == (1, "")
    assert "expected a recipe" in err


def test_html_is_not_written_to_a_terminal(riesz, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    status, _, err = riesz("report", "-o", "-")
    assert status == 1
    assert "expected a file" in err
    assert "expected a file" not in riesz("report", "-o", "-", "--format", "md")[2]


def test_completion_knows_every_command_name_and_option(riesz, tmp_path):
    words = completion.completions()
    assert set(words) == set(cli.COMMANDS)
    assert {"demo", "--metric", "--batch-size", "--runs"} <= set(words["train"])
    assert {"controls-mini", "--only", "--dry-run"} <= set(words["sweep"])
    assert {"compare", "remove", "--where", "--broken"} <= set(words["runs"])
    assert {"--seeds", "--controls"} <= set(words["compare"])
    status, script, _ = riesz("completion", "bash")
    assert status == 0
    (tmp_path / "script").write_text(script)
    ask = "source ./script; COMP_WORDS=(riesz train --batch-s); COMP_CWORD=2; _riesz; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["--batch-size"]
    assert "bashcompinit" in riesz("completion", "zsh")[1]
    assert "complete -c riesz" in riesz("completion", "fish")[1]


def test_a_divergent_trial_is_reported_without_a_stack_trace(riesz):
    status, out, err = riesz("train", "demo", "--lr", "1e30", "--train-limit", "50", "--accelerator", "cpu")
    assert status == 0
    assert "diverged: the loss was not a number" in out
    assert err == ""


def test_data_commands(riesz, tmp_path):
    write_idx(tmp_path / "mnist")
    status, out, _ = riesz("data", "list", "--data-dir", ".")
    assert status == 0
    assert "riesz data fetch cifar10" in out
    status, out, _ = riesz("data", "verify", "mnist", "--data-dir", ".")
    assert status == 1
    assert out.count("WRONG") == 4
    assert riesz("data", "verify", "mnist5k")[0] == 0
    assert "did you mean 'verify'" in riesz("data", "verfy")[2]
    assert "did you mean 'mnist'" in riesz("data", "fetch", "mnits")[2]


def test_data_lists_like_runs(riesz):
    status, out, _ = riesz("data")
    assert status == 0
    assert out == riesz("data", "list")[1]
    assert riesz("data", "--data-dir", "elsewhere")[0] == 0


def test_the_help_of_compare_has_all_options(riesz):
    status, out, _ = riesz("compare", "--help")
    assert status == 0
    assert "--tune-seeds" in out
    assert "riesz compare FILE.py:FUNCTION --help" not in out


def test_a_sweep_whose_table_cannot_be_written_is_refused_before_training(riesz, tmp_path):
    (tmp_path / "taken.csv").mkdir()
    for place in ("nowhere/table.csv", "taken.csv", "table.txt"):
        status, _, err = riesz("sweep", "sweep_helpers:six", "--output", place)
        assert status == 1
        assert "output: expected a" in err
        assert not (tmp_path / "runs").exists()


def test_doctor_says_what_works(riesz):
    status, out, _ = riesz("doctor")
    assert status == 0, out
    assert "eager on cpu: 4 metrics, largest error" in out
    assert "cpu: a short trial trains, saves and is scored: 3 steps" in out


def test_doctor_gpu_measures_nothing_without_a_gpu(riesz):
    status, out, _ = riesz("doctor", "--gpu")
    assert status == 1
    assert "expected a CUDA or HIP device, got none; nothing was measured" in out


def test_without_the_extra_the_command_says_how_to_install_it(riesz, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name in ("tyro", "pooch") else found(name))
    status, _, err = riesz("recipes")
    assert status == 1
    assert "not installed: pooch, tyro" in err
    assert "pip install 'riesz[lab]'" in err


def test_demo_prints_a_table_and_where_it_is_stored(riesz, monkeypatch, tmp_path):
    small = replace(recipe("demo"), train_limit=100, test_limit=50, epochs=1)
    monkeypatch.setattr(demo, "recipe", lambda name: small)
    status, out, _ = riesz("demo", "--seeds", "3")
    assert status == 0
    assert "demo: 9 trials, 0 complete, 0 to be continued, 9 new, 0 failed before" in out
    assert all(method in out for method in ("SGD", *demo.METRICS))
    assert "pairs" in out
    assert f"Stored: {tmp_path / 'runs' / 'demo'}" in out
    assert (
        "<h1>Does a metric help a small CNN on 1,000 digits?</h1>"
        in (tmp_path / "runs" / "demo" / "report.html").read_text()
    )
    assert "demo: 3 trials, 3 complete" in riesz("demo", "--seeds", "1")[1]


def test_demo_says_what_failed_and_trains_it_again(riesz, monkeypatch, tmp_path):
    small = replace(recipe("demo"), train_limit=100, test_limit=50, epochs=1)
    monkeypatch.setattr(demo, "recipe", lambda name: small)
    assert riesz("demo", "--seeds", "1")[0] == 0
    one, other = (trial for trial in Store(tmp_path / "runs").trials if trial.config.metric != "identity")
    (one.path / "result.json").unlink()
    (one.path / "history.jsonl").unlink()
    (one.path / "history.jsonl").mkdir()  # cannot be written to
    (other.path / "result.json").write_text("{")
    status, out, _ = riesz("demo", "--seeds", "1")
    assert status == 1
    assert "set aside: " in out
    assert "1 failed; try them again with the same command:" in out
    (one.path / "history.jsonl").rmdir()
    status, out, _ = riesz("demo", "--seeds", "1")
    assert status == 0
    assert "0 failed before" in out
