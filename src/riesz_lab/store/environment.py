"""The environment of a trial: versions, hardware, revision."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("riesz", "torch", "lightning-fabric", "numpy", "pillow", "safetensors", "torchmetrics")

BF16_PROBE = """
import torch
for channels in (1, 3, 16, 64):
    for size in (5, 3, 1):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(16, channels, 12, 12).contiguous(memory_format=layout).requires_grad_()
            conv = torch.nn.Conv2d(channels, 16, size, stride=2).to(memory_format=layout)
            head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64, 10))
            with torch.autocast("cpu", torch.bfloat16):
                head(conv(x)).float().sum().backward()
"""
"""Which instructions are used depends on the shapes, so many are tried."""


def describe(accelerator: str, devices: int) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: version(name) for name in PACKAGES},
        "revision": revision(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": memory_gb(),
        "threads": torch.get_num_threads(),
        "accelerator": accelerator,
        "devices": devices,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def revision() -> str | None:
    """The git revision of this source tree, with "-dirty" for local changes; None if it is an installed package."""
    here = Path(__file__).resolve().parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        return head + ("-dirty" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()


def memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def peak_memory_mb() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def bf16_trouble() -> str | None:
    """Why bf16 cannot be used on this CPU, or None. Tested in a separate process, which dies where a virtual machine
    announces instructions that it does not run."""
    done = subprocess.run([sys.executable, "-c", BF16_PROBE], capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return (
            f"a bf16 convolution ends the process with signal {-done.returncode}: the processor announces instructions "
            "that do not run here (often AMX in a virtual machine). Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 and try "
            "again, or use precision 32"
        )
    return (done.stderr.strip().splitlines() or ["unknown error"])[-1]
