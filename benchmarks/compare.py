"""Two checkouts side by side: how many copies of the same gradients each metric takes, before and after a change.

    python -m benchmarks.compare --against ../other [--networks ResNet-18,U-Net] [--rounds 15] [--only bfloat16]

Each checkout has a process of its own, its library built in place (`make native`). In each round every rival of both
has a turn, in a new random order: it runs once untimed, then as often as fill a few milliseconds. A ratio is of a
rival's time to that of a `copy_` of every gradient in the same process and round; printed are medians over the rounds,
with the 20th and 80th percentile. Results go to benchmarks/results/compare.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import riesz
from benchmarks.harness import RESULTS, THREADS, TURN, machine, undisturbed
from benchmarks.networks import COMPARED, gradients

ROOT = Path(__file__).parent.parent
COPY = "copy_ per tensor"
METRICS = {
    "SobolevTilde": riesz.SobolevTilde(1.0, blend=1e-6),
    "ReweightedL2": riesz.ReweightedL2(1e-6),
    "Sobolev": riesz.Sobolev(0.1),
    "LaplacianSmoothing": riesz.LaplacianSmoothing(1.0),
    "Centralization": riesz.Centralization(),
}
"""With numbers under which gradients stay of their size, however often they are directed."""

GROUPS = ("float32", "bfloat16", "float16", "float64", "input", "input channels_last", "eager", "hook")
FEW = ("ResNet-20", "ResNet-56")
"""Where plain torch and the hook are timed: they matter for small networks."""

Rivals = dict[str, Callable[[], object]]


def rivals(network: str, group: str) -> Rivals:
    """What is timed of one network."""
    dtype = getattr(torch, group, torch.float32)
    grads = [f.to(dtype) for f in gradients(COMPARED[network])]
    copies = [torch.empty_like(f) for f in grads]
    found: Rivals = {COPY: lambda: [a.copy_(b) for a, b in zip(copies, grads, strict=True)]}
    if group == "eager":
        return found | _eager(grads)
    if group == "hook":
        return found | _hook(grads)
    if group == "input channels_last":
        grads = [f.to(memory_format=torch.channels_last) for f in grads]
    dim = int(group.startswith("input"))
    for name, metric in METRICS.items():
        found[name] = lambda m=metric: riesz.precondition_(grads, m, dim=dim, backend="cpu")
    if dim:
        eager = METRICS["ReweightedL2"]
        found["ReweightedL2, eager"] = lambda: riesz.precondition_(grads, eager, dim=dim, backend="eager")
    return found


def _eager(grads: list[Tensor]) -> Rivals:
    tilde, reweighted = riesz.SobolevTilde(scale=0.5, blend=0.5), METRICS["ReweightedL2"]
    products = {f.shape[0]: riesz.precondition_(torch.eye(f.shape[0]), tilde, backend="cpu") for f in grads}

    def multiply() -> None:
        for f in grads:
            f.copy_((products[f.shape[0]] @ f.view(f.shape[0], -1)).view(f.shape))

    def one_line() -> None:
        for f in grads:
            f.add_(f.mean(0, keepdim=True), alpha=1e-6)

    return {
        "the paper's one line": one_line,
        "ReweightedL2": lambda: riesz.precondition_(grads, reweighted, backend="eager"),
        "a kept matrix product": multiply,
        "SobolevTilde": lambda: riesz.precondition_(grads, tilde, backend="eager"),
    }


def _hook(grads: list[Tensor]) -> Rivals:
    """What is around the kernels: weights of two columns each, so that these have nothing to do."""
    found: Rivals = {}
    for name, metric, compiled in (
        ("Identity", riesz.Identity(), False),
        ("SobolevTilde", METRICS["SobolevTilde"], False),
        ("compiled step", METRICS["SobolevTilde"], True),
        ("compiled step without riesz", None, True),
    ):
        weights = nn.ParameterList([nn.Parameter(torch.zeros(f.shape[0], 2)) for f in grads])
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer = torch.optim.SGD(weights, lr=0.1)
        if metric is not None:
            riesz.attach(optimizer, weights, metric=metric, layers="all")
        optimizer.step()
        if compiled:
            found[name] = torch.compile(optimizer.step)
        else:
            (hook,) = optimizer._optimizer_step_pre_hooks.values()
            found[name] = lambda h=hook, o=optimizer: h(o, (o,), {})
    return found


def work() -> None:
    """Time what is asked for, line by line."""
    torch.set_num_threads(THREADS)
    kept: Rivals = {}
    times: dict[str, int] = {}
    print(json.dumps(machine()), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "rival" not in asked:
            kept = {}  # frees the last ones first
            kept, times = rivals(asked["network"], asked["group"]), {}
            print(json.dumps([*kept]), flush=True)
            continue
        run = kept[asked["rival"]]
        with undisturbed():
            start = time.perf_counter()
            run()
            once = time.perf_counter() - start
            count = times.setdefault(asked["rival"], max(1, min(200, round(TURN / once))))
            start = time.perf_counter()
            for _ in range(count):
                run()
            seconds = (time.perf_counter() - start) / count
        print(json.dumps(seconds), flush=True)


class Worker:
    """The process of one checkout."""

    def __init__(self, checkout: Path):
        path = f"{checkout.resolve() / 'src'}{os.pathsep}{ROOT}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.compare", "--work"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.machine: dict[str, str] = self._read()

    def ask(self, **what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def compare(workers: dict[str, Worker], network: str, group: str, rounds: int) -> list[dict[str, object]]:
    names: dict[str, list[str]] = {side: w.ask(network=network, group=group) for side, w in workers.items()}
    turns = [(side, name) for side, found in names.items() for name in found]
    seconds: dict[tuple[str, str], list[float]] = {turn: [] for turn in turns}
    for _ in range(rounds):
        for side, name in random.sample(turns, len(turns)):
            seconds[side, name].append(workers[side].ask(rival=name))
    rows: list[dict[str, object]] = []
    for side, name in turns:
        taken = seconds[side, name]
        ratios = sorted(a / b for a, b in zip(taken, seconds[side, COPY], strict=True))
        fifth = len(ratios) // 5
        rows.append(
            {
                "network": network,
                "group": group,
                "rival": name,
                "checkout": side,
                "ms": f"{statistics.median(taken) * 1e3:.4f}",
                "copies": f"{statistics.median(ratios):.2f}",
                "p20": f"{ratios[fifth]:.2f}",
                "p80": f"{ratios[-1 - fifth]:.2f}",
                "rounds": rounds,
            }
        )
    return rows


def show(rows: list[dict[str, object]]) -> None:
    by = {(row["rival"], row["checkout"]): row for row in rows}
    for rival in dict.fromkeys(row["rival"] for row in rows):
        cells = [
            f"{row['copies']} ({row['p20']}..{row['p80']}, {row['ms']} ms)"
            for key, row in by.items()
            if key[0] == rival
        ]
        print(f"{rows[0]['network']:<11} {rows[0]['group']:<20} {rival:<28} {' -> '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the checkout to compare with, the one before the change")
    parser.add_argument("--networks", default=",".join(COMPARED))
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma: " + ", ".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work()
    workers = {"before": Worker(options.against)} if options.against else {}
    workers["after"] = Worker(ROOT)
    rows: list[dict[str, object]] = []
    for network in options.networks.split(","):
        for group in options.only.split(","):
            if group not in ("eager", "hook") or network in FEW:
                found = compare(workers, network, group, options.rounds)
                show(found)
                rows += found
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "compare.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *workers["after"].machine], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **workers["after"].machine} for row in rows)


if __name__ == "__main__":
    main()
