"""One trial in a process of its own: `python -m riesz_lab.sweeps.worker`, with the job as a line of JSON on stdin.

The process ends when its stdin does: a driver that is killed takes its workers with it, and they save first. The exit
status says how it ended; what came of the trial is in its directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

How = Literal["done", "busy", "stopped", "failed", "killed"]
"""done: complete; busy: another process is at it; stopped: asked to, and saved; failed: with a reason, killed: without.
"""

EXITS: dict[int, How] = {0: "done", 75: "busy", 143: "stopped", 1: "failed"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A trial to be trained, as plain values that travel between processes and machines.

    Attributes:
        id: of the trial.
        config: its settings.
        runs, data_dir: folders, as the worker's machine sees them.
        accelerator: cpu, cuda, mps or auto.
        threads: the worker's share of the cores.
        save_every: seconds between two checkpoints.
    """

    id: str
    config: dict[str, Any]
    runs: str
    data_dir: str
    accelerator: str = "auto"
    threads: int = 1
    save_every: float = 60.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def work(job: Job) -> How:
    """Train the job's trial to its end, or continue it; record in its directory what happened."""
    import torch

    from riesz_lab.config import Config
    from riesz_lab.errors import BusyError, LabError, StoppedError
    from riesz_lab.hardware import Hardware
    from riesz_lab.memory import keep_freed_memory
    from riesz_lab.trainer import train
    from riesz_lab.trial import Trial

    torch.set_num_threads(job.threads)
    keep_freed_memory()
    trial = Trial(job.runs, Config.from_dict(job.config))
    try:
        outcome = train(
            trial.config,
            runs=job.runs,
            data_dir=job.data_dir,
            hardware=Hardware(accelerator=job.accelerator),  # type: ignore[arg-type]
            save_every=job.save_every,
        )
    except BusyError:
        return "busy"
    except StoppedError:
        trial.add_event("stopped")
        return "stopped"
    except Exception as error:
        reason = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
        print(reason, file=sys.stderr)
        # A full disk may be what failed; the reason is on stderr in any case.
        with contextlib.suppress(LabError, OSError):
            trial.fail(reason, traceback.format_exc())
            trial.add_event("failed")
        return "failed"
    if outcome.trained:
        trial.add_event("completed")
    trial.failure_file.unlink(missing_ok=True)
    return "done"


def main() -> int:
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    how = work(job)
    return next(status for status, name in EXITS.items() if name == how)


def _end_with_stdin() -> None:
    # Below Python's buffers: a blocking read of sys.stdin would hold its lock when the process ends.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


assert set(EXITS.values()) | {"killed"} == set(get_args(How))

if __name__ == "__main__":
    sys.exit(main())
