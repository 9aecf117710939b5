"""Train, kill at a random moment, look at what is left, continue, compare: N times.

    python tests/support/killing.py N FOLDER

A process that has everything imported forks the ones that are killed, so that a kill falls into the trial and not into
the imports. Prints a JSON line: how many kills, how many fell before, into and after a save, how many ends were equal.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

from lab_helpers import assert_readable, outcome_bytes, small_config, small_data  # noqa: E402
from riesz_lab.training import checkpoint  # noqa: E402
from riesz_lab.training.hardware import Hardware  # noqa: E402
from riesz_lab.training.trainer import train  # noqa: E402

CONFIG = small_config(model="cnn", epochs=2)
DATA = small_data()


def trained(folder, save_every=0.0):
    return train(CONFIG, runs=folder, data=DATA, hardware=Hardware(accelerator="cpu"), save_every=save_every)


def in_a_fork(folder):
    child = os.fork()
    if child == 0:
        try:
            trained(folder)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return child


def main(count, root):
    reference = trained(root / "reference")
    wanted = outcome_bytes(reference.path)
    # How long a fork takes: the first one, above, also paid for imports.
    started = time.monotonic()
    os.waitpid(in_a_fork(root / "timed"), 0)
    duration = time.monotonic() - started
    chance = random.Random(0)
    kills = equal = resumed = finished_before = 0
    while kills < count:
        folder = root / f"kill-{kills}"
        child = in_a_fork(folder)
        time.sleep(chance.uniform(0, duration))
        if os.waitpid(child, os.WNOHANG)[0]:
            # It was through already: nothing was killed, and a trial takes less time than was thought.
            duration *= 0.9
            shutil.rmtree(folder)
            continue
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        for path in folder.glob("*/*"):
            assert_readable(path)
            resumed += bool(checkpoint.newest_first(path / "checkpoints"))
            finished_before += (path / "result.json").exists()
        again = in_a_fork(folder)
        assert os.waitpid(again, 0)[1] == 0, f"kill {kills}: the trial could not be continued"
        (path,) = folder.glob("*/*")
        assert not list(path.rglob("*.tmp"))
        equal += outcome_bytes(path) == wanted
        shutil.rmtree(folder)
    told = {"kills": kills, "with a checkpoint": resumed, "complete before": finished_before, "equal": equal}
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
