"""`riesz doctor --gpu`: are the kernels right on this GPU, and what do they cost?

Prints one block to paste into an issue and writes the same figures as CSV, which docs/gpu.md explains. Each section
runs in a process of its own: one that raises, crashes or hangs is a line of the block, and the others still run.
"""

import csv
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import riesz
from riesz.backends.registry import registered
from riesz.metrics.text import KINDS
from riesz_lab.models.encoder import Encoder
from riesz_lab.store import environment

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""Largest error relative to the largest entry of the reference."""

SHAPES = ((1, 9), (7, 4, 3), (64, 8, 3, 3), (65, 3), (193, 4), (641, 3), (512, 64), (5000, 4))
ERROR, REFUSED, FAILED = "error/tolerance", "refused at first use", "failed"
"""What a figure may be that says the kernels are wrong."""

SECONDS = 1200
"""The longest a section may take."""

TIMED = ("sobolev-tilde", "reweighted-l2", "sobolev", "centralization")


@dataclass(frozen=True)
class Measurement:
    """One line of the result: `what` of `who` at `where`."""

    what: str
    who: str
    where: str
    value: float
    unit: str

    @property
    def is_wrong(self) -> bool:
        return self.what in (FAILED, REFUSED) or (self.what == ERROR and not self.value <= 1.0)


def examine_gpu(
    folder: Path = Path(), device: str = "cuda", run: Callable[[str, str], list[Measurement]] | None = None
) -> int:
    """Run every section on a device and print what it gives.

    Args:
        folder: where the CSV is written.
        device: the device to examine.
        run: gives the figures of a section on a device; in a process of its own if not given.
    """
    if device == "cuda" and not torch.cuda.is_available():
        print("riesz doctor --gpu: expected a CUDA or HIP device, got none; nothing was measured")
        return 1
    name = torch.cuda.get_device_name() if device == "cuda" else environment.cpu_name()
    count = torch.cuda.device_count() if device == "cuda" else 1
    versions = ", ".join(f"{package} {environment.version(package)}" for package in ("riesz", "torch", "triton"))
    print(f"```\n{name}{f', {count} of them' if count > 1 else ''}; {versions}", flush=True)
    figures: list[Measurement] = []
    for section in SECTIONS:
        # Sections may find the same kernel refused.
        own = [one for one in (run or isolated)(section, device) if one.what != REFUSED or one not in figures]
        figures += own
        compared = [figure for figure in own if figure.what == ERROR]
        if compared:
            wrong = sum(figure.is_wrong for figure in compared)
            print(f"{section}: {len(compared)} comparisons with the reference, {wrong} beyond their tolerance")
        for figure in own:
            if figure.is_wrong and figure.what == ERROR:
                print(f"  WRONG {figure.who} {figure.where}: {figure.value:.1f} times the tolerance")
            elif figure.is_wrong:
                print(f"  WRONG {figure.who}: {figure.where}")
            elif figure.what != ERROR:
                print(f"{figure.what:<28} {figure.who:<28} {figure.where:<12} {figure.value:>10.3f} {figure.unit}")
        sys.stdout.flush()
    print(f"{riesz.backends()}\n```")
    path = folder / f"gpu-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.csv"
    with path.open("w", newline="") as file:
        machine = {"device": name, "versions": versions}
        writer = csv.DictWriter(file, [*machine, *(field.name for field in fields(Measurement))])
        writer.writeheader()
        writer.writerows(machine | asdict(figure) for figure in figures)
    print(f"written to {path}")
    return 1 if any(figure.is_wrong for figure in figures) else 0


def isolated(section: str, device: str) -> list[Measurement]:
    """The figures of a section, computed by a process of its own."""
    command = [sys.executable, "-m", "riesz_lab.commands.doctor_gpu", section, device]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            status = subprocess.run(command, stdout=out, stderr=err, timeout=SECONDS).returncode
            end = f"the process ended with status {status}"
        except subprocess.TimeoutExpired:
            status, end = 1, f"the process did not end within {SECONDS} s"
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("[")]
        said = err.read().strip().splitlines()[-1:]
    figures = [Measurement(*json.loads(line)) for line in lines]
    if status != 0:
        figures.append(Measurement(FAILED, section, ": ".join([end, *said])[:300], 1.0, ""))
    return figures


def guarded(section: str, device: str) -> Iterator[Measurement]:
    """The figures of a section, and what it raised."""
    try:
        yield from SECTIONS[section](device)
    except Exception as error:  # a check-up reports every error
        said = str(error).strip().splitlines()
        yield Measurement(FAILED, section, f"{type(error).__name__}: {said[0] if said else ''}"[:300], 1.0, "")
    # Asked last, when all kernels were tried: eager took the place of those refused, so nothing above shows them.
    yield from refused()


def errors(device: str) -> Iterator[Measurement]:
    """The error of every operator, dtype, shape, axis and layout, in units of its tolerance.

    Alone first, then all gradients of one axis in one call, as a training step has them.
    """
    generator = torch.Generator().manual_seed(0)
    for name, kind in KINDS.items():
        for dtype, tolerance in TOLERANCE.items():
            who = f"{name} {str(dtype)[6:]}"
            for dim in (0, 1):
                values = [
                    torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
                    for shape in SHAPES
                    if dim == 0 or len(shape) > 2
                ]
                wanted = [riesz.precondition_(v.double().clone(), kind(), dim=dim, backend="reference") for v in values]
                for layout, lay_out in LAYOUTS.items():
                    alone, together = ([lay_out(v.to(device)) for v in values] for _ in range(2))
                    for got, want in zip(alone, wanted, strict=True):
                        riesz.precondition_(got, kind(), dim=dim)
                        where = f"{'x'.join(map(str, got.shape))} along {dim} {layout}"
                        yield Measurement(ERROR, who, where, _error(got, want) / tolerance, "")
                    riesz.precondition_(together, kind(), dim=dim)
                    worst = max(map(_error, together, wanted), key=lambda error: (math.isnan(error), error))
                    where = f"{len(together)} in one call along {dim} {layout}"
                    yield Measurement(ERROR, who, where, worst / tolerance, "")


def _error(got: Tensor, wanted: Tensor) -> float:
    return float((got.cpu().double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-300))


def refused() -> Iterator[Measurement]:
    """The kernels that differed from eager at their first use, by what is said of them."""
    for backend in registered():
        if (note := backend.note()) is not None:
            yield Measurement(REFUSED, backend.name, note, 1.0, "")


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda values: values.clone(),
    "transposed": lambda values: values.mT.clone(memory_format=torch.contiguous_format).mT,
    "strided": lambda values: torch.stack([values, values], -1)[..., 0],
}


def times(device: str) -> Iterator[Measurement]:
    """Milliseconds to direct all conv gradients, against copying them and against eager."""
    model = Encoder(3, 50, 64).to(device)
    grads = [torch.randn_like(p) for p in model.parameters() if p.dim() == 4]
    copies = [torch.empty_like(g) for g in grads]

    def copy() -> None:
        for target, source in zip(copies, grads, strict=True):
            target.copy_(source)

    yield Measurement("time", "copy_ per tensor", "ResNet-50", milliseconds(copy, device), "ms")
    for text in TIMED:
        metric = riesz.metric(text)
        for backend in ("auto", "eager"):
            # Anew: a metric that is applied a hundred times over may leave the range of float32.
            own = [torch.randn_like(g) for g in grads]

            def direct(grads: list[Tensor] = own, metric: riesz.Operator = metric, backend: str = backend) -> None:
                riesz.precondition_(grads, metric, backend=backend)

            yield Measurement("time", f"{text}, {backend}", "ResNet-50", milliseconds(direct, device), "ms")


def launches(device: str) -> Iterator[Measurement]:
    """Kernels that one step of directing starts, as the profiler counts them."""
    if device != "cuda":
        return
    model = Encoder(3, 50, 64).to(device)
    grads = [torch.randn_like(p) for p in model.parameters() if p.dim() == 4]
    metric = riesz.SobolevTilde()
    for _ in range(2):
        riesz.precondition_(grads, metric)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        riesz.precondition_(grads, metric)
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() or () if str(event.device_type).endswith("CUDA")]
    yield Measurement("launches per step", str(metric), "ResNet-50", float(len(kernels)), "")


def share(device: str, batch: int = 32) -> Iterator[Measurement]:
    """The time of a training step with the hook over that without, less one."""
    model = Encoder(3, 50, 64).to(device)
    images = torch.randn(batch, 3, 224, 224, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(images)[-1].square().mean().backward()
        optimizer.step()

    plain = milliseconds(step, device, rounds=10)
    attachment = riesz.attach(optimizer, model, metric=riesz.SobolevTilde())
    directed = milliseconds(step, device, rounds=10)
    attachment.detach()
    yield Measurement("training step", "plain", "ResNet-50", plain, "ms")
    yield Measurement("training step", "with the hook", "ResNet-50", directed, "ms")
    yield Measurement("share of the hook", "SobolevTilde", "ResNet-50", 100 * (directed / plain - 1), "%")


def milliseconds(work: Callable[[], None], device: str, rounds: int = 30) -> float:
    """The median time of a call, after three that are not counted."""
    seconds = []
    for round_ in range(rounds + 3):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        if round_ >= 3:
            seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def sharded(device: str) -> Iterator[Measurement]:
    """A sharded step on two devices, a rank on each: its error against one process, and its time."""
    if device == "cuda" and torch.cuda.device_count() < 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, (device, folder), nprocs=2)  # type: ignore[no-untyped-call]
        for line in (Path(folder) / "figures").read_text().splitlines():
            yield Measurement(*json.loads(line))


def _rank(rank: int, device: str, folder: str, ranks: int = 2) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    if device == "cuda":
        torch.cuda.set_device(rank)
    backend, store = ("nccl" if device == "cuda" else "gloo"), f"file://{folder}/store"
    dist.init_process_group(backend, rank=rank, world_size=ranks, init_method=store)
    mesh = init_device_mesh(device, (ranks,))
    figures = []
    for text in TIMED:
        generator = torch.Generator().manual_seed(0)
        values = [torch.randn(shape, generator=generator) for shape in SHARDED_SHAPES]
        shards: list[Any] = [distribute_tensor(value.to(device), mesh, [Shard(0)]) for value in values]
        riesz.precondition_(shards, metric := riesz.metric(text))
        wanted = [riesz.precondition_(value.double(), metric, backend="reference") for value in values]
        errors_ = [_error(shard.full_tensor(), want) for shard, want in zip(shards, wanted, strict=True)]
        worst = max(errors_, key=lambda error: (math.isnan(error), error)) / TOLERANCE[torch.float32]
        figures.append(Measurement(ERROR, f"{text} float32", f"{ranks} ranks", worst, ""))

        def step(shards: list[Any] = shards, metric: riesz.Operator = metric) -> None:
            riesz.precondition_(shards, metric)

        figures.append(Measurement("sharded step", text, f"{ranks} ranks", milliseconds(step, device, rounds=10), "ms"))
    if rank == 0:
        text = "\n".join(json.dumps(astuple(figure)) for figure in figures)
        (Path(folder) / "figures").write_text(text)
    dist.barrier()
    dist.destroy_process_group()


SHARDED_SHAPES = ((64, 16, 3, 3), (65, 8, 3, 3), (256, 64, 1, 1), (3, 5))
"""Even, uneven, and with few rows on a rank."""

SECTIONS: dict[str, Callable[[str], Iterator[Measurement]]] = {
    "correctness": errors,
    "times": times,
    "launches": launches,
    "training step": share,
    "sharded step": sharded,
}

if __name__ == "__main__":
    for figure in guarded(sys.argv[1], sys.argv[2]):
        print(json.dumps(astuple(figure)), flush=True)
