"""A trial's directory that several processes write to: nothing is lost, nothing fails."""

import threading
from contextlib import contextmanager

from filelock import FileLock

from lab_helpers import small_config
from riesz_lab.store.files import read_sweeps
from riesz_lab.store.trial import Trial
from riesz_lab.utils import atomic


@contextmanager
def meanwhile(action):
    """Run `action` in a thread that is still waiting when the block begins, and done when it has ended."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    yield
    thread.join(10)
    assert not thread.is_alive()


def test_sweeps_that_share_a_trial_are_both_recorded(tmp_path):
    trial = Trial(tmp_path, small_config())
    trial.add_sweep("first", 2)
    other = FileLock(trial.notes_lock_file)
    other.acquire()
    with meanwhile(lambda: trial.add_sweep("second", 3)):
        atomic.write_json(trial.sweeps_file, {"first": 2, "of another process": 1})
        other.release()
    assert read_sweeps(trial.sweeps_file) == {"first": 2, "of another process": 1, "second": 3}


def test_a_sweep_keeps_its_largest_number_of_comparisons(tmp_path):
    trial = Trial(tmp_path, small_config())
    for family in (2, 5, 3):
        trial.add_sweep("one", family)
    assert read_sweeps(trial.sweeps_file) == {"one": 5}


def test_opening_a_trial_leaves_what_another_process_is_writing(tmp_path):
    trial = Trial(tmp_path, small_config())
    trial.add_sweep("first", 2)
    written, left_over = (trial.path / f".sweeps.json.{process}.tmp" for process in (1, 2))
    left_over.touch()
    other = FileLock(trial.notes_lock_file)
    other.acquire()
    written.touch()

    def open_it():
        with trial.open():
            pass

    with meanwhile(open_it):
        written.rename(trial.sweeps_file)
        other.release()
    assert not list(trial.path.glob(".*.tmp"))
