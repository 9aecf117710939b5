"""Ranks that wait for each other in different collectives, which no collective can tell them.

A rank that has waited for some seconds writes what it works at to the store of the process group, and reads what the
first that did so had written. Ranks at the same number of steps whose work differs all raise. A step in which nobody
waits that long writes and reads nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

PATIENCE = timedelta(seconds=5)
"""How long a rank waits before it asks."""

Describe = Callable[[], str]
"""Describes the work of this rank, should ranks disagree."""


class DisagreementError(RuntimeError):
    """The ranks of one collective have different work."""


def disagreement(describe: Describe) -> DisagreementError:
    return DisagreementError(
        "expected the same work on all ranks, got different ones: some parameter has a gradient on one rank and none "
        "on another, the metric differs, or it is enabled or recording on some ranks only. "
        f"On rank {dist.get_rank()}: {describe()}"
    )


def digest(work: object) -> int:
    """A number of 63 bits that differs, very likely, where `work` does."""
    return int.from_bytes(hashlib.blake2b(repr(work).encode(), digest_size=8).digest(), "little") >> 1


class Watch:
    """What the ranks of one mesh work at.

    Args:
        ranks: of the mesh.
    """

    def __init__(self, ranks: tuple[int, ...]):
        self._name = f"riesz/{digest(ranks)}"
        self._done = 0
        self._work = 0

    def begin(self, work: int) -> None:
        """Begin work that all ranks of the mesh begin, after as many others as on this one."""
        self._work = work

    def end(self) -> None:
        self._done += 1

    def wait(self, pending: Any, on_cpu: bool, describe: Describe) -> None:
        """Wait for a collective; raises if a rank that waits too has other work."""
        if not on_cpu:  # an accelerator's collectives are not waited for here, and their time limits end the process
            pending.wait()
            return
        while True:
            try:
                pending.wait(PATIENCE)
                return
            except RuntimeError:
                if not pending.is_completed():
                    self._compare(describe)
                    continue
                # It failed: perhaps a rank has raised and ended, and with it maybe the store.
                with contextlib.suppress(dist.DistError):
                    self._compare(describe)
                raise

    def _compare(self, describe: Describe) -> None:
        from torch.distributed.distributed_c10d import _get_default_store

        store, key = _get_default_store(), f"{self._name}/{self._done}"
        if int(store.compare_set(key, "", str(self._work))) != self._work:
            store.set(f"{key}/differs", "")
        if store.check([f"{key}/differs"]):
            raise disagreement(describe)
