"""Reading the CIFAR-10 python release, which is pickles, without running anything a pickle asks for.

Only the opcodes that such a file needs are known: containers, strings, small numbers, and the calls that rebuild an
array. The names those calls may use stand for inert records defined here, so that not even NumPy sees the file's values
before they are checked.
"""

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from riesz_lab.errors import BadFileError

CAP = 40 * 2**20  # a batch of the release has 31 MB

# fmt: off
_OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "NONE", "NEWTRUE", "NEWFALSE",
    "BININT", "BININT1", "BININT2", "INT", "LONG1",
    "BINSTRING", "SHORT_BINSTRING", "STRING", "BINBYTES", "SHORT_BINBYTES", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
)
# fmt: on


class _Dtype:
    """Stands for `numpy.dtype`."""

    def __init__(self, code: object = None, *_: object):
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands for `numpy.ndarray`."""

    def __init__(self, *_: object):
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


def _latin1(text: object, encoding: object = "latin1") -> bytes:
    # Python 3 writes bytes so in protocol 2.
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("only latin1 texts stand for bytes")
    return text.encode("latin1")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


# The unpickler in Python: the one in C allocates as much memory as a file asks for.
class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar = {
        opcode: pickle._Unpickler.dispatch[opcode] for opcode in (getattr(pickle, name)[0] for name in _OPCODES)
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def load_batch(path: Path) -> tuple[Tensor, list[int]]:
    """Rows of 3072 bytes and their labels."""
    if path.stat().st_size > CAP:
        raise BadFileError(f"{path} is larger than {CAP} bytes: not a batch of CIFAR-10")
    try:
        batch = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # damaged pickles raise anything; nothing of theirs has run
        reason = f"opcode {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise BadFileError(f"{path} is refused: not a plain pickle of arrays and containers ({reason[:200]})") from None
    return _rows(path, batch)


def _rows(path: Path, batch: object) -> tuple[Tensor, list[int]]:
    if not isinstance(batch, dict):
        raise BadFileError(f"{path}: expected a batch of CIFAR-10, got {type(batch).__name__}")
    named = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    array, labels = named.get("data"), named.get("labels")
    state = array.state if isinstance(array, _Array) else None
    if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[4], bytes) and state[3] in (False, 0)):
        raise BadFileError(f"{path}: 'data': expected an array of bytes")
    _, shape, dtype, _, values = state
    rows = len(values) // 3072
    if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", b"u1") or shape != (rows, 3072) or not rows:
        raise BadFileError(f"{path}: 'data': expected uint8 rows of 3072")
    if len(values) != rows * 3072:
        raise BadFileError(f"{path}: 'data': expected {rows} rows of 3072 bytes, got {len(values)} bytes")
    if not isinstance(labels, list) or len(labels) != rows or not all(type(n) is int and 0 <= n <= 9 for n in labels):
        raise BadFileError(f"{path}: 'labels': expected {rows} numbers from 0 to 9")
    return torch.frombuffer(bytearray(values), dtype=torch.uint8).reshape(rows, 3072), labels
