"""The state of a running trial on disk: two files in a directory that is written atomically.

    checkpoints/step-000001234/
        weights.safetensors   the weights and buffers of every model
        state.pt              the rest, plain values and tensors only: it loads with `weights_only=True`

The two newest are kept: if the disk loses one, the trial continues from the other, to the same result.
"""

import io
import re
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from riesz_lab.errors import BadFileError, first_line
from riesz_lab.training import parallel
from riesz_lab.utils import atomic
from riesz_lab.utils.tensor_files import read_tensors

KEPT = 2


def save(folder: Path, step: int, models: dict[str, nn.Module], state: dict[str, Any], write: bool = True) -> None:
    """Write the checkpoint of this step, then drop all but the newest. Without `write`, only take part in `pack`."""
    weights = pack(models, write)
    if not write:
        return
    buffer = io.BytesIO()
    torch.save(state, buffer)

    def fill(target: Path) -> None:
        # As bytes: a full disk is then an OSError, not an error of each library.
        (target / "weights.safetensors").write_bytes(weights)
        (target / "state.pt").write_bytes(buffer.getbuffer())

    atomic.write_directory(folder / f"step-{step:09d}", fill)
    for old in newest_first(folder)[KEPT:]:
        atomic.remove_directory(old)


def newest_first(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name)), reverse=True)


def set_aside(path: Path) -> None:
    """Rename an unreadable checkpoint; it stays for inspection."""
    target = path.with_name(f"unreadable-{path.name}")
    shutil.rmtree(target, ignore_errors=True)
    try:
        path.rename(target)
    except OSError as error:
        raise atomic.cannot_write(target, error) from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and state of one checkpoint. Nothing in it is executed; a `BadFileError` if it cannot be read."""
    weights = read_tensors(path / "weights.safetensors")
    try:
        state = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    except Exception as error:  # the reader of a damaged archive raises nearly anything
        raise BadFileError(f"{path / 'state.pt'} cannot be read: {first_line(error)}") from None
    if not isinstance(state, dict):
        raise BadFileError(f"{path / 'state.pt'} holds a {type(state).__name__}, not the state of a trial")
    return weights, state


def pack(models: dict[str, nn.Module], keep: bool = True) -> bytes:
    """Weights and buffers of all models in one safetensors file; names are prefixed if there are several.

    Sharded models are gathered: every process must call this, and only those that `keep` get the result.
    """
    tensors = {}
    for model, module in models.items():
        for name, tensor in module.state_dict().items():
            full = parallel.full_tensors(tensor.detach(), keep)
            if keep:
                tensors[_key(models, model, name)] = full.cpu().contiguous()
    return safetensors.torch.save(_unshared(tensors)) if keep else b""


def unpack(models: dict[str, nn.Module], weights: dict[str, Tensor]) -> None:
    """Load weights into the models, in place: their memory format stays."""
    for model, module in models.items():
        present = module.state_dict()
        wanted = {name: _key(models, model, name) for name in present}
        missing = [key for key in wanted.values() if key not in weights]
        if missing:
            raise BadFileError(f"the weights lack {missing[0]!r}: they belong to another model")
        try:
            module.load_state_dict({n: parallel.shard_like(weights[key], present[n]) for n, key in wanted.items()})
        except RuntimeError as error:
            raise BadFileError(f"the weights do not fit the model: {first_line(error)}") from None


def _key(models: dict[str, nn.Module], model: str, name: str) -> str:
    return name if len(models) == 1 else f"{model}.{name}"


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    # safetensors refuses tied weights, which share memory: each name gets a copy.
    seen: set[int] = set()
    out = {}
    for name, tensor in tensors.items():
        out[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return out
