"""Claim: the Python time of a step on a GPU, its launch left out, is at most 100 us for ResNet-56.

`python -m benchmarks.host` times the hook on ResNet-56's gradients with the kernels taken out, against the CPU backend
in the same run, and writes `benchmarks/results/host.csv`. Times are those of this thread on a processor, so neighbours
on the machine count only through the caches; the least and the median of a thousand steps are kept.

The gradients are tensors of the CPU, which the backend takes when Triton is to interpret; nothing is interpreted.
What a GPU would add: asking for the current stream, and Triton's own launcher.
"""

from __future__ import annotations

import csv
import os
import statistics
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from benchmarks.networks import NETWORKS, gradients

RESULT = Path(__file__).parent / "results" / "host.csv"
LIMIT = 100.0
"""Microseconds allowed."""


@dataclass(frozen=True)
class Host:
    """Microseconds of one hook call."""

    name: str
    least: float
    median: float
    steps: int


def measure(steps: int = 1000) -> list[Host]:
    os.environ["TRITON_INTERPRET"], os.environ["RIESZ_VERIFY"] = "1", "0"
    import riesz
    from riesz.backends.triton import launch

    launch.launch_many = lambda *arguments: None
    # Scale and blend that sum to 1: the cpu backend then compares, gathers addresses and calls, and writes nothing.
    metric = riesz.Identity(scale=0.5, blend=0.5)
    timed: dict[str, list[float]] = {"cpu": [], "triton, addresses as before": [], "triton, addresses moved": []}
    hooks = {}
    for name in timed:
        weights = [torch.nn.Parameter(g) for g in gradients(NETWORKS["ResNet-56"])]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        riesz.attach(optimizer, metric=metric, backend=name.split(",")[0])
        (hook,) = optimizer._optimizer_step_pre_hooks.values()
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        hooks[name] = (optimizer, hook, weights)
        for _ in range(5):
            hook(optimizer, (optimizer,), {})
    for _ in range(steps):
        for name, (optimizer, hook, weights) in hooks.items():
            if name.endswith("moved"):
                # Two gradients change places with others of their kind, as an allocator's cache hands them out.
                weights[2].grad, weights[3].grad = weights[3].grad, weights[2].grad
            start = time.thread_time()
            hook(optimizer, (optimizer,), {})
            timed[name].append(1e6 * (time.thread_time() - start))
    return [Host(name, min(us), statistics.median(us), steps) for name, us in timed.items()]


def load(path: Path = RESULT) -> list[Host]:
    with path.open(newline="") as file:
        return [
            Host(row["name"], float(row["least"]), float(row["median"]), int(row["steps"]))
            for row in csv.DictReader(file)
        ]


def main() -> None:
    rows = measure()
    with RESULT.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Host)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(row), "least": f"{row.least:.1f}", "median": f"{row.median:.1f}"} for row in rows)
    for row in rows:
        print(f"{row.name:<32} least {row.least:6.1f} us, median {row.median:6.1f} us, of {row.steps} steps")


if __name__ == "__main__":
    main()
