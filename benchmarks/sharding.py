"""Claims: under FSDP2 the directed step is one collective per mesh and kind, of few bytes, and costs no memory.

    python -m benchmarks.sharding traffic    ResNet-56 under FSDP2 on 2 and 4 ranks: collectives and bytes, by kind
    python -m benchmarks.sharding memory     the same on 2 ranks: optimizer state and peak memory, attached and not
    python -m benchmarks.sharding model      bytes by the cost model on 8 to 1,024 ranks, against torch's fake group
    python -m benchmarks.sharding steps      the time of a step on 2 and 4 ranks, attached and not, in turns
    python -m benchmarks.sharding profile    what an attached step on 2 ranks spends its time on
    python -m benchmarks.sharding planning   time to prepare and to step in the Python of one rank, on a fake group

What is counted is what arrives at a rank; for an all-reduce, what arrives in a ring of ranks.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode

import riesz
from benchmarks.networks import Shape, resnet50, resnet56, wide_resnet152

METRICS = {
    "ReweightedL2": riesz.ReweightedL2(),
    "SobolevTilde": riesz.SobolevTilde(),
    "Sobolev": riesz.Sobolev(),
    "LaplacianSmoothing": riesz.LaplacianSmoothing(),
}


class Traffic(TorchDispatchMode):
    """Counts collectives and what arrives by them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0].removeprefix("c10d::").strip("_")
        if func.namespace == "c10d" and name in ("allgather_base", "alltoall_base", "allreduce", "reduce_scatter_base"):
            tensor = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
            self.calls[name] += 1
            self.arrived[name] += _arriving(name, tensor, args)
        return func(*args, **(kwargs or {}))


def _arriving(name: str, output: Tensor, args: Any) -> int:
    size, ranks = output.numel() * output.itemsize, dist.get_world_size()
    if name == "allreduce":
        return 2 * size * (ranks - 1) // ranks
    if name == "reduce_scatter_base":
        return size * (ranks - 1)
    if name == "alltoall_base":
        splits = args[3] or [len(output) // ranks] * ranks
        return size - splits[dist.get_rank()]
    return size * (ranks - 1) // ranks


# -- the model -------------------------------------------------------------------------------------------------------


def modelled(shapes: list[Shape], metric: riesz.Metric, ranks: int) -> tuple[str, int]:
    """The strategy and the bytes of one step by the cost model, for float32 gradients under Shard(0)."""
    from riesz.sharded.layout import partition, rows
    from riesz.sharded.low_rank import low_rank
    from riesz.sharded.strategies import gather_bytes, transpose_bytes

    columns_of: Counter[int] = Counter()
    for shape in shapes:
        columns_of[shape[0]] += shape[1] * shape[2] * shape[3]
    coordinates = tuple((rank,) for rank in range(ranks))
    partitioned = {n: rows(n, 1, partition(n, ((1, ranks),), coordinates)) for n in columns_of}
    if isinstance(metric, riesz.ReweightedL2):
        return "all-reduce", sum(8 * columns for columns in columns_of.values()) * 2 * (ranks - 1) // ranks
    gathered = transposed = 0
    for n, columns in columns_of.items():
        factors = low_rank(metric, n)
        assert factors is not None
        gathered += gather_bytes(factors, partitioned[n], columns, torch.float32)
        transposed += transpose_bytes(partitioned[n], columns, torch.float32)
    return ("all-gather", gathered) if gathered <= transposed else ("all-to-all", transposed)


def model() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    row = "{:<17} {:<13} {:>5}  {:<10} {:>12} {:>12} {:>5} {:>9}"
    print(row.format("network", "metric", "ranks", "strategy", "model", "fake group", "calls", "of FSDP2"))
    for name, shapes in (("ResNet-50", resnet50()), ("wide ResNet-152", wide_resnet152())):
        weights = sum(a * b * c * d for a, b, c, d in shapes)
        for ranks in (8, 32, 128, 256, 1024):
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
            mesh = init_device_mesh("cpu", (ranks,))
            grads = [_shard(shape, mesh, ranks) for shape in shapes]
            for kind in ("ReweightedL2", "SobolevTilde"):
                strategy, expected = modelled(shapes, METRICS[kind], ranks)
                with Traffic() as traffic:
                    riesz.precondition_(grads, METRICS[kind])
                arrived, calls = sum(traffic.arrived.values()), sum(traffic.calls.values())
                # FSDP2 gathers the weights twice and scatters the gradients once.
                share = arrived / (3 * 4 * weights * (ranks - 1) / ranks)
                cells = (name, kind, ranks, strategy, f"{expected:,}", f"{arrived:,}", calls, f"{share:.2%}")
                print(row.format(*cells), flush=True)
            dist.destroy_process_group()


def _shard(shape: Shape, mesh: Any, ranks: int) -> DTensor:
    height = min(-(-shape[0] // ranks), shape[0])
    local = torch.zeros(height, *shape[1:])
    whole = torch.empty(shape, device="meta")
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride())


# -- measured on real ranks ------------------------------------------------------------------------------------------


def resnet(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    from riesz_lab import models

    network = models.build("resnet56", channels=3, classes=10, seed=0)
    fully_shard(network, mesh=mesh)
    return network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def wide_convs(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Nearly nothing but weights: 16 million of them."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 768, 1, bias=False), *(nn.Conv2d(768, 768, 3, padding=1, bias=False) for _ in range(3))]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 10))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def backward(network: nn.Module, images: int = 4, side: int = 16) -> None:
    nn.functional.cross_entropy(network(torch.randn(images, 3, side, side)), torch.arange(images)).backward()


def traffic(rank: int, ranks: int) -> None:
    mesh = init_device_mesh("cpu", (ranks,))
    for name, metric in METRICS.items():
        network, optimizer = resnet(mesh)
        attachment = riesz.attach(optimizer, network, metric=metric)
        with Traffic() as own:
            backward(network)
        with Traffic() as ours:
            optimizer.step()
        if rank == 0:
            directed = sum(record.applied for record in attachment.report())
            strategy, expected = modelled(resnet56(), metric, ranks)
            print(
                f"ResNet-56, FSDP2 x {ranks}, {name}: {directed} weights directed by {dict(ours.calls)}, "
                f"{sum(ours.arrived.values()):,} bytes arrive (model: {strategy}, {expected:,}); "
                f"forward and backward: {sum(own.arrived.values()):,}",
                flush=True,
            )


def memory(make: Callable[[Any], Any], name: str, result: Path) -> Callable[[int, int], None]:
    """Optimizer state and peak of a process that trains with this metric; every metric has processes of its own."""

    def work(rank: int, ranks: int) -> None:
        before = _resident()
        network, optimizer = make(init_device_mesh("cpu", (ranks,)))
        if name in METRICS:
            riesz.attach(optimizer, network, metric=METRICS[name])
        peak = _peak(lambda: _steps(network, optimizer))
        slots = [value for slots in optimizer.state.values() for value in slots.values() if isinstance(value, DTensor)]
        if rank == 0:
            state = sum(value.to_local().numel() * value.itemsize for value in slots)
            result.write_text(f"{state} {peak - before}")

    return work


def memories(ranks: int) -> None:
    """What training adds to the memory of a process: the interpreter and its libraries are not counted."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        for network, make in (("ResNet-56", resnet), ("768-channel convs", wide_convs)):
            plain_state = plain_peak = 0
            for name in ("unattached", *METRICS):
                peaks = []
                for _ in range(3):
                    on_ranks(memory(make, name, result), ranks)
                    state, peak = map(int, result.read_text().split())
                    peaks.append(peak)
                peak = sorted(peaks)[1]
                plain_state, plain_peak = plain_state or state, plain_peak or peak
                print(
                    f"{network}, FSDP2 x {ranks}, {name}: optimizer state {state:,} bytes per rank, "
                    f"{state / plain_state:.3f} x unattached; peak memory {peak / 2**20:.0f} MB (median of 3), "
                    f"{peak / plain_peak:.3f} x unattached",
                    flush=True,
                )


def _steps(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        backward(network, images=8, side=8 if isinstance(network, nn.Sequential) else 32)
        optimizer.step()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak(work: Callable[[], None]) -> int:
    """The most memory resident while `work` ran, looked at every millisecond."""
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            most[0] = max(most[0], _resident())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return most[0]


# -- the time of a step ----------------------------------------------------------------------------------------------

STEPS, WARM_UP = 100, 5
TIMED = {"Identity": riesz.Identity(scale=0.5), **METRICS, "Centralization": riesz.Centralization()}


def convs(shapes: list[Shape]) -> nn.Module:
    """Nothing but the parameters of a network: convolutions, each with batch normalisation, and a classifier."""
    layers: list[nn.Module] = []
    for outputs, inputs, height, width in shapes:
        layers += [nn.Conv2d(inputs, outputs, (height, width), bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, nn.Linear(shapes[-1][0], 1000))


class TimedSteps:
    """Optimizers on the same sharded parameters, one unattached and one per metric, stepped in turns."""

    def __init__(self, shapes: list[Shape], ranks: int):
        torch.manual_seed(0)
        network = convs(shapes)
        fully_shard(network, mesh=init_device_mesh("cpu", (ranks,)))
        self.parameters = list(network.parameters())
        self._gradients = [torch.randn_like(p.to_local()) for p in self.parameters]
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        for name in ("plain", *TIMED):
            optimizer = torch.optim.SGD(self.parameters, lr=1e-6, momentum=0.9)
            if name in TIMED:
                riesz.attach(optimizer, network, metric=TIMED[name])
            self.optimizers[name] = optimizer

    def step(self, name: str) -> tuple[float, float]:
        """Seconds of one step on new gradients, as FSDP2 makes them: on the wall, and of this process.

        The second is what counts on a machine that others use: it has no waiting in it, for them or for other ranks.
        """
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = DTensor(gradient.clone(), parameter._spec, requires_grad=False)
        dist.barrier()
        started, used = time.perf_counter(), time.process_time()
        self.optimizers[name].step()
        return time.perf_counter() - started, time.process_time() - used


def timed_steps(label: str, shapes: list[Shape]) -> Callable[[int, int], None]:
    def work(rank: int, ranks: int) -> None:
        timed = TimedSteps(shapes, ranks)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in timed.optimizers}
        for index in range(WARM_UP + STEPS):
            for name in seconds:
                elapsed = timed.step(name)
                if index >= WARM_UP:
                    seconds[name].append(elapsed)
        for clock, kind in enumerate(("wall", "processor")):
            medians = {name: sorted(pair[clock] for pair in seconds[name])[STEPS // 2] for name in seconds}
            cells = [f"plain {1e3 * medians['plain']:.1f} ms"]
            for name in TIMED:
                added = medians[name] - medians["plain"]
                cells.append(f"{name} +{1e3 * added:.1f} ms {added / medians['plain']:+.2f}")
            if rank == 0:
                print(f"{label}, FSDP2 x {ranks}, {kind}, medians of {STEPS}: " + ", ".join(cells), flush=True)

    return work


def profiled(label: str, shapes: list[Shape]) -> Callable[[int, int], None]:
    """Where the time of an attached step goes, by the functions that pack, wait, solve and check."""

    def work(rank: int, ranks: int) -> None:
        from riesz.backends.shards import ShardKernels
        from riesz.sharded import collectives, direct

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

        measure(ShardKernels, "sums", "pack")
        measure(ShardKernels, "solve_", "solve")
        for collective in (collectives.AllGather, collectives.AllReduce):
            measure(collective, "start", "collective, start")
            measure(collective, "finish", "collective, wait and compare")
        measure(direct.PreparedStep, "holds_gradients", "check")
        measure(direct.PreparedStep, "start", "start, with pack")
        measure(direct.PreparedStep, "finish", "finish, with wait and solve")
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

    for ranks in (64, 512, 1024):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        mesh = init_device_mesh("cpu", (ranks,))
        shapes = resnet50()
        for kind, metric in METRICS.items():
            parameters = [nn.Parameter(_shard(shape, mesh, ranks)) for shape in shapes]
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


def on_ranks(work: Callable[[int, int], None], ranks: int) -> None:
    """Run on forked ranks; a rank that fails fails all."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            if (child := os.fork()) == 0:
                status = 1
                try:
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
                    work(rank, ranks)
                    dist.destroy_process_group()
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise SystemExit("a rank failed")


def main() -> None:
    chosen = sys.argv[1:] or ["traffic", "memory", "model", "steps", "profile", "planning"]
    if "traffic" in chosen:
        for ranks in (2, 4):
            on_ranks(traffic, ranks)
    if "memory" in chosen:
        memories(2)
    if "model" in chosen:
        model()
    networks = (("ResNet-56", resnet56()), ("ResNet-50", resnet50()))
    for ranks in (2, 4):
        for name, shapes in networks:
            if "steps" in chosen:
                on_ranks(timed_steps(name, shapes), ranks)
            if "profile" in chosen and ranks == 2:
                on_ranks(profiled(name, shapes), ranks)
    if "planning" in chosen:
        planning()


if __name__ == "__main__":
    main()
