"""Kill it, stop it, damage its files: it continues, and ends with the same bits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab_helpers import assert_readable, outcome_bytes, small_config, small_data
from riesz_lab.errors import LabError, StoppedError
from riesz_lab.store.trial import Trial, lock
from riesz_lab.training import checkpoint
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.training.signals import Interrupts, signals_after
from riesz_lab.training.trainer import train

SUPPORT = Path(__file__).parents[2] / "support"


def run(folder, config=None, **options):
    return train(
        config or small_config(),
        runs=folder,
        data=small_data(),
        hardware=Hardware(accelerator="cpu"),
        **{"save_every": 0.0, **options},
    )


@pytest.fixture
def stop_after(monkeypatch):
    """Ask the trial to stop after so many steps, as a signal does."""

    def set_up(steps):
        original = Loop.step

        def step(self, parts):
            original(self, parts)
            if self.session.state.step + 1 == steps:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(Loop, "step", step)

    return set_up


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return outcome_bytes(run(tmp_path_factory.mktemp("whole")).path)


# 120 images in batches of 16 are 8 steps an epoch: within one, at its end, at the end of all.
@pytest.mark.parametrize("steps", [1, 5, 8, 13, 16, 24])
def test_sigterm_saves_and_the_same_command_ends_with_the_same_bits(
    tmp_path, monkeypatch, stop_after, uninterrupted, steps
):
    stop_after(steps)
    with pytest.raises(StoppedError, match=f"stopped at step {steps} of 24.*Run the same command"):
        run(tmp_path, save_every=1000.0)
    (path,) = tmp_path.glob("*/*")
    assert_readable(path)
    assert len(checkpoint.newest_first(path / "checkpoints")) == 1
    monkeypatch.undo()
    assert outcome_bytes(run(tmp_path).path) == uninterrupted


@pytest.mark.parametrize("settings", [{"optimizer": "adam", "lr": 1e-3}, {"accumulate": 3}, {"schedule": "cosine"}])
def test_continuing_is_exact_for_other_settings_too(tmp_path, monkeypatch, stop_after, settings):
    config = small_config(**settings)
    whole = outcome_bytes(run(tmp_path / "whole", config).path)
    stop_after(11)
    with pytest.raises(StoppedError):
        run(tmp_path / "cut", config)
    monkeypatch.undo()
    assert outcome_bytes(run(tmp_path / "cut", config).path) == whole


def cut(folder, stop_after, monkeypatch, steps=13):
    stop_after(steps)
    with pytest.raises(StoppedError):
        run(folder)
    monkeypatch.undo()
    (path,) = folder.glob("*/*")
    return path


def test_an_unreadable_checkpoint_falls_back_to_the_one_before(tmp_path, monkeypatch, stop_after, uninterrupted):
    path = cut(tmp_path, stop_after, monkeypatch)
    newest, older = checkpoint.newest_first(path / "checkpoints")
    (newest / "state.pt").write_bytes((newest / "state.pt").read_bytes()[:1000])
    outcome = run(tmp_path)
    assert outcome_bytes(outcome.path) == uninterrupted
    assert older.name == "step-000000012"


def test_without_any_readable_checkpoint_it_starts_again(tmp_path, monkeypatch, stop_after, uninterrupted):
    path = cut(tmp_path, stop_after, monkeypatch)
    for found in checkpoint.newest_first(path / "checkpoints"):
        (found / "weights.safetensors").write_bytes(b"")
    assert outcome_bytes(run(tmp_path).path) == uninterrupted


def test_history_written_after_the_checkpoint_is_cut_back(tmp_path, monkeypatch, stop_after, uninterrupted):
    path = cut(tmp_path, stop_after, monkeypatch, steps=20)
    (path / "history.jsonl").write_text('{"epoch": 1}\n{"epoch": 2}\n{"epoch": 3}\n')
    assert outcome_bytes(run(tmp_path).path) == uninterrupted


def test_a_checkpoint_of_another_trial_is_not_used(tmp_path, monkeypatch, stop_after):
    path = cut(tmp_path / "a", stop_after, monkeypatch)
    other = small_config(seed=5)
    whole = outcome_bytes(run(tmp_path / "whole", other).path)
    target = Trial(tmp_path / "b", other)
    shutil.copytree(path / "checkpoints", target.checkpoints)
    assert outcome_bytes(run(tmp_path / "b", other).path) == whole


def test_a_state_that_does_not_fit_is_named(tmp_path, monkeypatch, stop_after):
    import torch

    path = cut(tmp_path, stop_after, monkeypatch)
    for found in checkpoint.newest_first(path / "checkpoints"):
        _, state = checkpoint.load(found)
        state["optimizers"] = {"model": {"state": {}, "param_groups": []}}
        torch.save(state, found / "state.pt")
    with pytest.raises(LabError, match=r"is no state of this trial .* Remove it"):
        run(tmp_path)


def test_only_two_checkpoints_are_kept(tmp_path, monkeypatch, stop_after):
    path = cut(tmp_path, stop_after, monkeypatch)
    assert [p.name for p in checkpoint.newest_first(path / "checkpoints")] == [
        "step-000000013",
        "step-000000012",
    ]


def test_a_second_ctrl_c_ends_at_once_and_a_second_sigterm_does_not():
    with Interrupts() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # the scheduler's, and then the launcher's
        assert stop.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_waits_for_the_end_of_what_must_be_whole():
    received, before = [], signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        with signals_after():
            os.kill(os.getpid(), signal.SIGTERM)
            assert not received
        assert received == [signal.SIGTERM]
        with signals_after():
            pass
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def killed(count, folder):
    done = subprocess.run(
        [sys.executable, SUPPORT / "killing.py", str(count), folder],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=SUPPORT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_sigkill_at_random_moments_changes_nothing(tmp_path):
    told = killed(6, tmp_path)
    assert told["equal"] == told["kills"] == 6


def test_what_a_kill_after_the_result_left_is_removed_by_the_next_run(tmp_path):
    path = run(tmp_path).path
    left = path / ".checkpoints.1.tmp"
    (left / "step-1").mkdir(parents=True)
    run(tmp_path)
    assert not left.exists()
    left.mkdir()
    with lock(path):  # another process is at work there
        run(tmp_path)
        assert left.exists()


@pytest.mark.slow
def test_fifty_sigkills_change_nothing(tmp_path, capsys):
    told = killed(50, tmp_path)
    with capsys.disabled():
        print(f"\n{told}")
    assert told["equal"] == told["kills"] == 50
    assert told["with a checkpoint"] > 20


def test_the_command_stops_on_sigterm_and_continues(tmp_path):
    command = [sys.executable, "-m", "riesz_lab", "train", "demo", "--train-limit", "600", "--test-limit", "100"]
    command += ["--batch-size", "10", "--epochs", "2", "--accelerator", "cpu", "--runs"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    saving = [*command, tmp_path / "cut", "--save-every", "0"]
    process = subprocess.Popen(saving, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "cut").glob("*/*/checkpoints/step-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Run the same command to continue" in err.decode()
    assert "Traceback" not in err.decode()
    for folder in ("cut", "whole"):
        subprocess.run([*command, tmp_path / folder], check=True, capture_output=True, env=env)
    ends = [outcome_bytes(next((tmp_path / folder).glob("*/*"))) for folder in ("cut", "whole")]
    assert ends[0] == ends[1]
