"""Killed, stopped, failing: a sweep loses nothing and completes nothing twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lab_helpers import outcome_bytes
from lab_helpers import riesz as riesz_process
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError, LabError, StoppedError
from riesz_lab.experiments.running import jobs, local
from riesz_lab.experiments.running import ray_executor as on_ray
from riesz_lab.experiments.running.executor import Ended
from riesz_lab.experiments.running.jobs import Settings, drive, find_pending
from riesz_lab.experiments.running.local import LocalExecutor
from riesz_lab.experiments.running.worker import TrialJob, work
from riesz_lab.experiments.trainable import RecipeTrainable
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train
from riesz_lab.utils.importing import load_object
from sweep_helpers import crash, data, short, six, thirty, write

SUPPORT = Path(__file__).parents[2] / "support"
ENVIRONMENT = {"PYTHONPATH": f"{SUPPORT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


class Scripted:
    """An executor whose workers end as told, one after the other; "done" leaves a result."""

    slots, threads, description = 2, 1, "a script"

    def __init__(self, runs, *ends):
        self.runs, self.ends, self.running, self.started, self.closed = runs, list(ends), [], [], False

    def start(self, job):
        assert len(self.running) < self.slots
        self.running.append(job)
        self.started.append(job.id)

    def ended(self, timeout):
        if not self.running:
            time.sleep(0.01)
            return []
        job = self.running.pop(0)
        how = self.ends.pop(0) if self.ends else "done"
        if how in ("done", "killed after its result"):
            write(self.runs, Config.from_dict(job.config), 0.5)
        return [Ended(job.id, "killed" if how.startswith("killed") else how, f"it was {how}")]

    def close(self):
        self.closed = True


def driven(runs, *ends, retries=5):
    made = find_pending(six().all_configs(), runs)
    executor = Scripted(runs, *ends)
    drive(made, executor, how(runs, retries=retries))
    return made, executor


def how(runs, **options):
    return Settings(trainable=RecipeTrainable(), runs=runs, data_dir=runs, **options)


def job(config, runs):
    return TrialJob(id=config.id, config=config.to_dict(), trainable=RecipeTrainable(), runs=runs, data_dir=runs)


def test_a_killed_worker_has_its_trial_continued(tmp_path):
    made, executor = driven(tmp_path, "killed", "stopped", "done", "killed")
    assert len(made.done) == 6
    assert len(executor.started) == 9
    assert not made.failed
    assert not made.waiting


def test_the_directory_has_the_last_word(tmp_path):
    made, executor = driven(tmp_path, "killed after its result")
    assert len(made.done) == 6
    assert len(executor.started) == 6


def test_a_trial_that_is_killed_again_and_again_is_given_up_with_its_reason(tmp_path):
    made, _ = driven(tmp_path, *["killed"] * 40, retries=2)
    assert len(made.failed) == 6
    assert set(made.failed.values()) == {"it was killed, 3 times"}
    assert find_pending(six().all_configs(), tmp_path).failed == made.failed
    assert all(trial.status == "failed" for trial in Store(tmp_path).trials)


def test_a_trial_that_another_process_works_on_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "BUSY_DELAY", 0.01)
    made, executor = driven(tmp_path, *["busy"] * 9)
    assert len(made.done) == 6
    assert len(executor.started) == 15


def test_a_failure_keeps_nothing_from_running(tmp_path):
    made, executor = driven(tmp_path, "failed")
    assert len(made.done) == 5
    assert list(made.failed.values()) == ["it was failed"]
    assert len(executor.started) == 6


def test_asked_to_stop_it_closes_the_executor_and_says_how_to_continue(tmp_path):
    class Signalled(Scripted):
        def ended(self, timeout):
            os.kill(os.getpid(), signal.SIGTERM)
            return super().ended(timeout)

    executor = Signalled(tmp_path)
    made = find_pending(six().all_configs(), tmp_path)
    with pytest.raises(StoppedError, match=r"stopped with 1 trial complete and 5 to go.*Run the same command"):
        drive(made, executor, how(tmp_path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalExecutor(0), "workers: expected 1 or more, got 0"),
        (lambda: LocalExecutor(1, 0), "threads: expected 1 or more, got 0"),
        (lambda: on_ray.RayExecutor(0), "workers: expected 1 or more, got 0"),
    ],
)
def test_impossible_shares_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_cores_are_divided_among_workers(monkeypatch):
    monkeypatch.setattr("riesz_lab.experiments.running.local.available_cores", lambda: 8)
    assert [(LocalExecutor(n).slots, LocalExecutor(n).threads) for n in (1, 3, 8, 20)] == [
        (1, 8),
        (3, 2),
        (8, 1),
        (20, 1),
    ]
    assert (LocalExecutor().slots, LocalExecutor().threads) == (8, 1)
    assert (LocalExecutor(gpus=2).slots, LocalExecutor(gpus=2).threads) == (2, 4)
    environment = LocalExecutor(3, gpus=2)._environment(2)
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"


def test_ray_without_authentication_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE='disabled' would let anyone"):
        on_ray.RayExecutor()


def test_without_ray_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"pip install 'riesz\[ray\]'"):
        on_ray.RayExecutor()


def test_workers_train_the_same_bits_as_one_process_and_a_stopped_sweep_continues(tmp_path, riesz, monkeypatch):
    """SIGTERM to the driver in the midst of it, then the same command: every file equals that of a plain trial."""
    command = [sys.executable, "-m", "riesz_lab", "sweep", "sweep_helpers:six", "--workers", "2", "--threads", "1"]
    command += ["--runs", tmp_path / "sweep", "--accelerator", "cpu"]
    first = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not list((tmp_path / "sweep").glob("*/*/result.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 143, errors
    assert "Run the same command to continue" in errors.decode()
    assert not list((tmp_path / "sweep").glob("*/*/.*.tmp"))
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    status, out, err = riesz(*command[3:])
    assert status == 0, err
    assert "6 trials" in out
    assert "undecided; 2 pairs; at least 3 are needed" in out
    for config in six().all_configs():
        plain = train(config, runs=tmp_path / "plain", data=data(), hardware=Hardware(accelerator="cpu"))
        assert outcome_bytes(plain.path) == outcome_bytes(Trial(tmp_path / "sweep", config).path)


def test_what_fails_is_listed_with_its_reason_and_retried_on_request(tmp_path, riesz, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    command = ("sweep", "sweep_helpers:failing", "--workers", "1", "--runs", tmp_path, "--accelerator", "cpu")
    status, first, _ = riesz(*command)
    assert status == 1
    assert "1 failed; try them again with --retry-failed" in first
    assert "broken, seed 0" in first
    assert "this network cannot be built" in first
    (failed,) = [trial for trial in Store(tmp_path).trials if trial.status == "failed"]
    assert "Traceback" in json.loads((failed.path / "failure.json").read_text())["details"]
    assert len(Store(tmp_path).trials) == 3
    status, again, _ = riesz(*command)
    assert status == 1
    assert "2 complete, 0 to be continued, 0 new, 1 failed before" in again
    status, retried, _ = riesz(*command, "--retry-failed")
    assert status == 1
    assert "2 complete, 1 to be continued, 0 new, 0 failed before" in retried


def test_a_process_that_cannot_start_says_why(tmp_path, monkeypatch):
    def refuse():
        raise OSError("no more processes")

    monkeypatch.setattr(local.forkserver, "ensure_running", refuse)
    made = find_pending(six().all_configs()[:1], tmp_path)
    drive(made, LocalExecutor(1, 1), how(tmp_path, retries=1))
    assert list(made.failed.values()) == ["its process did not start: no more processes, 2 times"]


def test_a_process_that_dies_leaves_the_last_line_of_its_output(monkeypatch):
    monkeypatch.setattr(local, "run_process", crash)
    executor = LocalExecutor(1, 1)
    executor.start(job(short(), Path()))
    assert executor.ended(60) == [Ended(short().id, "killed", "its process ended with signal 9 (no torch here)")]


def test_what_a_worker_cannot_even_begin_fails_at_once_with_its_reason(tmp_path, monkeypatch):
    """Raised before the training: it is no stop to be continued from."""
    made = find_pending(six().all_configs()[:1], tmp_path)
    usual = jobs._job
    monkeypatch.setattr(jobs, "_job", lambda *given: replace(usual(*given), threads=-1))
    drive(made, LocalExecutor(1, 1), how(tmp_path))
    (reason,) = made.failed.values()
    assert reason.startswith("RuntimeError: ")
    (trial,) = Store(tmp_path).trials
    assert trial.failure == reason


def test_rates_are_tuned_first_and_the_table_says_so(tmp_path, riesz, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    command = ("sweep", "sweep_helpers:six", "--only", "sobolev", "--trials", "1", "--workers", "1", "--tune-lr")
    command += ("--lr-factors", "1", "2", "--tune-trials", "1", "--hold-out", "20", "--runs", tmp_path / "runs")
    status, out, err = riesz(*command)
    assert status == 0, err
    assert "thirty tuning: 4 trials, 0 complete" in out
    assert re.search(r"thirty tuning: [68] trials, 4 complete", out)  # of two rates, the best lies at an edge
    tuning, final = re.split(r"thirty: 2 trials", out)
    assert "held-out accuracy" in tuning
    assert "test accuracy" not in tuning
    assert "test accuracy" in final
    assert "Tuned on held-out scores, the same for every arm: lr " in out
    stored = [trial.config for trial in Store(tmp_path / "runs").trials]
    rates = Counter(config.lr for config in stored if (config.hold_out, config.seed) == (20, 1000))
    assert len(rates) > 2
    assert set(rates.values()) == {2}  # both arms at every rate
    assert sorted((config.hold_out, config.seed) for config in stored)[:3] == [(0, 0), (0, 0), (20, 1000)]
    assert len(stored) == 2 + rates.total()
    status, again, _ = riesz(*command, "--table")
    assert again.strip() == out[out.index("arm  ") :].strip()


def killed(*arguments):
    done = subprocess.run(
        [sys.executable, SUPPORT / "sweep_killing.py", *map(str, arguments)],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_workers_and_a_killed_driver_lose_nothing(tmp_path):
    told = killed("local", tmp_path, 3, 1, "nine")
    assert (told["workers"], told["drivers"]) == (3, 1)
    assert told["trials"] == told["results"] == 9
    assert told["completed at most once"]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_thirty_trials_survive_ten_killed_workers_and_two_killed_drivers(tmp_path, capsys, executor):
    told = killed(executor, tmp_path, 10, 2)
    with capsys.disabled():
        print(f"\n{executor}: {told}")
    assert (told["workers"], told["drivers"]) == (10, 2)
    assert told["trials"] == told["results"] == len(thirty().all_configs()) == 30
    assert told["completed at most once"]


@pytest.mark.slow
def test_ray_survives_the_loss_of_a_node(tmp_path, capsys):
    told = killed("nodes", tmp_path)
    with capsys.disabled():
        print(f"\n{told}")
    assert told["trials"] == told["results"] == 30
    assert told["completed at most once"]


def test_ray_trains_the_same_bits(tmp_path):
    command = ("sweep", "sweep_helpers:six", "--only", "sgd", "--trials", "1", "--workers", "1", "--runs", tmp_path)
    done = riesz_process(*command, "--executor", "ray", "--accelerator", "cpu", env=ENVIRONMENT, check=0)
    assert "On Ray on this machine: 1 trial at once" in done.stdout
    (trial,) = Store(tmp_path).trials
    plain = train(trial.config, runs=tmp_path / "plain", data=data(), hardware=Hardware(accelerator="cpu"))
    assert outcome_bytes(plain.path) == outcome_bytes(trial.path)


def test_a_model_that_ends_the_process_is_a_failure_with_a_reason(tmp_path):
    config = short(model="sweep_helpers:exiting_network", epochs=1)
    with pytest.raises(LabError, match=r"ended the process: SystemExit\(0\)"):
        train(config, runs=tmp_path)
    assert work(job(config, tmp_path)) == "failed"
    (trial,) = Store(tmp_path).trials
    assert trial.status == "failed"
    assert "SystemExit(0)" in trial.failure


def test_a_module_that_exits_when_it_is_imported_is_named(tmp_path):
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    with pytest.raises(ConfigError, match=r"does nothing when it is imported.*SystemExit\(0\)"):
        load_object("model", f"{tmp_path / 'exits.py'}:build")
