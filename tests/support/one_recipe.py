"""One paper-scale recipe, unmodified but for three steps: train, be stopped after the first, continue, store a result.

    python tests/support/one_recipe.py RECIPE RUNS DATA

A process per recipe, so that its memory is its own. Prints a JSON line.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from riesz_lab.errors import StoppedError
from riesz_lab.recipes import recipe
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from riesz_lab.training import checkpoint, trainer
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.utils.malloc import keep_freed_memory


def main(name, runs, data):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    keep_freed_memory()
    config = replace(recipe(name), max_steps=3)
    step = Loop.step

    def step_then_signal(self, parts):
        step(self, parts)
        signal.raise_signal(signal.SIGTERM)

    Loop.step = step_then_signal
    options = {"runs": runs, "data_dir": data, "hardware": Hardware(accelerator="cpu"), "save_every": 0.0}
    stopped = False
    try:
        trainer.train(config, **options)
    except StoppedError:
        stopped = True
    Loop.step = step
    saved = [path.name for path in checkpoint.newest_first(Trial(runs, config).checkpoints)]
    outcome = trainer.train(config, **options)
    (stored,) = (trial for trial in Store(runs).trials if trial.config == config)
    timing = stored.timing()[-1]
    print(
        json.dumps(
            {
                "recipe": name,
                "stopped": stopped,
                "saved": saved,
                "status": stored.status,
                "steps": outcome.result.step,
                "parameters": outcome.result.parameters,
                "step_ms": timing["step_ms"],
                "eval_seconds": timing["eval_seconds"],
                "peak_memory_mb": timing["peak_memory_mb"],
                "test_accuracy": outcome.result.last["test_accuracy"],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
