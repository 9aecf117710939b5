"""Weights from a local file: safetensors, or what torch.save wrote, read with `weights_only`."""

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from riesz_lab.errors import BadFileError, MissingDataError, first_line


def find(name: str, data_dir: Path, setting: str) -> Path:
    """The file: a path, or a name in the folder `weights` of the data folder."""
    for path in (Path(name), data_dir / "weights" / name):
        if path.is_file():
            return path
    raise MissingDataError(f"{setting}: expected a file {name} or {data_dir / 'weights' / name}, got neither")


def load_weights(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, OverflowError, RuntimeError) as error:
        raise BadFileError(f"{path} cannot be read as safetensors: {first_line(error)}") from None


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of either kind, by name."""
    if path.suffix == ".safetensors":
        return load_weights(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # the reader raises almost anything on a damaged archive
        raise BadFileError(f"{path} cannot be read as weights: it is damaged, or holds more than tensors") from None
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise BadFileError(f"{path}: expected a state dict or safetensors, got a {type(loaded).__name__}")
    return loaded


def load_into(model: nn.Module, path: Path, *, extra: tuple[str, ...] = ()) -> None:
    """Load all weights of a model; the file may hold more, under names that begin with one of `extra`."""
    weights, wanted = read(path), model.state_dict()
    # Files written before torch 0.4.1 lack batch norm's counter of batches, which starts at zero.
    optional = {name for name in wanted if name.endswith("num_batches_tracked")}
    if missing := sorted(set(wanted) - set(weights) - optional):
        raise BadFileError(f"{path} lacks {missing[0]!r} and {len(missing) - 1} more: it belongs to another network")
    for name in sorted(set(weights) - set(wanted)):
        if not name.startswith(extra):
            raise BadFileError(f"{path} holds {name!r}, unknown to the network: it belongs to another one")
    for name in set(wanted) & set(weights):
        expected, got = (tuple(tensors[name].shape) for tensors in (wanted, weights))
        if expected != got:
            raise BadFileError(f"{path}: {name!r}: expected shape {expected}, got {got}")
    model.load_state_dict({name: weights.get(name, wanted[name]) for name in wanted})
