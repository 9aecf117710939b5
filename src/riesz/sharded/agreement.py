"""Groups of ranks, and how ranks whose work differs notice it: all of them raise, and none waits for ever.

| check                    | when                                         | by                                |
| ------------------------ | -------------------------------------------- | --------------------------------- |
| `DeadlockDetector.agree` | at the first step, when a switch changes     | the store of the process groups   |
| `Work`, a token          | at every step, before what arrived is used   | 8 to 24 bytes in each collective  |
| `DeadlockDetector.wait`  | when a collective takes seconds              | the store, by the ranks that wait |

Nothing here knows what is computed.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from riesz.metrics import Operator
from riesz.private_torch import default_store

TIMEOUT_S = 5.0
"""How long a rank waits before it asks what the others do."""


class DisagreementError(RuntimeError):
    """The ranks of one collective have different work."""


def disagreement(describe: Callable[[], str]) -> DisagreementError:
    return DisagreementError(
        "expected the same work on all ranks, got different ones: some parameter has a gradient on one rank and none "
        "on another, or another shape, dtype or placement; the metric differs; or it is enabled or recording on some "
        "ranks only. "
        f"On rank {dist.get_rank()}: {describe()}"
    )


def digest(work: object) -> int:
    """A number of 63 bits that differs, very likely, where `work` does."""
    return int.from_bytes(hashlib.blake2b(repr(work).encode(), digest_size=8).digest(), "little") >> 1


def tunable_numbers(metrics: Iterable[Operator]) -> list[float]:
    return [float(getattr(metric, name)) for metric in metrics for name in metric.tunable_fields]


def describe_metrics(metrics: Iterable[Operator]) -> str:
    """The settings of each kind, sorted."""
    described = set()
    for metric in metrics:
        # The hook's metrics hold tensors, which print as such.
        values = {field.name: getattr(metric, field.name) for field in metric.settings()}
        values |= {name: float(values[name]) for name in metric.tunable_fields}
        described.add(f"{metric.kind_name()}({', '.join(f'{name}={value}' for name, value in values.items())})")
    return ", ".join(sorted(described))


class Work:
    """What ranks must have in common in one collective. Its token differs where the work does.

    Args:
        layout: what never changes here; its repr is compared.
        metrics: operators whose numbers are compared too; they may change from step to step.
        title: what it is, for an error; the metrics if there is none.
        absent: names of the parameters without a gradient, for an error.
    """

    def __init__(
        self, layout: object, metrics: Iterable[Operator] = (), title: str = "", absent: Iterable[str] = ()
    ) -> None:
        self.token = 0
        self._layout = digest(layout)
        self._metrics = list({id(metric): metric for metric in metrics}.values())
        self._numbers: list[float] | None = None
        self._title, self._absent = title, absent

    def update(self) -> bool:
        """Read the metrics' numbers; whether they are not those of the step before."""
        numbers = tunable_numbers(self._metrics)
        if changed := numbers != self._numbers:
            self._numbers, self.token = numbers, digest((self._layout, numbers))
        return changed

    def describe(self) -> str:
        title = self._title or describe_metrics(self._metrics)
        return f"{title}; without a gradient: {', '.join(sorted(self._absent)) or 'none'}"


# -- tokens in an all-reduce, which adds them up -----------------------------------------------------------------------


def agreement_header(token: int, ranks: int) -> tuple[int, int, int]:
    """Three integers whose sums over all ranks tell whether all tokens are equal.

    They are two digits d0, d1 of the token, the second with a count of one below it, and d0^2 + d1^2. By Cauchy and
    Schwarz `W sum(d^2) >= sum(d)^2`, with equality only where all d are equal. Digits have so few bits that every sum
    is an integer below 2^53, which float64 holds exactly in any order of adding.
    """
    bits, count_bits = _digit_bits(ranks)
    low, high = token & (2**bits - 1), (token >> bits) & (2**bits - 1)
    return low, (high << count_bits) + 1, low**2 + high**2


def totals_agree(totals: Sequence[float], ranks: int) -> bool:
    """Whether these are the sums of `agreement_header` over equal tokens; in integers, where nothing is rounded."""
    low, packed, squares = (int(total) for total in totals)
    _, count_bits = _digit_bits(ranks)
    high, count = packed >> count_bits, packed & (2**count_bits - 1)
    return bool(count * squares == low**2 + high**2)


def _digit_bits(ranks: int) -> tuple[int, int]:
    """Bits of a digit and of a count of ranks: sums of squares, and of digits above counts, stay below 2^53."""
    count_bits = ranks.bit_length()
    return max(1, min((52 - count_bits) // 2, 53 - 2 * count_bits)), count_bits


# -- ranks that wait for each other in different collectives -----------------------------------------------------------


class DeadlockDetector:
    """Notices that ranks of one mesh wait for each other in different collectives.

    A rank that has waited for some seconds writes its work to the store, and reads what the first such rank has
    written. Ranks at the same number of steps whose work differs all raise. A step in which nobody waits that long
    writes and reads nothing. What ranks agreed on is deleted: a store may outlive its process groups, as that of
    torchrun does.

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

    def wait(self, pending: Any, describe: Callable[[], str]) -> None:
        """Wait for a collective on the CPU; raises if it failed, or if a rank that waits too has other work."""
        asked = False
        while not self._ended(pending, describe):
            self._compare(describe)
            asked = True
        if asked and (store := default_store()) is not None:
            with contextlib.suppress(dist.DistError):  # the rank of the store may have ended since
                store.delete_key(self._key)

    def _ended(self, pending: Any, describe: Callable[[], str]) -> bool:
        """Wait for a collective for some seconds; whether it ended. Raises if it failed."""
        try:
            pending.wait(timedelta(seconds=TIMEOUT_S))
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

    def agree(self, work: int, describe: Callable[[], str]) -> None:
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

    def _agree(self, describe: Callable[[], str]) -> None:
        store, key = default_store(), f"{self._key}/agree"
        if int(store.compare_set(f"{key}/work", "", str(self._work))) != self._work:
            store.set(f"{key}/differs", "")
        if store.add(f"{key}/came", 1) == self._size:
            store.set(f"{key}/all", "")
        ends = time.monotonic() + store.timeout.total_seconds()
        while True:
            try:
                store.wait([f"{key}/all"], timedelta(seconds=TIMEOUT_S))
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

    def _compare(self, describe: Callable[[], str]) -> None:
        if (store := default_store()) is None:
            return
        key = self._key
        if int(store.compare_set(key, "", str(self._work))) != self._work:
            store.set(f"{key}/differs", "")
        if store.check([f"{key}/differs"]):
            raise disagreement(describe)


# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RankGroup:
    """The ranks of a mesh that differ from this one in some of its dims only."""

    process_group: Any
    rank: int  # of this process within the group
    coordinates: tuple[tuple[int, ...], ...]  # by rank of the group, those on the dims that differ
    device: torch.device  # of the group's collectives; gradients may be elsewhere (CPU offload)
    detector: DeadlockDetector  # of the mesh

    @property
    def size(self) -> int:
        return len(self.coordinates)

    def wait(self, pending: Any, work: Work) -> None:
        """Wait for a collective of this group."""
        if self.device.type == "cpu":
            self.detector.wait(pending, work.describe)
        else:  # the device waits, not the process; its collectives have a time limit of their own
            pending.wait()


_known: dict[object, tuple[object, object, Any]] = {}
"""Rank groups, process groups and detectors. Each is kept with its world, for a destroyed one takes it along,
and with the process groups whose ids are in its key."""


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
    return RankGroup(process_group, ranks.index(dist.get_rank()), coordinates, device, detector_of(mesh))


def _process_group(mesh: DeviceMesh, dims: tuple[int, ...], ranks: tuple[int, ...]) -> Any:
    """The process group of these ranks: the mesh's own, the world's, or a new one."""
    if len(dims) == 1:
        return mesh.get_group(dims[0])
    world: Any = dist.group.WORLD
    if ranks == tuple(dist.get_process_group_ranks(world)):
        return world
    # Only its members take part: ranks of other pipeline stages may never call this.
    return _kept(("group", ranks), None, lambda: dist.new_group(list(ranks), use_local_synchronization=True))


def detector_of(mesh: DeviceMesh) -> DeadlockDetector:
    """The deadlock detector of the ranks of a mesh."""
    ranks = tuple(mesh.mesh.flatten().tolist())
    # The process groups of a mesh of several dims have different names on different ranks.
    name = mesh.get_group(0).group_name if mesh.ndim == 1 else ""
    detector: DeadlockDetector = _kept(
        ("detector", ranks, name), None, lambda: DeadlockDetector(str(digest((ranks, name))), len(ranks))
    )
    return detector
