"""Weights from a local file: safetensors, or what torch.save wrote, read with `weights_only`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from riesz_lab.errors import BadFileError, MissingDataError
from riesz_lab.training import checkpoint


def find(name: str, data_dir: Path, what: str) -> Path:
    """The file: a path, or a name in the folder `weights` of the data folder."""
    for path in (Path(name), data_dir / "weights" / name):
        if path.is_file():
            return path
    raise MissingDataError(f"{what}={name!r} is not there; expected a file {name} or {data_dir / 'weights' / name}")


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name."""
    if path.suffix == ".safetensors":
        return checkpoint.load_weights(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # the reader of a damaged archive raises nearly anything
        raise BadFileError(f"{path} cannot be read as weights: it is damaged, or holds more than tensors") from None
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise BadFileError(f"{path} holds no weights by name; allowed: a state dict, or safetensors")
    return loaded


def load_into(model: nn.Module, path: Path, *, extra: tuple[str, ...] = ()) -> None:
    """Fill a model; the file may hold more, under names that begin with one of `extra`, and nothing less."""
    weights, wanted = read(path), model.state_dict()
    # Files written before torch 0.4.1 lack batch norm's counter of batches, which starts at zero.
    optional = {name for name in wanted if name.endswith("num_batches_tracked")}
    if missing := sorted(set(wanted) - set(weights) - optional):
        raise BadFileError(f"{path} lacks {missing[0]!r} and {len(missing) - 1} more: it belongs to another network")
    for name in sorted(set(weights) - set(wanted)):
        if not name.startswith(extra):
            raise BadFileError(f"{path} holds {name!r}, which the network does not know: it belongs to another one")
    for name in set(wanted) & set(weights):
        if wanted[name].shape != weights[name].shape:
            raise BadFileError(
                f"{path}: {name!r} has shape {tuple(weights[name].shape)}; expected {tuple(wanted[name].shape)}"
            )
    model.load_state_dict({name: weights.get(name, wanted[name]) for name in wanted})
