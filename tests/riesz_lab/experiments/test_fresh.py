"""Trials that are trained anew, by one process while another looks."""

import json

import riesz_lab
from riesz_lab.experiments.driver import move_aside, settle
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from stored import store_trial


def test_a_trial_that_another_process_trains_anew_is_left_to_it(tmp_path):
    config = riesz_lab.recipe("demo")
    trial, runs = Trial(tmp_path, config), tmp_path
    store_trial(runs, config, score=0.5)
    move_aside(trial, runs)
    with trial.open():  # by the other process
        trial.write_history([{"epoch": 1}])
        settle(trial, runs)
        assert json.loads(trial.history_file.read_text()) == {"epoch": 1}
        assert not trial.result_file.exists()
    settle(trial, runs)
    assert trial.result().last["test_accuracy"] == 0.5
    assert Store(runs).trials[0].score() == 0.5
