"""The stored trials of the second protocol, and the pages that are computed from stored numbers."""

from __future__ import annotations

import json
import shutil

import pytest
from evidence import premise, reread, signs_predict
from evidence.signs import PART_1, TRIALS_2, left, parts, search, tuning_trials
from evidence.signs_collect import FILES, collect, digest

from riesz_lab.inspection.gradients import NETWORK
from riesz_lab.store import Store


def test_every_stored_trial_is_complete_planned_and_of_one_thread():
    store = Store(TRIALS_2)
    assert not store.broken
    assert store.trials
    for trial in store.trials:
        assert trial.result is not None
        environments = json.loads((trial.path / "environment.json").read_text())
        assert {one["threads"] for one in environments} == {1}
        assert trial.history()[-1] == trial.result.last or trial.status != "finished"


def test_rates_of_the_stored_trials_are_those_that_the_search_asks_for():
    done = {trial.config.id: trial.score() for trial in Store(TRIALS_2).trials}
    asked = {config.id for config in left(parts([1, 2, 3], {}), {})}
    for cell in PART_1:
        for config in cell.arms.values():
            for rate in search(config, done).scores:
                asked |= {trial.id for trial in tuning_trials(config, rate)}
    tuning = [trial for trial in Store(TRIALS_2).trials if trial.config.hold_out]
    assert all(trial.config.id in asked for trial in tuning)


def test_one_changed_score_is_noticed(tmp_path):
    assert digest() == (TRIALS_2 / "digest.txt").read_text().strip()
    shutil.copytree(TRIALS_2, tmp_path / "trials-2")
    trial = Store(tmp_path / "trials-2").trials[0]
    result = json.loads((trial.path / "result.json").read_text())
    result["last"]["test_accuracy"] += 0.0001
    (trial.path / "result.json").write_text(json.dumps(result))
    assert digest(tmp_path / "trials-2") != digest()


def test_no_weights_are_published_and_the_trials_stay_small():
    files = [file for file in TRIALS_2.rglob("*") if file.is_file()]
    assert {file.name for file in files} <= {*FILES, "digest.txt"}
    assert sum(file.stat().st_size for file in files) <= 12e6


def test_a_trial_is_collected_once(tmp_path):
    shutil.copytree(TRIALS_2, tmp_path / "runs")
    new = collect(tmp_path / "runs", tmp_path / "target")
    assert len(new) == len(Store(TRIALS_2).trials)
    assert collect(tmp_path / "runs", tmp_path / "target") == []


def test_what_is_read_again_is_recomputed_from_the_trials():
    assert reread.FILE.read_text() == reread.page()


def test_an_interval_over_seeds_is_students():
    assert reread.interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))


def test_the_premise_is_the_page_of_its_numbers():
    networks = json.loads((premise.FOLDER / "premise.json").read_text())
    assert (premise.FOLDER / "PREMISE.md").read_text() == premise.markdown(networks)
    for found in networks.values():
        for one in found.values():
            assert one["layers"] == len(one["by layer"])
            assert {*one["ordered"], *one["common"]} <= {*one["by layer"]}


def test_predictions_are_of_planned_cells_and_of_all_asked_arms():
    stored = json.loads(signs_predict.FILE.read_text())
    assert {*stored} <= {cell.name for cell in PART_1}
    for one in stored.values():
        assert {*one["predicted"]} == {*signs_predict.ASKED}
        network = {mode["direction"]: mode["gains"] for mode in one["modes"] if mode["layer"] == NETWORK}
        for arm, (direction, lam) in signs_predict.ASKED.items():
            assert one["predicted"][arm] == network[direction][str(lam)]
