"""Small data, small trials, and files in the public formats."""

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from riesz_lab.config import Config
from riesz_lab.data.images.cifar10 import BATCHES, CLASSES
from riesz_lab.data.images.types import Data, Images
from riesz_lab.training import checkpoint
from riesz_lab.utils.tensor_files import read_tensors

SAME = ("weights.safetensors", "history.jsonl", "updates.jsonl", "result.json", "config.json")
"""What must be equal, bit for bit, however a trial came to its end."""


def images(count=120, side=28, channels=1, classes=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, side, side, channels), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.arange(count) % classes)


def small_data(channels=1, side=28):
    return Data(
        train=images(120, side, channels),
        test=images(40, side, channels, seed=1),
        classes=10,
        channels=channels,
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
    )


def small_config(**changes):
    settings = {
        "recipe": "test",
        "model": "lab_helpers:network",
        "epochs": 3,
        "batch_size": 16,
        "lr": 0.05,
        "augment": "crop-flip",
        "metric": "sobolev-tilde",
        "drop_every": 2,
    }
    return Config(**{**settings, **changes})


def network(channels, classes):
    """Everything that has state of its own: batch norm's buffers, dropout's chance."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, classes),
    )


def outcome_bytes(path):
    return {name: (Path(path) / name).read_bytes() for name in SAME}


def assert_readable(path):
    """Every file that is not a temporary one can be read."""
    for file in Path(path).glob("*.json"):
        json.loads(file.read_text())
    for line in (path / "history.jsonl").read_text().splitlines() if (path / "history.jsonl").exists() else ():
        json.loads(line)
    for folder in checkpoint.newest_first(path / "checkpoints"):
        checkpoint.load(folder)
    if (path / "weights.safetensors").exists():
        read_tensors(path / "weights.safetensors")


def write_idx(folder, train=100, test=40, zipped=True):
    """MNIST's four files, small."""
    folder.mkdir(parents=True, exist_ok=True)
    open_store = gzip.open if zipped else open
    suffix = ".gz" if zipped else ""
    for prefix, count, seed in (("train", train, 0), ("t10k", test, 1)):
        split = images(count, seed=seed)
        with open_store(folder / f"{prefix}-images-idx3-ubyte{suffix}", "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 28, 28) + split.images_NHWC.numpy().tobytes())
        with open_store(folder / f"{prefix}-labels-idx1-ubyte{suffix}", "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + split.labels_N.to(torch.uint8).numpy().tobytes())


def cifar_rows(count, seed=0):
    split = images(count, 32, 3, seed=seed)
    return split, split.images_NHWC.permute(0, 3, 1, 2).reshape(count, -1).contiguous().numpy()


def write_cifar_bin(folder, count):
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True)
    for seed, name in enumerate((*BATCHES["train"], *BATCHES["test"])):
        split, rows = cifar_rows(count, seed)
        labels = split.labels_N.to(torch.uint8).numpy()[:, None]
        (target / f"{name}.bin").write_bytes(np.concatenate([labels, rows], 1).tobytes())


def write_cifar_py(folder, count, protocol=2):
    target = folder / "cifar-10-batches-py"
    target.mkdir(parents=True)
    for seed, name in enumerate((*BATCHES["train"], *BATCHES["test"])):
        split, rows = cifar_rows(count, seed)
        batch = {
            b"data": rows,
            b"labels": split.labels_N.tolist(),
            b"batch_label": b"a batch",
            b"filenames": [b"x.png"],
        }
        (target / name).write_bytes(pickle.dumps(batch, protocol=protocol))


def write_cifar_folder(folder, per_class=2):
    from PIL import Image

    for split, seed in (("train", 0), ("test", 1)):
        pixels = images(10 * per_class, 32, 3, seed=seed).images_NHWC.numpy()
        for index in range(10 * per_class):
            target = folder / split / CLASSES[index % 10]
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[index]).save(target / f"{index:04d}.png")


def riesz(*arguments, cwd=None, env=None, check=None, **options):
    """The command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "riesz_lab", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    if check is not None:
        assert done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done
