"""A trial's directory that several processes write to: nothing is lost, nothing fails."""

import threading
from contextlib import contextmanager

from filelock import FileLock

from lab_helpers import small_config
from riesz_lab.store.trial import Trial


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


def test_opening_a_trial_leaves_what_another_process_is_writing(tmp_path):
    trial = Trial(tmp_path, small_config())
    trial.fail("no luck")
    written, left_over = (trial.path / f".failure.json.{process}.tmp" for process in (1, 2))
    left_over.touch()
    other = FileLock(trial.notes_lock_file)
    other.acquire()
    written.touch()

    def open_it():
        with trial.open():
            pass

    with meanwhile(open_it):
        written.rename(trial.failure_file)
        other.release()
    assert not list(trial.path.glob(".*.tmp"))
