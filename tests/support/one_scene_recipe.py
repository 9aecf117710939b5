"""One paper-scale recipe on scenes, unmodified but for one step and its metric: train, score, store, and measure.

    python tests/support/one_scene_recipe.py RECIPE METRIC RUNS DATA

A process per recipe, so that its memory is its own. Prints a JSON line. The attachment's time is what it adds to the
optimizers' steps, on the gradients of the step. Both times are of the processor, so that a busy machine does not
matter; with several threads they add up.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from riesz_lab.recipes import recipe
from riesz_lab.store import Store
from riesz_lab.training import trainer
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.utils.malloc import keep_freed_memory

REPEATS = 5


def main(name, metric, runs, data):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    keep_freed_memory()
    config = replace(recipe(name), metric=metric, max_steps=1)
    step, told = Loop.step, {}

    def measured(self, parts):
        started = time.process_time()
        step(self, parts)
        told["step_ms"] = 1000 * (time.process_time() - started)
        told["attached_ms"] = sum(map(hook_ms, self.session.task.attachments.items(), [self.session.task] * 2))
        told["directed"] = {
            model: [sum(record.applied for record in found), len(found)]
            for model, found in (
                (model, attachment.report()) for model, attachment in self.session.task.attachments.items()
            )
        }

    Loop.step = measured
    outcome = trainer.train(config, runs=runs, data_dir=data, hardware=Hardware(accelerator="cpu", workers=1))
    (stored,) = Store(runs).trials
    timing = stored.timing()[-1]
    told |= {
        "recipe": name,
        "metric": metric,
        "status": stored.status,
        "steps": outcome.result.step,
        "parameters": outcome.result.parameters,
        "peak_memory_mb": timing["peak_memory_mb"],
        "eval_seconds": timing["eval_seconds"],
        "score": outcome.result.score,
        "last": stored.score("last"),
        "pictures": sorted(path.name for path in (outcome.path / "pictures").iterdir()),
    }
    print(json.dumps(told))


def hook_ms(attached, task):
    """Milliseconds that an attachment adds to a step of its optimizer: the median of differences, turn by turn. The
    rate is zero, so that the weights stay."""
    name, attachment = attached
    optimizer = task.optimizers[name]
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    differences = []
    for _ in range(REPEATS):
        spent = {}
        for enabled in (True, False):
            attachment.enabled = enabled
            started = time.process_time()
            optimizer.step()
            spent[enabled] = time.process_time() - started
        differences.append(1000 * (spent[True] - spent[False]))
    attachment.enabled = True
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return sorted(differences)[REPEATS // 2]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
