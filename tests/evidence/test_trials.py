"""The stored trials of the evidence: complete, small, taken from runs once, and repeatable."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from evidence import EXPERIMENTS, TRIALS, reproduce, results
from evidence.collect import collect
from safetensors.torch import save_file

from riesz_lab import cli
from riesz_lab.errors import LabError
from riesz_lab.store import Store
from stored import store_trial


def mnist_config():
    experiment = results.judge([]).results["lambda-mnist"].experiment
    return experiment.configs(experiment.arms[0])[0]


def test_every_stored_trial_reads_and_is_complete():
    store = Store(TRIALS)
    assert not store.broken
    assert len(store.trials) == 270
    assert all(trial.result is not None for trial in store.trials)


def test_every_trial_was_trained_by_one_thread_as_the_page_says():
    for trial in Store(TRIALS).trials:
        assert {one["threads"] for one in json.loads((trial.path / "environment.json").read_text())} == {1}


def test_no_weights_are_published_and_the_trials_stay_small():
    files = [file for file in TRIALS.rglob("*") if file.is_file()]
    assert not [file for file in files if file.suffix == ".safetensors"]
    assert sum(file.stat().st_size for file in files) <= 20e6


def test_results_are_those_of_the_histories():
    for trial in Store(TRIALS).trials:
        last = trial.history()[-1] if trial.status == "finished" else None
        assert trial.result.last == last, trial.path.name


def test_collecting_takes_complete_trials_of_the_protocol_once(tmp_path):
    source, target = tmp_path / "runs", tmp_path / "trials"
    config = mnist_config()
    path = store_trial(source, config)
    store_trial(source, replace(config, lr=0.08))  # at a rate that was tried and is not planned
    (path / "weights.safetensors").unlink(missing_ok=True)
    (path / "checkpoints").mkdir(exist_ok=True)
    (added,) = collect(source, target)
    assert added == target / path.parent.name / path.name
    assert not (added / "checkpoints").exists()
    assert collect(source, target) == []
    store_trial(source, config, score=0.123)
    with pytest.raises(LabError, match="expected the result that"):
        collect(source, target)


def test_weights_are_left_and_their_regularity_is_kept(tmp_path):
    config = mnist_config()
    path = store_trial(tmp_path / "runs", config)
    save_file({"conv.weight": torch.randn(8, 8, 3, 3)}, path / "weights.safetensors")
    (added,) = collect(tmp_path / "runs", tmp_path / "trials")
    assert not (added / "weights.safetensors").exists()
    assert {layer["direction"] for layer in json.loads((added / "regularity.json").read_text())} == {"output", "input"}


@pytest.mark.parametrize(
    ("cpu", "shift", "agrees", "how"),
    [
        (None, 0.0, True, "bit for bit: all 100 rows"),
        (None, 0.0001, False, "not bit for bit, on a machine of the same kind"),
        ("another", 0.0001, True, "within 3 standard deviations"),
        ("another", 0.5, False, "beyond 3 standard deviations"),
    ],
)
def test_a_repetition_agrees_bit_for_bit_or_on_another_machine_within_the_spread(tmp_path, cpu, shift, agrees, how):
    group = list(results.read().results["lambda-fashion"].arms["SGD (lam = 0)"].trials.values())
    copy = shutil.copytree(group[0].path, tmp_path / group[0].path.name)
    rows = [json.loads(line) for line in (copy / "history.jsonl").read_text().splitlines()]
    rows[-1]["test_accuracy"] += shift
    (copy / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"last": rows[-1]}))
    if cpu:
        environments = json.loads((copy / "environment.json").read_text())
        (copy / "environment.json").write_text(json.dumps([one | {"cpu": cpu} for one in environments]))
    verdict, said = reproduce.compare(group[0], Store(tmp_path).trials[0], group)
    assert (verdict, how in said) == (agrees, True), said


def test_arms_of_the_protocol_have_the_ids_of_the_trials_run_before_it():
    arms = results.read().results["lambda-fashion"].arms
    text = (TRIALS.parent / "PROTOCOL.md").read_text()
    for label in ("SGD (lam = 0)", "ReweightedL2 lam = 1", "SobolevTilde lam = 5, as scale"):
        assert arms[label].arm.config.id in text


def test_the_table_of_an_experiment_is_printed_by_its_folder(capsys):
    assert cli.main(["sweep", str(EXPERIMENTS / "tuned-fashion"), "--table", "--runs", str(TRIALS)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("SGD + SobolevTilde"))
    printed = "same within 0.20 points 89.26 (0.09) +0.084 -0.002 to +0.171 5 lr=0.01 0.088"
    assert " ".join(row.split()[3:]) == printed
