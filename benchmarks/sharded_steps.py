"""Claim: under FSDP2, directing adds little to a step of the optimizer beyond its collective and its memory passes.

    python -m benchmarks.sharded_steps steps      the time of a step on 2 and 4 ranks, attached and not, in turns
    python -m benchmarks.sharded_steps profile    what an attached step on 2 ranks spends its time on
    python -m benchmarks.sharded_steps planning   time to prepare and to step in the Python of one rank, on a fake group

Beside the steps, in the same turns, stands what no implementation can leave out: a bare collective of the same bytes,
one pass that reads the gradients (the sums), and one that reads and writes them (the result).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import riesz
from benchmarks.harness import Measurement, save
from benchmarks.networks import Shape, resnet50, resnet56
from benchmarks.sharding import METRICS, on_ranks, shard

STEPS, WARM_UP = 100, 5
TIMED = {"Identity": riesz.Identity(scale=0.5), **METRICS, "Centralization": riesz.Centralization()}
PASSES = ("all-gather alone", "all-reduce alone", "reading alone", "scaling alone")


def convs(shapes: list[Shape]) -> nn.Module:
    """Nothing but the parameters of a network: convolutions, each with batch normalisation, and a classifier."""
    layers: list[nn.Module] = []
    for outputs, inputs, height, width in shapes:
        layers += [nn.Conv2d(inputs, outputs, (height, width), bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, nn.Linear(shapes[-1][0], 1000))


class TimedSteps:
    """Optimizers on the same sharded parameters, one unattached and one per metric, and bare passes over the same."""

    def __init__(self, shapes: list[Shape], ranks: int):
        torch.manual_seed(0)
        network = convs(shapes)
        fully_shard(network, mesh=init_device_mesh("cpu", (ranks,)))
        self.parameters = list(network.parameters())
        self._gradients = [torch.randn_like(p.to_local()) for p in self.parameters]
        self._convs = [i for i, parameter in enumerate(self.parameters) if parameter.dim() == 4]
        columns = sum(inputs * height * width for _, inputs, height, width in shapes)
        self._sent, self._sums = torch.zeros(2 * columns).double(), torch.zeros(columns).double()
        self._received = torch.zeros(ranks * 2 * columns).double()
        self.runs: dict[str, Callable[[], object]] = {}
        for name in ("plain", *TIMED):
            optimizer = torch.optim.SGD(self.parameters, lr=1e-6, momentum=0.9)
            if name in TIMED:
                riesz.attach(optimizer, network, metric=TIMED[name])
            self.runs[name] = optimizer.step
        bare = (self._all_gather, self._all_reduce, self._read, self._scale)
        self.runs.update(zip(PASSES, bare, strict=True))

    def _all_gather(self) -> None:
        dist.all_gather_single(self._received, self._sent)

    def _all_reduce(self) -> None:
        dist.all_reduce(self._sums)

    def _read(self) -> None:
        for gradient in self._directed():
            gradient.sum()

    def _scale(self) -> None:
        torch._foreach_mul_(self._directed(), 0.5)

    def _directed(self) -> list[Any]:
        return [self.parameters[i].grad._local_tensor for i in self._convs]  # type: ignore[union-attr]

    def step(self, name: str) -> tuple[float, float]:
        """Seconds of one step on new gradients, as FSDP2 makes them: on the wall, and of this process.

        The second is what counts on a machine that others use: it has no waiting in it, for them or for other ranks.
        """
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = DTensor(gradient.clone(), parameter._spec, requires_grad=False)
        dist.barrier()
        started, used = time.perf_counter(), time.process_time()
        self.runs[name]()
        return time.perf_counter() - started, time.process_time() - used


def timed_steps(shapes: list[Shape], result: Path) -> Callable[[int, int], None]:
    """Writes, by rival and clock, the median, the 20th and the 80th percentile."""

    def work(rank: int, ranks: int) -> None:
        timed = TimedSteps(shapes, ranks)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in timed.runs}
        for index in range(WARM_UP + STEPS):
            for name in seconds:
                elapsed = timed.step(name)
                if index >= WARM_UP:
                    seconds[name].append(elapsed)
        if rank == 0:
            rows = []
            for clock, kind in enumerate(("wall", "processor")):
                for name, pairs in seconds.items():
                    values = sorted(pair[clock] for pair in pairs)
                    rows.append((f"{name}, {kind}", *(values[STEPS * share // 10] for share in (5, 2, 8))))
            result.write_text(json.dumps(rows))

    return work


def steps(networks: dict[str, list[Shape]]) -> None:
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        for ranks in (2, 4):
            for name, shapes in networks.items():
                on_ranks(timed_steps(shapes, result), ranks)
                shape = f"{name} on {ranks}"
                figures += [Measurement("sharded", shape, *row, STEPS, STEPS) for row in json.loads(result.read_text())]
    save("sharded", figures)
    for line in ratios(figures):
        print(line)


def ratios(figures: list[Measurement]) -> list[str]:
    """A Markdown table: what each metric adds to a step, over the plain step; on the wall and in processor time."""
    median = {(f.shape, f.rival): f.median for f in figures}
    shapes = list(dict.fromkeys(f.shape for f in figures))
    lines = [f"| (attached - plain) / plain | {' | '.join(shapes)} |", "| --- |" + " --- |" * len(shapes)]
    plain = [f"{1e3 * median[shape, 'plain, wall']:.1f} ms" for shape in shapes]
    lines.append(f"| plain step | {' | '.join(plain)} |")
    for name in (*TIMED, *PASSES):
        cells = []
        for shape in shapes:
            base = [median[shape, f"plain, {clock}"] for clock in ("wall", "processor")]
            own = [median[shape, f"{name}, {clock}"] for clock in ("wall", "processor")]
            added = own if name in PASSES else [a - b for a, b in zip(own, base, strict=True)]
            cells.append(" / ".join(f"{a / b:.2f}" for a, b in zip(added, base, strict=True)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def profiled(label: str, shapes: list[Shape]) -> Callable[[int, int], None]:
    """Where the time of an attached step goes, by the functions that pack, wait, solve and check."""

    def work(rank: int, ranks: int) -> None:
        from riesz.backends.shards import CpuShardKernels
        from riesz.sharded import collectives, step

        spent: Counter[str] = Counter()

        def measure(owner: Any, function: str, name: str) -> None:
            inner = getattr(owner, function)

            def timed_call(*arguments: Any, **named: Any) -> Any:
                started = time.process_time()
                try:
                    return inner(*arguments, **named)
                finally:
                    spent[name] += time.process_time() - started  # type: ignore[assignment]

            setattr(owner, function, timed_call)

        measure(CpuShardKernels, "pack", "pack")
        measure(CpuShardKernels, "correct_", "solve")
        for collective in (collectives.AllGather, collectives.AllReduce):
            measure(collective, "start", "collective, start")
            measure(collective, "finish", "collective, wait and compare")
        measure(step.PreparedStep, "holds_for", "check")
        measure(step.PreparedStep, "start", "start, with pack")
        measure(step.PreparedStep, "finish", "finish, with wait and solve")
        timed = TimedSteps(shapes, ranks)
        for name in TIMED:
            for _ in range(WARM_UP):
                timed.step(name)
            spent.clear()
            plain = sorted(timed.step("plain")[1] for _ in range(STEPS))[STEPS // 2]
            total = sum(timed.step(name)[1] for _ in range(STEPS))
            if rank == 0:
                cells = ", ".join(f"{part} {1e3 * value / STEPS:.2f}" for part, value in spent.items())
                times = f"plain {1e3 * plain:.1f} ms, attached {1e3 * total / STEPS:.1f}"
                print(f"{label} x {ranks}, {name}: {times}: {cells}", flush=True)

    return work


def planning() -> None:
    """One rank's Python on a fake group, whose collectives take no time: the first step, and the median of 20 more."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)  # as ranks that share a machine; threads that wait would count as time of the process
    for ranks in (64, 512, 1024):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        mesh = init_device_mesh("cpu", (ranks,))
        shapes = resnet50()
        for kind, metric in METRICS.items():
            parameters = [nn.Parameter(shard(shape, mesh, ranks)) for shape in shapes]
            optimizer = torch.optim.SGD(parameters, lr=0.0)
            riesz.attach(optimizer, metric=metric)
            plain = torch.optim.SGD(parameters, lr=0.0)
            seconds: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(21):
                for attached, stepped in ((False, plain), (True, optimizer)):
                    for parameter in parameters:
                        gradient = torch.zeros_like(parameter.to_local())
                        parameter.grad = DTensor(gradient, parameter._spec, requires_grad=False)
                    started = time.process_time()
                    stepped.step()
                    seconds[attached].append(time.process_time() - started)
            first, later = seconds[True][0], sorted(seconds[True][1:])[10]
            own = later - sorted(seconds[False][1:])[10]
            print(
                f"ResNet-50, fake group of {ranks}, {kind}: first step {1e3 * first:.1f} ms, "
                f"later {1e3 * later:.1f} ms, of which directing {1e3 * own:.1f} ms",
                flush=True,
            )
        dist.destroy_process_group()


def main() -> None:
    chosen = sys.argv[1:] or ["steps", "profile", "planning"]
    networks = {"ResNet-56": resnet56(), "ResNet-50": resnet50()}
    if "steps" in chosen:
        steps(networks)
    if "profile" in chosen:
        for name, shapes in networks.items():
            on_ranks(profiled(name, shapes), 2)
    if "planning" in chosen:
        planning()


if __name__ == "__main__":
    main()
