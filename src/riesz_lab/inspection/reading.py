"""Reading anyone's checkpoint without trusting it.

Requirements it meets:
- nothing in a file is executed: safetensors holds numbers only, and torch files go through `weights_only=True`;
- a small file cannot ask for much memory: archives must be stored uncompressed, as `torch.save` writes them, and what
  was loaded may not be larger than the file it came from;
- whatever is wrong is a `BadFileError` that names the file.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from riesz_lab.errors import BadFileError

SIZE_CAP = 16 * 2**30
"""Bytes of a file; larger ones are refused before they are open_store."""
HEADER_CAP = 64 * 2**20
"""Bytes of what describes the tensors: safetensors' header, the pickle inside a torch archive."""
MEMBERS_CAP = 200_000
TENSORS_CAP = 200_000

NOT_WEIGHTS = ("optim", "momentum_buffer", "exp_avg", "scheduler")
"""Tensors below keys that contain these are the optimizer's, not the network's."""
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "weights", "net")
"""Keys that only say that weights follow; they are left out of names."""


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """All tensors of a network in a file, by name.

    Args:
        path: a safetensors file, or one written by `torch.save`: a state dict, or a checkpoint that holds one.

    Returns:
        Tensors on the CPU, in the file's order; those of optimizers are left out.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise BadFileError(f"{path} is not a file")
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise BadFileError(f"{path} cannot be read: {error.strerror or error}") from None
    if size > SIZE_CAP:
        raise BadFileError(f"{path} has {size:,} bytes; allowed: up to {SIZE_CAP:,}")
    if not size:
        raise BadFileError(f"{path} is empty")
    if start[8:9] == b"{":
        return _read_safetensors(path, int.from_bytes(start[:8], "little"))
    if start[:4] == b"PK\x03\x04":
        _check_archive(path, size)
    return _read_torch(path, size)


def _read_safetensors(path: Path, header: int) -> dict[str, Tensor]:
    if header > HEADER_CAP:
        raise BadFileError(f"{path} announces a header of {header:,} bytes; allowed: up to {HEADER_CAP:,}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except Exception as error:  # the reader of a damaged file raises nearly anything
        raise BadFileError(f"{path} cannot be read as safetensors: {_first_line(error)}") from None


def _check_archive(path: Path, size: int) -> None:
    """Refuse archives that `torch.save` does not write and that could unpack to more than they hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RecursionError) as error:
        raise BadFileError(f"{path} is a damaged archive: {_first_line(error)}") from None
    if len(members) > MEMBERS_CAP:
        raise BadFileError(f"{path} has {len(members):,} members; allowed: up to {MEMBERS_CAP:,}")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
            raise BadFileError(f"{path}: {member.filename!r} is compressed, which torch.save never does")
        if member.filename.endswith("data.pkl") and member.file_size > HEADER_CAP:
            raise BadFileError(f"{path}: {member.filename!r} has {member.file_size:,} bytes; allowed: {HEADER_CAP:,}")
    if (total := sum(member.file_size for member in members)) > size:
        raise BadFileError(f"{path} announces {total:,} bytes in a file of {size:,}: members overlap")


def _read_torch(path: Path, size: int) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old formats, which are read all the same
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise BadFileError(f"{path} {_why_not(error)}") from None
    tensors = dict(_walk(path, content))
    if not tensors:
        raise BadFileError(f"{path} holds no tensor of a network, but a {type(content).__name__}")
    _check_memory(path, tensors, size)
    return tensors


def _why_not(error: Exception) -> str:
    text = str(error)
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        return (
            f"holds more than numbers ({named[1][:80]}), and is not loaded because that could run code. Save the state "
            'dict alone: torch.save(model.state_dict(), "weights.pt")'
        )
    if "alloc" in text:
        return "asks for more memory than there is, which no file of its size needs"
    # Torch explains `weights_only` at length; what it stumbled over is all that helps here.
    why = re.search(r"Unsupported operand \d+", text)
    told = why[0] if why else _first_line(error)[:100]
    return f"is neither safetensors nor a file of torch.save with nothing but numbers ({told})"


def _walk(path: Path, content: object) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested mappings and sequences, once: a file may nest deeply, or hold itself."""
    seen: set[int] = set()
    found = 0
    stack: list[tuple[tuple[str, ...], object]] = [((), content)]
    while stack:
        keys, value = stack.pop()
        if isinstance(value, Tensor):
            found += 1
            if found > TENSORS_CAP:
                raise BadFileError(f"{path} holds more than {TENSORS_CAP:,} tensors")
            yield ".".join(keys) or "tensor", value
            continue
        if not isinstance(value, Mapping | list | tuple) or id(value) in seen or len(keys) > 32:
            continue
        seen.add(id(value))
        items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in reversed([(str(key)[:300], item) for key, item in items]):
            if not any(part in key.lower() for part in NOT_WEIGHTS):
                stack.append((keys if not keys and key in WRAPPERS else (*keys, key), item))


def _check_memory(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """A file cannot hold more numbers than bytes: what claims more was made up by strides or constructors."""
    storages: dict[int, int] = {}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            continue
        held = tensor.untyped_storage().nbytes()
        storages[tensor.untyped_storage().data_ptr()] = held
        if tensor.numel() * tensor.itemsize > held:
            raise BadFileError(
                f"{path}: tensor {name[:80]!r} claims shape {tuple(tensor.shape)}, {tensor.numel():,} numbers, and "
                f"stores {held:,} bytes"
            )
    if (total := sum(storages.values())) > size:
        raise BadFileError(f"{path} has {size:,} bytes and claims tensors of {total:,}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
