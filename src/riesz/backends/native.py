"""The compiled library of csrc/, loaded once: the C interface of csrc/riesz.h seen from Python."""

import ctypes
import os
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

INTERFACE = 3
"""What `riesz_interface` must return: the version of the structs below."""

LIBRARY = Path(__file__).with_name("libriesz.so")

DONE, OVERLAP, NO_MEMORY, BAD_ARGUMENT = 0, 1, 2, 3

DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class CJob(ctypes.Structure):
    """One gradient as contiguous columns."""

    _fields_ = [(name, c_int64) for name in ("outer", "length", "inner", "blocks", "dtype")]


class CMetric(ctypes.Structure):
    """`A f = scale * G f + blend * f`."""

    _fields_ = [
        *((name, c_int64) for name in ("kind", "riemann")),
        *((name, c_double) for name in ("strength", "scale", "blend")),
    ]


class CShard(ctypes.Structure):
    """One run of rows of a gradient whose columns are on several ranks; see csrc/riesz.h."""

    _fields_ = [
        *((name, c_int64) for name in ("rows", "columns", "stride", "dtype", "terms", "exact", "inexact_dtype")),
        *((name, c_int64) for name in ("lead", "exact_offset", "inexact_offset")),
        ("table", c_void_p),
        *((name, c_int64) for name in ("partners", "solves_alone")),
        *((name, c_void_p) for name in ("coupling", "offsets", "alone")),
        ("own_offset", c_int64),
        ("metric", CMetric),
    ]


@dataclass(frozen=True)
class Native:
    """The library and the thread pool it runs on."""

    library: ctypes.CDLL
    direct: Any  # the functions of csrc/riesz.h
    shard_sums: Any
    shard_walk: Any
    parallel_for: Any  # torch's own parallel loop

    @property
    def instructions(self) -> str:
        """The instruction set the kernels run on."""
        name: bytes = self.library.riesz_instructions()
        return name.decode()


@lru_cache(maxsize=1)
def load() -> Native | str:
    """The library, or why it is not available."""
    if not LIBRARY.exists():
        return "its library was not built, for lack of a C++17 compiler at install time; install again with one"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.riesz_interface.restype = ctypes.c_int32
        interface = library.riesz_interface()
    except (OSError, AttributeError) as error:
        return f"its library {LIBRARY.name} does not load: {error}"
    if interface != INTERFACE:
        return f"its library {LIBRARY.name}: expected interface {INTERFACE}, got {interface}; reinstall"
    parallel_for = _torch_parallel_for()
    if parallel_for is None:
        return f"torch {torch.__version__} offers no torch_parallel_for to run on; torch 2.10 or newer does"
    library.riesz_instructions.restype = ctypes.c_char_p
    library.riesz_use_instructions.argtypes = [ctypes.c_char_p]
    direct, sums, walk = library.riesz_direct, library.riesz_shard_sums, library.riesz_shard_walk
    direct.argtypes = [c_void_p, c_void_p, c_int64, ctypes.POINTER(CMetric), c_void_p, c_int64]
    sums.argtypes = walk.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_int64]
    direct.restype = sums.restype = walk.restype = ctypes.c_int32
    return Native(library, direct, sums, walk, parallel_for)


def check(status: int) -> None:
    """Raise unless a kernel did its work."""
    if status == NO_MEMORY:
        raise MemoryError("riesz: no memory for the scratch space of the cpu backend")
    if status != DONE:
        raise RuntimeError(f"riesz: the cpu backend refused its arguments (code {status})")


def _torch_parallel_for() -> Any:
    """The address of torch's parallel loop, from the library that torch itself has already loaded."""
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            try:
                return ctypes.cast(ctypes.CDLL(str(folder / name)).torch_parallel_for, c_void_p)
            except (OSError, AttributeError):
                return None
    return None


_forked = False


def threads() -> int:
    """How many threads to run on: torch's, but one in a forked child, where the pool of the parent is gone."""
    return 1 if _forked else torch.get_num_threads()


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
