"""Weights from a local file of anybody's: safetensors, or what torch.save wrote."""

from pathlib import Path

from torch import nn

from riesz_lab.errors import BadFileError, MissingDataError
from riesz_lab.utils.tensor_files import read_tensors


def find(name: str, data_dir: Path, setting: str) -> Path:
    """The file: a path, or a name in the folder `weights` of the data folder."""
    for path in (Path(name), data_dir / "weights" / name):
        if path.is_file():
            return path
    raise MissingDataError(f"{setting}: expected a file {name} or {data_dir / 'weights' / name}, got neither")


def load_into(model: nn.Module, path: Path, *, extra: tuple[str, ...] = ()) -> None:
    """Load all weights of a model; the file may hold more, under names that begin with one of `extra`."""
    weights, wanted = read_tensors(path), model.state_dict()
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
