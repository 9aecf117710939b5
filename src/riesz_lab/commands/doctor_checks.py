"""The checks of `riesz doctor`: each yields its state, ok, WRONG or -, and a line."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import torch

import riesz
from riesz.backends.registry import registered
from riesz_lab.commands.data import is_present
from riesz_lab.config import Config
from riesz_lab.data.images.builtin import DATASETS
from riesz_lab.data.scenes.builtin import SCENES
from riesz_lab.errors import LabError
from riesz_lab.requirements import NEEDED
from riesz_lab.store import environment
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train
from riesz_lab.utils.amounts import count

METRICS = ("reweighted-l2", "sobolev", "sobolev-tilde", "laplacian-smoothing")
OPTIONAL = {"tensorboard": "riesz[tensorboard]", "ray": "riesz[ray]", "pyarrow": "riesz[parquet]"}
TOLERANCE = 1e-4


def packages() -> Iterator[tuple[str, str]]:
    for package in ("riesz", "torch", *NEEDED.values(), *OPTIONAL):
        if version := environment.version(package):
            yield "ok", f"{package} {version}"
        elif package in OPTIONAL:
            yield "-", f"{package}: not installed; pip install '{OPTIONAL[package]}'"
        else:
            yield "WRONG", f"{package} is missing: pip install 'riesz[lab]'"
    if revision := environment.revision():
        yield "ok", f"source at revision {revision}"


def devices() -> Iterator[tuple[str, str]]:
    yield "ok", f"cpu: {environment.cpu_name()}, {torch.get_num_threads()} threads, {environment.memory_gb()} GB"
    why = environment.bf16_trouble()
    yield ("ok", "cpu: bf16-mixed works") if why is None else ("-", f"cpu: bf16-mixed: {why}")
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("cl")
    lacking = ("-", "cpu: --compile needs a C++ compiler: none")
    yield ("ok", "cpu: a C++ compiler for --compile") if compiler else lacking
    if not torch.cuda.is_available():
        yield "-", "cuda: not available"
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        yield _try(f"cuda:{index}: {name}", partial(_sum_on, f"cuda:{index}"))
    if torch.backends.mps.is_available():
        yield _try("mps", partial(_sum_on, "mps"))


def _sum_on(device: str) -> float:
    return torch.ones(8, device=device).sum().item()


def backends() -> Iterator[tuple[str, str]]:
    for status in riesz.backends():
        if not status.available:
            yield "-", f"{status.name}: {status.reason}"
            continue
        errors = {device: error for device in _accelerators() if (error := _error_of(status.name, device)) is not None}
        for device, error in errors.items():
            line = f"{status.name} on {device}: {len(METRICS)} metrics, largest error {error:.1e}"
            yield ("ok" if error < TOLERANCE else "WRONG"), line + ("; picked by auto" if status.picked else "")
        if not errors:
            yield "-", f"{status.name}: serves no device of this machine"
    # Asked last: a backend may have refused some of its kernels while they were tried above.
    for backend in registered():
        if (note := backend.note()) is not None:
            yield "WRONG", f"{backend.name}: {note}"


def _error_of(backend: str, device: str) -> float | None:
    """The largest error of a backend against the reference, relative to the largest value; None if it refuses."""
    worst = 0.0
    for text in METRICS:
        metric = riesz.metric(text)
        for shape in ((10, 3, 3, 3), (64, 16, 3, 3)):
            gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            expected, computed = gradient.double(), gradient.clone().to(device)
            riesz.precondition_(expected, metric, backend="reference")
            try:
                riesz.precondition_(computed, metric, backend=backend)
            except ValueError:
                return None
            worst = max(worst, float((computed.cpu().double() - expected).abs().max() / expected.abs().max()))
    return worst


def datasets(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (*DATASETS, *SCENES):
        fetch = f"riesz data fetch {name}"
        fetch = fetch if name in DATASETS else f"to be put there by hand: {fetch} explains how"
        yield ("ok", name) if is_present(name, folder) else ("-", f"{name}: not in {folder}; {fetch}")


def training() -> Iterator[tuple[str, str]]:
    for accelerator in _accelerators():
        hardware = Hardware(accelerator=accelerator)
        yield _try(f"{accelerator}: a short trial trains, saves and is scored", partial(_train_briefly, hardware))


def _accelerators() -> list[Literal["cpu", "cuda"]]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def _train_briefly(hardware: Hardware) -> str:
    config = Config(metric="sobolev-tilde", max_steps=3, train_limit=60, test_limit=20, batch_size=20)
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, runs=folder, hardware=hardware, save_every=0.0).result
    if result.last is None:
        raise LabError(f"it {result.status} after {count(result.step, 'step')}")
    return f"{count(result.step, 'step')}, test loss {result.last['test_loss']:.3f}"


def _try(what: str, attempt: Callable[[], object]) -> tuple[str, str]:
    try:
        remark = attempt()
    except Exception as error:  # a check-up reports every error
        return "WRONG", f"{what}: {type(error).__name__}: {error}"
    return "ok", f"{what}: {remark}" if isinstance(remark, str) else what
