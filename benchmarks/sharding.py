"""Claims: under FSDP2 the directed step is one collective per mesh and kind, of few bytes, and costs no memory.

    python -m benchmarks.sharding traffic    ResNet-56 under FSDP2 on 2 and 4 ranks: collectives and bytes, by kind
    python -m benchmarks.sharding memory     the same on 2 ranks: optimizer state and peak memory, attached and not
    python -m benchmarks.sharding model      bytes by the cost model on 8 to 1,024 ranks, against torch's fake group

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
    from riesz.sharded.columns import ColumnBatch, ExchangedColumns
    from riesz.sharded.layout import held_by_rank, partition
    from riesz.sharded.sums import GatheredSums

    columns_of: Counter[int] = Counter()
    for shape in shapes:
        columns_of[shape[0]] += shape[1] * shape[2] * shape[3]
    coordinates = tuple((rank,) for rank in range(ranks))
    rows_of = {n: partition(n, 1, held_by_rank(n, ((1, ranks),), coordinates)) for n in columns_of}
    if isinstance(metric, riesz.ReweightedL2):
        return "all-reduce", sum(8 * columns for columns in columns_of.values()) * 2 * (ranks - 1) // ranks
    gathered = exchanged = 0
    for n, columns in columns_of.items():
        group: Any = None  # it does not count
        batch = ColumnBatch(group, rows_of[n], metric, torch.float32, torch.device("cpu"), columns=columns)
        gathered += GatheredSums.bytes(batch)
        exchanged += ExchangedColumns.bytes(batch)
    return ("all-gather", gathered) if gathered <= exchanged else ("all-to-all", exchanged)


def model() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    row = "{:<17} {:<13} {:>5}  {:<10} {:>12} {:>12} {:>5} {:>9}"
    print(row.format("network", "metric", "ranks", "strategy", "model", "fake group", "calls", "of FSDP2"))
    for name, shapes in (("ResNet-50", resnet50()), ("wide ResNet-152", wide_resnet152())):
        weights = sum(a * b * c * d for a, b, c, d in shapes)
        for ranks in (8, 32, 128, 256, 1024):
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
            mesh = init_device_mesh("cpu", (ranks,))
            grads = [shard(shape, mesh, ranks) for shape in shapes]
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


def shard(shape: Shape, mesh: Any, ranks: int) -> DTensor:
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
    chosen = sys.argv[1:] or ["traffic", "memory", "model"]
    if "traffic" in chosen:
        for ranks in (2, 4):
            on_ranks(traffic, ranks)
    if "memory" in chosen:
        memories(2)
    if "model" in chosen:
        model()


if __name__ == "__main__":
    main()
