"""Images a second of the lab against a plain PyTorch script of the usual kind, in one run.

    python -m benchmarks.throughput [--data-dir DIR] [--rounds 7] [--steps 10] [--case resnet20]

The plain script: a Dataset that augments and normalises image by image, a DataLoader (without workers and with two; the
faster one counts), float32, contiguous tensors, `loss.item()` at each step. The lab: the steps of its trainer as
`riesz train` runs them. Each variant has a process of its own, and they take turns, so that a busy machine disturbs all
alike; a ratio is the median over rounds of (lab / plain) within one round. The first steps of every turn are not timed.
Images per CPU second are measured too: with OMP_NUM_THREADS=1 they hardly depend on what else the machine does. (They
leave out the CPU time of a loader's workers.) Results go to benchmarks/results/throughput-MODEL.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import RESULTS
from riesz_lab import models, recipes
from riesz_lab.config import Config
from riesz_lab.data.images import catalog
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.data.images.types import Data, Images
from riesz_lab.errors import MissingDataError
from riesz_lab.store import environment
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import Classification, Context
from riesz_lab.training import progress
from riesz_lab.training.epoch_log import EpochLog
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.loop import Loop
from riesz_lab.training.session import Session
from riesz_lab.training.signals import Interrupts
from riesz_lab.utils.malloc import keep_freed_memory

WARM = 2
CASES = {
    "cnn on fashion-mnist, batch 100": replace(
        recipes.recipe("fashion-cnn"), swap_splits=False, train_limit=20000, test_limit=100
    ),
    "resnet20 on cifar10, batch 128": replace(
        recipes.recipe("cifar10-resnet20-b128"), train_limit=20000, test_limit=100
    ),
}
Turn = Callable[[int], tuple[float, float]]
"""Run so many steps; return the seconds they took, on the clock and of this process's CPU time."""


class PerImage(Dataset):
    """Augments and normalises one image at a time, as transforms do."""

    def __init__(self, split: Images, known: Data, augment: bool):
        self.images, self.labels = split.images_NHWC.numpy(), split.labels_N.tolist()
        self.mean = torch.tensor(known.mean).view(-1, 1, 1)
        self.std = torch.tensor(known.std).view(-1, 1, 1)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index]
        if self.augment:
            height, width, _ = image.shape
            image = np.pad(image, ((4, 4), (4, 4), (0, 0)))
            top, left = random.randint(0, 8), random.randint(0, 8)
            image = image[top : top + height, left : left + width]
            if random.random() < 0.5:
                image = image[:, ::-1]
        tensor = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float().div(255)
        return tensor.sub_(self.mean).div_(self.std), self.labels[index]


def plain(config: Config, known: Data, workers: int) -> Turn:
    model = models.build(config.model, channels=known.channels, classes=known.classes, seed=0)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    dataset = PerImage(known.train, known, config.augment == "crop-flip")
    loader = DataLoader(dataset, batch_size=config.batch_size, shuffle=True, num_workers=workers)

    def turn(steps: int) -> tuple[float, float]:
        model.train()
        running, right, started = 0.0, 0, _now()
        batches = iter(loader)
        for number in range(WARM + steps):
            if number == WARM:
                started = _now()
            images, labels = next(batches)
            optimizer.zero_grad()
            logits = model(images)
            loss = functional.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
            right += (logits.argmax(1) == labels).sum().item()
        took = _since(started)
        del batches  # ends the workers: they must not work through the others' turns
        return took

    return turn


def lab(config: Config, known: Data, runs: Path) -> Turn:
    hardware = Hardware(accelerator="cpu")
    hardware.check(config)
    fabric = hardware.fabric(config)
    context = Context(fabric.device)
    task = Classification(config, Path(), known, context)
    session = Session(config, task, context, fabric, Trial(runs, config), progress.Progress())
    loop = Loop(session, EpochLog(session), 1e9, Interrupts())

    def forever() -> Iterator[list]:
        for epoch in count():
            yield from task.batches(epoch, 0)

    batches = forever()

    def turn(steps: int) -> tuple[float, float]:
        for model in task.models.values():
            model.train()
        started = _now()
        for number in range(WARM + steps):
            if number == WARM:
                started = _now()
            loop.step(next(batches))
        return _since(started)

    return turn


VARIANTS: dict[str, dict[str, object] | int] = {
    "plain": 0,
    "plain, 2 workers": 2,
    "lab": {},
    "lab, contiguous": {"channels_last": False},
    "lab + sobolev-tilde": {"metric": "sobolev-tilde"},
    "lab, bf16": {"precision": "bf16-mixed"},
    "lab, compiled": {"compile": True},
}


USUAL = ["plain", "plain, 2 workers", "lab"]


def serve(case: str, variant: str, folder: Path | None) -> None:
    """Run one variant: read a number of steps, run them, print the seconds."""
    config, settings = CASES[case], VARIANTS[variant]
    known = catalog.load(config.dataset, data_folder(folder)).limited(20000, 100)
    with tempfile.TemporaryDirectory() as runs:
        if isinstance(settings, int):
            turn = plain(config, known, settings)
        else:
            keep_freed_memory()
            turn = lab(replace(config, **settings), known, Path(runs))
        for line in sys.stdin:
            print(*turn(int(line)), flush=True)


def variant_process(case: str, variant: str, folder: Path | None) -> tuple[Turn, subprocess.Popen]:
    command = [sys.executable, "-m", "benchmarks.throughput", "--serve", case, variant]
    if folder is not None:
        command += ["--data-dir", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(steps: int) -> tuple[float, float]:
        process.stdin.write(f"{steps}\n")
        process.stdin.flush()
        wall, cpu = process.stdout.readline().split()
        return float(wall), float(cpu)

    return turn, process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--case", default="", help="only the cases whose name holds this")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=USUAL, metavar="VARIANT")
    parser.add_argument("--serve", nargs=2, metavar=("CASE", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve, options.data_dir)
        return
    for case, config in CASES.items():
        if options.case not in case:
            continue
        try:
            catalog.check(config.dataset, data_folder(options.data_dir))
        except MissingDataError as error:
            print(f"{case}: not measured. {error}")
            continue
        processes = {v: variant_process(case, v, options.data_dir) for v in options.variants}
        results = measure(case, config.batch_size, {v: turn for v, (turn, _) in processes.items()}, options)
        for _, process in processes.values():
            process.stdin.close()
            process.wait()
        save(config.model, results, options)


def save(model: str, results: list[dict], options: argparse.Namespace) -> None:
    report = {
        "cpu": environment.cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "rounds": options.rounds,
        "steps_per_round": options.steps,
        "results": results,
    }
    (RESULTS / f"throughput-{model}.json").write_text(json.dumps(report, indent=1) + "\n")


def measure(name: str, batch: int, turns: dict[str, Turn], options: argparse.Namespace) -> list[dict]:
    for turn in turns.values():
        turn(1)
    speeds: dict[str, list[tuple[float, float]]] = {variant: [] for variant in turns}
    for number in range(options.rounds):
        # The order alternates, so that no variant always follows the same one.
        order = list(turns) if number % 2 == 0 else list(reversed(turns))
        for variant in order:
            speeds[variant].append(tuple(options.steps * batch / seconds for seconds in turns[variant](options.steps)))
    rows = []
    print(name)
    for kind, what in enumerate(("images/s", "images per CPU second")):
        columns = {variant: [pair[kind] for pair in pairs] for variant, pairs in speeds.items()}
        # By CPU time only a loader without workers is comparable.
        bases = [variant for variant in columns if variant == "plain" or (kind == 0 and variant.startswith("plain"))]
        usual = max(bases, key=lambda variant: statistics.median(columns[variant]))
        for variant, values in columns.items():
            if kind == 1 and variant.startswith("plain,"):
                continue
            ratios = sorted(value / base for value, base in zip(values, columns[usual], strict=True))
            row = {
                "case": name,
                "variant": variant,
                "what": what,
                "median": round(statistics.median(values), 1),
                "lowest": round(min(values), 1),
                "highest": round(max(values), 1),
                "ratio_to": usual,
                "ratio": round(statistics.median(ratios), 3),
                "ratio_lowest": round(ratios[0], 3),
                "ratio_highest": round(ratios[-1], 3),
            }
            rows.append(row)
            print(
                f"  {variant:<20} {row['median']:>7} {what} ({row['lowest']}..{row['highest']})  "
                f"{row['ratio']:.2f}x of {usual!r} ({row['ratio_lowest']:.2f}..{row['ratio_highest']:.2f})",
                flush=True,
            )
    return rows


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(started: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - started[0], time.process_time() - started[1]


if __name__ == "__main__":
    main()
