"""The registry of backends: which are available, which one "auto" picks, and why not the others.

What a backend must offer:
- `missing_reason()`: None, or why it is not available on this machine;
- `refusal_reason(gradient)`: None, or why it cannot serve this tensor;
- `direct_(columns, metric)`: apply the metric in place to every column view, none of which it refused.
The metric's numbers may be 0-d tensors; a backend must not keep them from one call to the next.
And what it may offer:
- `fast_path(gradients, columns)`: None, or a function `(gradients, metric)` that directs a list like this one again
  without opening it and returns the addresses it wrote; none, with nothing touched, if the list differs. It is called
  with autograd on, so it must not write by operations that autograd records;
- `shard_kernels`: a class of `shards.ShardKernels`, for gradients whose columns are on several ranks;
- `note()`: None, or what a user should know of it although it is available.

A new backend calls `register`. "auto" takes the first in `auto_order` that does not refuse and is available,
and logs once where one is missing that would serve; an explicit choice that is not available raises.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riesz._table import table
from riesz.backends.shards import ShardKernels
from riesz.layout.axis import ColumnView
from riesz.metrics import Operator

FastPath = Callable[[Sequence[Tensor | None], Operator], Sequence[int]]


@dataclass(frozen=True)
class Backend:
    """How to compute a metric gradient in place; the top of this module says what its functions do."""

    name: str  # what users call it
    summary: str  # one line on what it is
    auto_order: int | None  # "auto" tries lower numbers first; None is never picked by "auto"
    missing_reason: Callable[[], str | None]
    refusal_reason: Callable[[Tensor], str | None]
    direct_: Callable[[Sequence[ColumnView], Operator], None]
    fast_path: Callable[[Sequence[Tensor], Sequence[ColumnView]], FastPath | None] | None = None
    shard_kernels: type[ShardKernels] | None = None
    note: Callable[[], str | None] = lambda: None


_backends: dict[str, Backend] = {}
_announced: set[str] = set()


def register(backend: Backend) -> None:
    """Make a backend known; a second one of the same name replaces the first."""
    _backends[backend.name] = backend


def registered() -> tuple[Backend, ...]:
    return (*_backends.values(),)


def check_name(name: object) -> None:
    """Refuse a name that is unknown or not available."""
    allowed = ["auto", *_backends]
    if not isinstance(name, str):
        raise TypeError(f"backend: expected one of {allowed}, got {name!r} of type {type(name).__name__}")
    if name not in allowed:
        raise ValueError(f"backend: expected one of {allowed}, got {name!r}")
    if name != "auto" and (reason := _backends[name].missing_reason()) is not None:
        raise RuntimeError(f"backend {name!r} is not available: {reason}")


def choose(name: str, gradient: Tensor) -> Backend:
    """The backend that will serve this gradient under the name the user chose."""
    if name != "auto":
        backend = _backends[name]
        if (reason := backend.refusal_reason(gradient)) is not None:
            raise ValueError(f"backend {name!r} cannot serve a gradient of shape {tuple(gradient.shape)}: {reason}")
        return backend
    reasons = []
    for backend in _in_auto_order():
        # A backend that would not serve it is not asked whether it is here, which may mean to look for a library.
        reason = backend.refusal_reason(gradient)
        if reason is None:
            reason = backend.missing_reason()
            if reason is None:
                return backend
            announce(f"backend {backend.name!r} is missing, a slower one serves: {reason}")
        reasons.append(f"{backend.name}: {reason}")
    raise ValueError(
        f"no backend serves a gradient of shape {tuple(gradient.shape)} ({type(gradient).__name__}, {gradient.dtype}, "
        f"{gradient.device}): " + "; ".join(reasons)
    )


def announce(message: str) -> None:
    """Log a message once.

    Logged, not warned: a strict filter for warnings must not turn a slower backend into an error. Not while a step is
    traced: a compiler would break its graph there, or refuse.
    """
    if message not in _announced and not torch.compiler.is_compiling():
        _announced.add(message)
        logging.getLogger("riesz").warning("%s", message)


def _in_auto_order() -> list[Backend]:
    ordered = [(b.auto_order, b.name, b) for b in _backends.values() if b.auto_order is not None]
    return [backend for _, _, backend in sorted(ordered, key=lambda row: row[:2])]


@dataclass(frozen=True)
class Status:
    """One backend in `riesz.backends()`."""

    name: str
    summary: str
    available: bool  # whether it runs on this machine
    picked: bool  # whether "auto" prefers it among those available here
    reason: str  # why it is not available or not picked, and what its note says; empty for the one that is


class Statuses(tuple[Status, ...]):
    """Status records that print as a table."""

    def __str__(self) -> str:
        states = ("picked" if s.picked else "available" if s.available else "missing" for s in self)
        rows = [(s.name, state, s.summary, s.reason) for s, state in zip(self, states, strict=True)]
        return table(("backend", "state", "what", "why not"), rows)

    __repr__ = __str__


def backends() -> Statuses:
    """What is available, what "auto" picks, and why not the others.

    Example:
        >>> import riesz
        >>> [status.name for status in riesz.backends() if status.available]  # doctest: +ELLIPSIS
        [...'eager'...]
    """
    ordered = _in_auto_order()
    first = next((b.name for b in ordered if b.missing_reason() is None), None)
    statuses = []
    for backend in [*ordered, *(b for b in _backends.values() if b.auto_order is None)]:
        missing = backend.missing_reason()
        picked = backend.name == first
        why = missing or ("" if picked else "only on request" if backend.auto_order is None else f"{first} comes first")
        reasons = "; ".join(filter(None, (why, backend.note())))
        statuses.append(Status(backend.name, backend.summary, missing is None, picked, reasons))
    return Statuses(statuses)
