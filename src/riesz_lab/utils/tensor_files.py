"""Reading checkpoints from untrusted sources.

Requirements it meets:
- nothing in a file is executed: safetensors holds numbers only, and torch files go through `weights_only=True`;
- a small file cannot ask for much memory or time: archives must be stored uncompressed, as `torch.save` writes them,
  tensors may not be larger than the file they came from, views counted in full, and torch files are read by a child
  process under limits first;
- names are printable: no key can send escape sequences to a terminal;
- every failure is a `BadFileError` that names the file.
"""

import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from riesz_lab.errors import BadFileError, first_line, printable
from riesz_lab.utils import sandbox

SIZE_CAP = 16 * 2**30
"""Bytes of a file; larger ones are refused before they are opened."""
HEADER_CAP = 64 * 2**20
"""Bytes of the description of the tensors: safetensors' header, the pickle inside a torch archive."""
MEMBERS_CAP = 200_000
TENSORS_CAP = 200_000
VIEWS_CAP = 4
"""Bytes of all tensors for each byte of the file, where tensors share their numbers."""
TORCH_STARTS = (b"PK\x03\x04", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9")
"""How files of torch.save begin: archives since 1.6, and the number that begins older ones."""
KNOWN_STARTS = {
    b"\x89PNG": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"GIF8": "a GIF image", b"%PDF": "a PDF",
    b"\x1f\x8b": "a gzip archive", b"\x89HDF": "an HDF5 file", b"\x93NUM": "a NumPy array", b"GGUF": "a GGUF file",
    b"\x80": "a pickle, which torch.save did not write", b"\x7fELF": "a program", b"version https://git-lfs":
    "a Git LFS pointer, which stands for a file that was not downloaded",
}  # fmt: skip

NOT_WEIGHTS = ("optim", "momentum_buffer", "exp_avg", "scheduler")
"""Tensors below keys that contain these are the optimizer's, not the network's."""
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "weights", "net")
"""Keys above the weights that carry no information; they are left out of names."""


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """All tensors of a network by name, on the CPU, in the file's order; those of optimizers are left out.

    The file is safetensors, or written by `torch.save`: a state dict, or a checkpoint that holds one.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise BadFileError(f"expected a file, got {path}")
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise BadFileError(f"{path} cannot be read: {error.strerror or error}") from None
    if size > SIZE_CAP:
        raise BadFileError(f"expected up to {SIZE_CAP:,} bytes, got {size:,}: {path}")
    if not size:
        raise BadFileError(f"{path} is empty")
    if start[8:9] == b"{":
        return _read_safetensors(path, int.from_bytes(start[:8], "little"))
    if not start.startswith(TORCH_STARTS):
        raise BadFileError(f"{path} is neither safetensors nor a file of torch.save: it is {_kind(start)}")
    if start.startswith(TORCH_STARTS[0]):
        _check_archive(path, size)
    sandbox.check(_read_torch, path, size)
    return _read_torch(path, size)


def _kind(start: bytes) -> str:
    """What a file is, by its first bytes."""
    for known, kind in KNOWN_STARTS.items():
        if start.startswith(known):
            return kind
    try:
        # The last character may be cut.
        text = start.decode(errors="strict" if len(start) < 64 else "ignore")
    except UnicodeDecodeError:
        text = ""
    if len(text.encode()) > len(start) - 4 and all(char.isprintable() or char.isspace() for char in text):
        return f"text that begins {text[:30]!r}"
    return f"of an unknown kind, with the first bytes {start[:8].hex(' ')}"


def _read_safetensors(path: Path, header: int) -> dict[str, Tensor]:
    if header > HEADER_CAP:
        raise BadFileError(f"expected a header of up to {HEADER_CAP:,} bytes, got {header:,}: {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {printable(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except Exception as error:  # safetensors raises many types on damaged files
        raise BadFileError(f"{path} cannot be read as safetensors: {first_line(error)}") from None


def _check_archive(path: Path, size: int) -> None:
    """Refuse archives that `torch.save` does not write, which could unpack to more than their size."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RecursionError) as error:
        raise BadFileError(f"{path} is a damaged archive: {first_line(error)}") from None
    if len(members) > MEMBERS_CAP:
        raise BadFileError(f"expected up to {MEMBERS_CAP:,} members, got {len(members):,}: {path}")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
            raise BadFileError(f"{path}: {member.filename!r} is compressed, which torch.save never does")
        if member.filename.endswith("data.pkl") and member.file_size > HEADER_CAP:
            got = f"{member.file_size:,}: {path}"
            raise BadFileError(f"expected up to {HEADER_CAP:,} bytes in {member.filename!r}, got {got}")
    if (total := sum(member.file_size for member in members)) > size:
        raise BadFileError(f"{path} announces {total:,} bytes in a file of {size:,}: members overlap")


def _read_torch(path: Path, size: int) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats, which are read nevertheless
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise BadFileError(f"{path} {_describe(error)}") from None
    tensors = {printable(name): tensor for name, tensor in _walk(path, content)}
    if not tensors:
        raise BadFileError(f"expected a tensor of a network, got a {type(content).__name__}: {path}")
    _check_memory(path, tensors, size)
    return tensors


def _describe(error: Exception) -> str:
    text = str(error)
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        return (
            f"holds more than numbers ({named[1][:80]}), and is not loaded because that could run code. Save the state "
            'dict alone: torch.save(model.state_dict(), "weights.pt")'
        )
    if "alloc" in text or isinstance(error, MemoryError):
        return "asks for more memory than there is; no file of its size needs so much"
    # Torch explains `weights_only` at length; the operand alone helps here.
    operand = re.search(r"Unsupported operand \d+", text)
    reason = operand[0] if operand else first_line(error)[:100]
    return f"is neither safetensors nor a file of torch.save with nothing but numbers ({reason})"


def _walk(path: Path, content: object) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested mappings and sequences, once: a file may nest deeply, or contain itself."""
    seen: set[int] = set()
    count = 0
    stack: list[tuple[tuple[str, ...], object]] = [((), content)]
    while stack:
        keys, value = stack.pop()
        if isinstance(value, Tensor):
            count += 1
            if count > TENSORS_CAP:
                raise BadFileError(f"expected up to {TENSORS_CAP:,} tensors, got more: {path}")
            yield ".".join(keys) or "tensor", value
            continue
        if not isinstance(value, Mapping | list | tuple) or id(value) in seen or len(keys) > 32:
            continue
        seen.add(id(value))
        items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in reversed([(_key(path, key), item) for key, item in items]):
            if not any(part in key.lower() for part in NOT_WEIGHTS):
                stack.append((keys if not keys and key in WRAPPERS else (*keys, key), item))


def _key(path: Path, key: object) -> str:
    # A tuple is not printed even in the error: its text may be longer than memory.
    if isinstance(key, str):
        return key[:300]
    if isinstance(key, int) and abs(key) < 2**63:
        return str(int(key))
    raise BadFileError(f"expected names as keys, got a {type(key).__name__}: {path}")


def _check_memory(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """A file cannot hold more numbers than bytes; tensors that claim more come from strides or constructors."""
    storages: dict[int, int] = {}
    expanded = 0
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            continue
        stored = tensor.untyped_storage().nbytes()
        storages[tensor.untyped_storage().data_ptr()] = stored
        expanded += tensor.numel() * tensor.itemsize
        if tensor.numel() * tensor.itemsize > stored:
            raise BadFileError(
                f"{path}: tensor {name[:80]!r} claims shape {tuple(tensor.shape)}, {tensor.numel():,} numbers, and "
                f"stores {stored:,} bytes"
            )
    if (total := sum(storages.values())) > size:
        raise BadFileError(f"{path} has {size:,} bytes and claims tensors of {total:,}")
    if expanded > VIEWS_CAP * size:
        raise BadFileError(f"{path} has {size:,} bytes and shares them among tensors of {expanded:,} in all")
