"""`riesz doctor --gpu`: are the kernels right on this GPU, and what do they cost?

Prints a block to paste into an issue and writes the same figures as CSV, which docs/gpu.md explains.
"""

import csv
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

import riesz
from riesz.backends.registry import registered
from riesz.metrics.text import KINDS
from riesz_lab.models.encoder import Encoder
from riesz_lab.store import environment

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}
"""Largest error relative to the largest entry of the reference."""

SHAPES = ((1, 9), (7, 4, 3), (64, 8, 3, 3), (65, 3), (193, 4), (641, 3), (512, 64), (5000, 4))
TIMED = ("sobolev-tilde", "reweighted-l2", "sobolev", "centralization")


@dataclass(frozen=True)
class Measurement:
    """One line of the result: `what` of `who` at `where`."""

    what: str
    who: str
    where: str
    value: float
    unit: str


def examine_gpu(folder: Path = Path(), device: str = "cuda") -> int:
    """Run every check on a device and print what it gives.

    Args:
        folder: where the CSV is written.
        device: the device to examine.
    """
    if device == "cuda" and not torch.cuda.is_available():
        print("riesz doctor --gpu: expected a CUDA or HIP device, got none; nothing was measured")
        return 1
    name = torch.cuda.get_device_name() if device == "cuda" else environment.cpu_name()
    versions = ", ".join(f"{package} {environment.version(package)}" for package in ("riesz", "torch", "triton"))
    print(f"```\n{name}; {versions}")
    figures = list(errors(device))
    wrong = [figure for figure in figures if not figure.value <= 1.0]
    print(f"{len(figures)} comparisons with the reference, {len(wrong)} beyond their tolerance")
    for figure in wrong:
        print(f"  WRONG {figure.who} {figure.where}: {figure.value:.1f} times the tolerance")
    model = Encoder(3, 50, 64).to(device)
    for figure in (*times(model, device), *launches(model, device), *share(model, device)):
        figures.append(figure)
        print(f"{figure.what:<28} {figure.who:<28} {figure.where:<12} {figure.value:>10.3f} {figure.unit}")
    # Asked last, when all kernels were tried: eager took the place of those refused, so nothing above shows them.
    for figure in refused():
        figures.append(figure)
        wrong.append(figure)
        print(f"  WRONG {figure.who}: {figure.where}")
    print(f"{riesz.backends()}\n```")
    path = folder / f"gpu-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.csv"
    with path.open("w", newline="") as file:
        machine = {"device": name, "versions": versions}
        writer = csv.DictWriter(file, [*machine, *(field.name for field in fields(Measurement))])
        writer.writeheader()
        writer.writerows(machine | asdict(figure) for figure in figures)
    print(f"written to {path}")
    return 1 if wrong else 0


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
                        yield Measurement("error/tolerance", who, where, _error(got, want) / tolerance, "")
                    riesz.precondition_(together, kind(), dim=dim)
                    worst = max(map(_error, together, wanted), key=lambda error: (math.isnan(error), error))
                    where = f"{len(together)} in one call along {dim} {layout}"
                    yield Measurement("error/tolerance", who, where, worst / tolerance, "")


def _error(got: Tensor, wanted: Tensor) -> float:
    return float((got.cpu().double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-300))


def refused() -> Iterator[Measurement]:
    """The kernels that differed from eager at their first use, by what is said of them."""
    for backend in registered():
        if (note := backend.note()) is not None:
            yield Measurement("refused at first use", backend.name, note, 1.0, "")


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda values: values.clone(),
    "transposed": lambda values: values.mT.clone(memory_format=torch.contiguous_format).mT,
    "strided": lambda values: torch.stack([values, values], -1)[..., 0],
}


def times(model: torch.nn.Module, device: str) -> Iterator[Measurement]:
    """Milliseconds to direct all conv gradients, against copying them and against eager."""
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


def launches(model: torch.nn.Module, device: str) -> Iterator[Measurement]:
    """Kernels that one step of directing starts, as the profiler counts them."""
    if device != "cuda":
        return
    grads = [torch.randn_like(p) for p in model.parameters() if p.dim() == 4]
    metric = riesz.SobolevTilde()
    for _ in range(2):
        riesz.precondition_(grads, metric)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        riesz.precondition_(grads, metric)
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() or () if str(event.device_type).endswith("CUDA")]
    yield Measurement("launches per step", str(metric), "ResNet-50", float(len(kernels)), "")


def share(model: torch.nn.Module, device: str, batch: int = 32) -> Iterator[Measurement]:
    """The time of a training step with the hook over that without, less one."""
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
