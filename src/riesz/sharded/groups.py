"""Rank groups: the ranks that hold parts of the same columns, the process group of their collectives, and the watch by
which ranks that wait for each other in different collectives notice it, which no collective can tell them.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from riesz.private_torch import default_store

PATIENCE = timedelta(seconds=5)
"""How long a rank waits before it asks."""

Describe = Callable[[], str]
"""Describes the work of this rank, should ranks disagree."""


class DisagreementError(RuntimeError):
    """The ranks of one collective have different work."""


def disagreement(describe: Describe) -> DisagreementError:
    return DisagreementError(
        "expected the same work on all ranks, got different ones: some parameter has a gradient on one rank and none "
        "on another, or another shape, dtype or placement; the metric differs; or it is enabled or recording on some "
        "ranks only. "
        f"On rank {dist.get_rank()}: {describe()}"
    )


def digest(work: object) -> int:
    """A number of 63 bits that differs, very likely, where `work` does."""
    return int.from_bytes(hashlib.blake2b(repr(work).encode(), digest_size=8).digest(), "little") >> 1


class Watch:
    """What the ranks of one mesh work at, by the store of the process groups.

    A rank that has waited for some seconds writes what it works at, and reads what the first that did so had written.
    Ranks at the same number of steps whose work differs all raise. A step in which nobody waits that long writes and
    reads nothing. What ranks agreed on is deleted: a store may outlive its process groups, as that of torchrun does.

    Args:
        name: of the mesh, the same on all of its ranks.
        size: how many ranks it has.
    """

    def __init__(self, name: str, size: int):
        self._name, self._size = f"riesz/{name}", size
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
        asked = False
        while not self._ended(pending, describe):
            self._compare(describe)
            asked = True
        if asked and (store := default_store()) is not None:
            with contextlib.suppress(dist.DistError):  # the rank of the store may have ended since
                store.delete_key(self._key)

    def _ended(self, pending: Any, describe: Describe) -> bool:
        """Wait for a collective for some seconds; whether it ended. Raises if it failed."""
        try:
            pending.wait(PATIENCE)
            return True
        except RuntimeError:
            if not pending.is_completed():
                return False
        try:
            pending.wait()  # it may have ended just after the time was up
            return True
        except RuntimeError:
            # Perhaps a rank has raised and ended, and with it maybe the store.
            with contextlib.suppress(dist.DistError):
                self._compare(describe)
            raise

    def agree(self, work: int, describe: Describe) -> None:
        """Raise on all ranks of the mesh if they do not all come here with the same work.

        No collective: another rank may be in one of the same process group, and the two would break each other.
        """
        if dist.get_backend() == "fake" or default_store() is None:  # no other ranks, or no way to ask them
            return
        self.begin(work)
        try:
            self._agree(describe)
        finally:
            self.end()

    def _agree(self, describe: Describe) -> None:
        store, key = default_store(), f"{self._key}/agree"
        if int(store.compare_set(f"{key}/work", "", str(self._work))) != self._work:
            store.set(f"{key}/differs", "")
        if store.add(f"{key}/came", 1) == self._size:
            store.set(f"{key}/all", "")
        ends = time.monotonic() + store.timeout.total_seconds()
        while True:
            try:
                store.wait([f"{key}/all"], PATIENCE)
                break
            except RuntimeError:  # the time is up, in the words of each store
                self._compare(describe)
                if time.monotonic() > ends:
                    raise
        differs = store.check([f"{key}/differs"])
        if store.add(f"{key}/left", 1) == self._size:
            for name in (self._key, *(f"{key}/{part}" for part in ("work", "differs", "came", "all", "left"))):
                store.delete_key(name)
        if differs:
            raise disagreement(describe)

    @property
    def _key(self) -> str:
        return f"{self._name}/{self._done}"

    def _compare(self, describe: Describe) -> None:
        if (store := default_store()) is None:
            return
        key = self._key
        if int(store.compare_set(key, "", str(self._work))) != self._work:
            store.set(f"{key}/differs", "")
        if store.check([f"{key}/differs"]):
            raise disagreement(describe)


@dataclass(frozen=True, eq=False)
class RankGroup:
    """The ranks of a mesh that differ from this one in some of its dims only."""

    process_group: Any
    rank: int  # of this process within the group
    coordinates: tuple[tuple[int, ...], ...]  # by rank of the group, those on the dims that differ
    device: torch.device  # of the group's collectives; gradients may be elsewhere (CPU offload)
    watch: Watch  # of the mesh

    @property
    def size(self) -> int:
        return len(self.coordinates)

    def wait(self, pending: Any, describe: Describe) -> None:
        """Wait for a collective of this group."""
        self.watch.wait(pending, self.device.type == "cpu", describe)


_known: dict[object, tuple[object, object, Any]] = {}
"""Rank groups, process groups and watches. Each with the world it belongs to, for what belongs to a destroyed world is
made again, and with the process groups whose ids are in its key."""


def _kept(key: object, owners: object, make: Callable[[], Any]) -> Any:
    world: object = dist.group.WORLD
    if (known := _known.get(key)) is None or known[0] is not world:
        known = _known[key] = (world, owners, make())
    return known[2]


def rank_group(mesh: DeviceMesh, dims: tuple[int, ...]) -> RankGroup:
    """The group of this rank on these mesh dims. All of its ranks make the first call, or none does."""
    # Not by the mesh: meshes are equal that have the same ranks, in whichever process groups.
    groups = [mesh.get_group(dim) for dim in range(mesh.ndim)]
    group: RankGroup = _kept((dims, *map(id, groups)), groups, lambda: _rank_group(mesh, dims))
    return group


def _rank_group(mesh: DeviceMesh, dims: tuple[int, ...]) -> RankGroup:
    here = mesh.get_coordinate()
    assert here is not None  # ranks outside the mesh hold no part of the tensor and never ask
    members: dict[int, tuple[int, ...]] = {}
    for varied in torch.cartesian_prod(*(torch.arange(mesh.size(dim)) for dim in dims)).view(-1, len(dims)).tolist():
        coordinate = list(here)
        for dim, value in zip(dims, varied, strict=True):
            coordinate[dim] = value
        members[int(mesh.mesh[tuple(coordinate)])] = tuple(varied)
    process_group = _process_group(mesh, dims, tuple(sorted(members)))
    ranks = dist.get_process_group_ranks(process_group)
    device = torch.device(mesh.device_type)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    coordinates = tuple(members[rank] for rank in ranks)
    return RankGroup(process_group, ranks.index(dist.get_rank()), coordinates, device, watch_of(mesh))


def watch_of(mesh: DeviceMesh) -> Watch:
    """The watch of the ranks of a mesh."""
    ranks = tuple(mesh.mesh.flatten().tolist())
    # The process groups of a mesh of several dims have different names on different ranks.
    name = mesh.get_group(0).group_name if mesh.ndim == 1 else ""
    watch: Watch = _kept(("watch", ranks, name), None, lambda: Watch(str(digest((ranks, name))), len(ranks)))
    return watch


def _process_group(mesh: DeviceMesh, dims: tuple[int, ...], ranks: tuple[int, ...]) -> Any:
    """The process group of these ranks: the mesh's own, the world's, or a new one."""
    if len(dims) == 1:
        return mesh.get_group(dims[0])
    world: Any = dist.group.WORLD
    if ranks == tuple(dist.get_process_group_ranks(world)):
        return world
    # Only its members take part: ranks of other pipeline stages may never call this.
    return _kept(("group", ranks), None, lambda: dist.new_group(list(ranks), use_local_synchronization=True))
