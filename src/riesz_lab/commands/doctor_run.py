"""A check-up: versions, devices, backends, a short training; each line says ok, or what is wrong."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import riesz
from riesz_lab import data
from riesz_lab.cli import NEEDED
from riesz_lab.commands.doctor_gpu import examine_gpu
from riesz_lab.config import Config
from riesz_lab.data.scenes import catalog as scene_catalog
from riesz_lab.data.scenes.catalog import SCENES
from riesz_lab.errors import LabError
from riesz_lab.store import environment
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train

METRICS = ("reweighted-l2", "sobolev", "sobolev-tilde", "laplacian-smoothing")
OPTIONAL = {"tensorboard": "riesz[tensorboard]", "ray": "riesz[ray]", "pyarrow": "riesz[parquet]"}
TOLERANCE = 1e-4


def examine(data_dir: Path | None = None, gpu: bool = False) -> int:
    """Run every check and print it as it is done.

    Args:
        data_dir: folder of the datasets; RIESZ_DATA, or the user's cache, if not given.
        gpu: check and time the kernels on this machine's GPU instead, and write the figures as CSV into this folder.
    """
    if gpu:
        return examine_gpu()
    wrong = 0
    for title, checks in (
        ("Packages", _packages()),
        ("Devices", _devices()),
        ("Backends", _backends()),
        ("Datasets", _datasets(data.data_folder(data_dir))),
        ("Training", _training()),
    ):
        print(title)
        for state, line in checks:
            wrong += state == "WRONG"
            print(f"  {state:<5}  {line}", flush=True)
    print("Everything needed works." if not wrong else f"{wrong} of the checks went wrong.")
    return 1 if wrong else 0


def _packages() -> Iterator[tuple[str, str]]:
    for package in ("riesz", "torch", *NEEDED.values()):
        version = environment.version(package)
        yield (
            ("ok", f"{package} {version}") if version else ("WRONG", f"{package} is missing: pip install 'riesz[lab]'")
        )
    for package, extra in OPTIONAL.items():
        version = environment.version(package)
        yield ("ok", f"{package} {version}") if version else ("-", f"{package}: not installed; pip install '{extra}'")
    if revision := environment.revision():
        yield "ok", f"source at revision {revision}"


def _devices() -> Iterator[tuple[str, str]]:
    yield "ok", f"cpu: {environment.cpu_name()}, {torch.get_num_threads()} threads, {environment.memory_gb()} GB"
    why = environment.bf16_trouble()
    yield ("ok", "cpu: bf16-mixed works") if why is None else ("-", f"cpu: bf16-mixed: {why}")
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("cl")
    yield (
        ("ok", "cpu: a C++ compiler for --compile") if compiler else ("-", "cpu: --compile needs a C++ compiler: none")
    )
    if not torch.cuda.is_available():
        yield "-", "cuda: not available"
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        yield _tried(f"cuda:{index}: {name}", lambda index=index: torch.ones(8, device=f"cuda:{index}").sum().item())
    if torch.backends.mps.is_available():
        yield _tried("mps", lambda: torch.ones(8, device="mps").sum().item())


def _backends() -> Iterator[tuple[str, str]]:
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    for status in riesz.backends():
        if not status.available:
            yield "-", f"{status.name}: {status.reason}"
            continue
        tried = False
        for device in devices:
            error = _error_of(status.name, device)
            if isinstance(error, str):
                continue
            tried = True
            told = f"{status.name} on {device}: {len(METRICS)} metrics, largest error {error:.1e}"
            yield ("ok" if error < TOLERANCE else "WRONG"), told + ("; picked by auto" if status.picked else "")
        if not tried:
            yield "-", f"{status.name}: serves no device of this machine"


def _error_of(backend: str, device: str) -> float | str:
    """The largest error of a backend against the reference, relative to the largest value; or why it refuses."""
    worst = 0.0
    for text in METRICS:
        metric = riesz.metric(text)
        for shape in ((10, 3, 3, 3), (64, 16, 3, 3)):
            gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            wanted, found = gradient.double(), gradient.clone().to(device)
            riesz.precondition_(wanted, metric, backend="reference")
            try:
                riesz.precondition_(found, metric, backend=backend)
            except ValueError as refusal:
                return str(refusal)
            worst = max(worst, float((found.cpu().double() - wanted).abs().max() / wanted.abs().max()))
    return worst


def _datasets(folder: Path) -> Iterator[tuple[str, str]]:
    for name in data.DATASETS:
        try:
            data.check(name, folder)
            yield "ok", name
        except LabError:
            yield "-", f"{name}: not in {folder}; riesz data fetch {name}"
    for name in SCENES:
        try:
            scene_catalog.load(name, folder, "all")
            yield "ok", name
        except LabError:
            yield "-", f"{name}: not in {folder}; to be put there by hand, riesz data fetch {name} tells how"


def _training() -> Iterator[tuple[str, str]]:
    for accelerator in ["cpu"] + ["cuda"] * torch.cuda.is_available():

        def attempt(accelerator: str = accelerator) -> str:
            config = Config(metric="sobolev-tilde", max_steps=3, train_limit=60, test_limit=20, batch_size=20)
            with tempfile.TemporaryDirectory() as folder:
                hardware = Hardware(accelerator=accelerator)  # type: ignore[arg-type]
                result = train(config, runs=folder, hardware=hardware, save_every=0.0).result
            return f"{result['step']} steps, test loss {result['last']['test_loss']:.3f}"

        yield _tried(f"{accelerator}: a short trial trains, saves and is scored", attempt)


def _tried(what: str, attempt: Callable[[], object]) -> tuple[str, str]:
    try:
        told = attempt()
    except Exception as error:  # the point of a check-up is to report whatever goes wrong
        return "WRONG", f"{what}: {type(error).__name__}: {error}"
    return "ok", f"{what}: {told}" if isinstance(told, str) else what
