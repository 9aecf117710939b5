"""Directing DTensors: a rank directs whole columns by itself, and divided ones together with its rank groups.

Requirements it meets:
- exact: the result is that of one process, whatever the layout, uneven and empty shards included;
- one collective per rank group and strategy for all parameters of a step; none for plain tensors;
- every rank of a group makes the same collectives in the same order: they follow from the layout of all parameters,
  which every rank knows, never from what one of them holds;
- written to the memory of the local parts: placements, strides and optimizer state stay as they are;
- what follows from the layout is worked out once (`PreparedStep`), compared at every step and used while it holds;
- collectives start first; what needs no other rank is computed while they are under way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from riesz.backends import FastPathCache
from riesz.backends import direct_ as direct_columns_
from riesz.backends.registry import registered
from riesz.backends.tensor_guard import TensorGuard
from riesz.control import Control, controlled, put_back, signs
from riesz.layout.axis import Axis, compute_dtype
from riesz.metrics import Operator
from riesz.private_torch import layouts, local_tensors
from riesz.sharded.batching import batch_columns, describe_metric, tunable_numbers
from riesz.sharded.collectives import AllReduce, Exchange, WholeSums
from riesz.sharded.groups import RankGroup, Watch, digest, rank_group, watch_of
from riesz.sharded.layout import LocalPart, local_of, open_part
from riesz.sharded.strategies import CENTRING, choose

MAX_PREPARED = 32
"""Lists of parameters that are remembered; a model has one per set of parameters that get gradients together."""


@dataclass(frozen=True)
class Item:
    """A parameter to direct: its gradient, a DTensor, or None where it has none now."""

    name: str
    parameter: Any
    gradient: Any
    axis: Axis
    metric: Operator


@torch.no_grad()
def direct_(items: Sequence[Item], backend: str, control: Control = None, recording: bool = False) -> list[Tensor]:
    """Direct gradients in place. Every rank passes the same items, in the same order.

    Args:
        items: the parameters to direct, with those that have no gradient at the moment.
        backend: the backend of what a rank computes by itself.
        control: None, "norm", "permuted" or "signs".
        recording: whether to return what diagnostics need.

    Returns:
        |f|^2, |g|^2 and <f, g> of every gradient present, if `recording`, else nothing.
    """
    prepared = _without_hook.prepare(items, backend, control)
    prepared.start([item.gradient for item in items], recording)
    return prepared.finish()


Check = Callable[[object, str, Axis], None]


class PreparedSteps:
    """Prepared steps by which parameters have gradients; only the last one that was used keeps buffers."""

    def __init__(self) -> None:
        self._known: dict[object, PreparedStep] = {}
        self._last: PreparedStep | None = None

    def prepare(
        self, items: Sequence[Item], backend: str, control: Control, check: Check | None = None
    ) -> "PreparedStep":
        """How to direct these items: as the last list like it, if that still holds.

        Raises where a layout is unsupported. Nothing is touched, and nothing is communicated but for process groups
        that are new.

        Args:
            items, backend, control: see `direct_`.
            check: called with every gradient that was not seen before, its name and its axis; raises if it is not
                writable.
        """
        first = items[0]
        key = (
            backend,
            control,
            id(first.parameter),
            id(first.metric),
            first.axis,
            tuple(item.gradient is None for item in items),
        )
        known = self._known.get(key)
        if known is None or not known.holds(items):
            if len(self._known) >= MAX_PREPARED:
                self._known.clear()
            for item in items:
                if check is not None and item.gradient is not None:
                    check(item.gradient, f"the gradient of {item.name!r}", item.axis)
            known = self._known[key] = PreparedStep(items, backend, control)
        self.use(known)
        return known

    def use(self, prepared: "PreparedStep") -> None:
        """This one is started next: no other keeps its buffers."""
        if self._last is not None and self._last is not prepared:
            self._last.drop_buffers()
        self._last = prepared


_without_hook = PreparedSteps()


class PreparedStep:
    """All that follows from the layout of a list of items: parts, strategies, buffers, kernels. Holds no gradient."""

    def __init__(self, items: Sequence[Item], backend: str, control: Control):
        self._backend, self._control = backend, control
        self._world: object = dist.group.WORLD
        self._specs = _layouts(items)
        self._keys = [(item.name, item.axis, item.metric) for item in items]
        self._guard = TensorGuard([local_of(item.gradient) for item in items if item.gradient is not None])
        opened = [open_part(item.gradient, item.parameter, item.axis, item.metric, item.name) for item in items]
        self._opened = opened
        self._parts = [part for part in opened if part is not None]
        self._partial = [part for part in self._parts if part.layout.partial]
        if control == "norm":
            for part in self._parts:
                part.dtype = compute_dtype(part.dtype)
                part.local = _widened(part.local)
        self._alone = _by_metric(part for part in self._parts if part.group is None)
        self._fast_paths = [FastPathCache() for _ in self._alone]
        self._exchanges = _exchanges(self._parts, backend, permuted=control == "permuted")
        self._sums = WholeSums(self._parts)
        self._backends = registered()
        self._work = _work_by_watch(self._parts)
        self._signs = [signs_of(part) for part in self._parts] if control == "signs" else []
        self._under_way = self._failed = False
        self._recording = False
        self._present: list[bool] = []
        self._homes: list[Tensor | None] = []
        self._originals: list[Tensor | None] = []
        self._set_locals([None] * len(self._parts))

    def holds(self, items: Sequence[Item]) -> bool:
        """Whether these items have the parameters, layouts, metrics and memory formats that this was made for."""
        if len(items) != len(self._keys):
            return False
        for item, (name, axis, metric) in zip(items, self._keys, strict=True):
            if item.metric is not metric or item.name != name or (item.axis is not axis and item.axis != axis):
                return False
        return self._same_layouts(_layouts(items)) and self._guard.matches(
            [local_of(item.gradient) for item in items if item.gradient is not None]
        )

    def holds_gradients(self, gradients: Sequence[Any]) -> bool:
        """The same for the gradients of all items, none missing, where names, axes and metrics are known to hold."""
        try:
            specs, locals_ = layouts(gradients), local_tensors(gradients)
        except AttributeError:  # None, or no DTensor
            return False
        return self._same_layouts(specs) and self._guard.matches(locals_)

    def _same_layouts(self, specs: list[Any]) -> bool:
        known = self._specs
        same = len(specs) == len(known) and (all(map(is_, specs, known)) or specs == known)
        # A backend registered since then may rank first.
        return same and not self._failed and self._world is dist.group.WORLD and self._backends == registered()

    def start(self, gradients: Sequence[Any], recording: bool) -> None:
        """Begin to direct gradients, one per item or None, for which this `holds`: collectives are under way.

        `finish` or `abandon` must follow.
        """
        self._recording, self._under_way = recording, True
        for watch, work in self._work.items():
            watch.begin(work)
        try:
            self._start(gradients)
        except BaseException:
            self.abandon()
            raise

    def _start(self, gradients: Sequence[Any]) -> None:
        self._present = [gradient is not None for gradient in gradients]
        self._homes = [
            None if gradient is None else local_of(gradient)
            for gradient, part in zip(gradients, self._opened, strict=True)
            if part is not None
        ]
        self._set_locals(self._homes)
        _reduce_partial(self._partial)
        self._originals = [None if home is None else home.clone() for home in self._homes] if self._recording else []
        if self._control == "norm":
            self._set_locals([_widened(home) for home in self._homes])
        elif self._control == "signs":
            self._flip_()
        for portions in self._exchanges:
            portions[0].start()

    def finish(self) -> list[Tensor]:
        """Direct them; returns what `direct_` does."""
        try:
            result = self._finish()
        except BaseException:
            self.abandon()
            raise
        self._end()
        return result

    def abandon(self) -> None:
        """Never use this again: collectives may be under way in its buffers, on this rank or on others."""
        self._failed = True
        self.drop_buffers()
        self._end()

    def drop_buffers(self) -> None:
        """Free the buffers; a collective that is under way holds its own until it ends."""
        for portions in self._exchanges:
            for exchange in portions:
                exchange.drop_buffers()

    def _end(self) -> None:
        if self._under_way:
            for watch in self._work:
                watch.end()
        self._under_way = False
        self._set_locals([None] * len(self._parts))
        self._homes, self._originals = [], []

    def _finish(self) -> list[Tensor]:
        for parts, fast_path in zip(self._alone, self._fast_paths, strict=True):
            self._solve_alone_(parts, fast_path)
        for first, *others in self._exchanges:
            first.finish()
            for exchange in others:
                exchange.start()
                exchange.finish()
        if self._control == "norm":
            for part, home, ratio in zip(self._parts, self._homes, self._sums.norm_ratios(self._homes), strict=True):
                if home is not None and part.local is not None:
                    home.copy_(part.local * ratio.to(part.dtype))
            self._set_locals(self._homes)
        elif self._control == "signs":
            self._flip_()
        products = iter(self._sums.products(self._originals) if self._recording else ())
        _share_partial(self._partial)
        if not self._recording:
            return []
        # A rank that is not on the mesh of a gradient knows nothing of it.
        by_item = [torch.zeros(3, dtype=torch.float64) if part is None else next(products) for part in self._opened]
        return [product for product, present in zip(by_item, self._present, strict=True) if present]

    def _set_locals(self, locals_: Sequence[Tensor | None]) -> None:
        for part, local in zip(self._parts, locals_, strict=True):
            part.local = local

    def _flip_(self) -> None:
        """Multiply by the signs of the control, which is exact and undone by doing it again."""
        for part, own in zip(self._parts, self._signs, strict=True):
            if part.local is not None:
                part.local.mul_(own)

    def _solve_alone_(self, parts: Sequence[LocalPart], fast_path: FastPathCache) -> None:
        locals_: list[Any] = [part.local for part in parts]
        if self._control != "permuted" and fast_path.direct_(locals_, parts[0].metric):
            return
        homes = [part.open() for part in parts]
        names = [part.name for part in parts]
        columns = homes
        if self._control == "permuted":
            columns = [controlled(home, name, "permuted") for home, name in zip(homes, names, strict=True)]
        direct_columns_(columns, parts[0].metric, self._backend)
        if self._control == "permuted":
            for home, copy, name in zip(homes, columns, names, strict=True):
                put_back(home, copy, name, "permuted")
        else:
            fast_path.learn(self._backend, locals_, columns)


def agree(items: Sequence[Item], settings: object) -> None:
    """Raise on all ranks of a mesh if their parameters, metrics or settings differ.

    Ranks whose metrics are of different kinds make different collectives, or none, and would wait for each other; where
    shapes differ, so do the sizes of collectives, at which gloo ends the process. Later changes of numbers are compared
    by the collectives that direct, within each rank group.

    Args:
        items: the parameters to direct, which are DTensors; their gradients are not read.
        settings: anything else that decides which collectives are made.
    """
    by_mesh: dict[Any, list[Item]] = {}
    for item in items:
        mesh = item.parameter.device_mesh
        if mesh.size() > 1 and mesh.get_coordinate() is not None:
            by_mesh.setdefault(mesh, []).append(item)
    for mesh, together in by_mesh.items():
        numbers = tunable_numbers({id(item.metric): item.metric for item in together}.values())
        work = digest([settings, numbers, *((_layout(item.parameter), *_described(item)) for item in together)])
        metrics = ", ".join(sorted({describe_metric(item.metric) for item in together}))
        watch_of(mesh).agree(work, f"{metrics}; {settings}".__str__)


def _work_by_watch(parts: Sequence[LocalPart]) -> dict[Watch, int]:
    """The work expected of all ranks of each mesh, which ranks that wait for each other compare."""
    by_watch: dict[Watch, list[LocalPart]] = {}
    for part in parts:
        by_watch.setdefault(watch_of(part.layout.mesh), []).append(part)
    return {watch: digest([_described(part) for part in together]) for watch, together in by_watch.items()}


def _described(one: Item | LocalPart) -> tuple[object, ...]:
    """Name, axis, and the metric but for its numbers."""
    return one.name, one.axis, one.metric.kind_name(), one.metric.fixed_settings()


def _layout(parameter: Any) -> tuple[object, ...]:
    return tuple(parameter.shape), parameter.dtype, parameter.placements


def _layouts(items: Sequence[Item]) -> list[Any]:
    return layouts([item.parameter if item.gradient is None else item.gradient for item in items])


def _widened(local: Tensor | None) -> Tensor | None:
    """A copy in the precision of the computation, so that gradients are rounded once."""
    if local is None:
        return None
    wide = compute_dtype(local.dtype)
    return local.to(wide.to_complex() if local.is_complex() else wide, copy=True)


def signs_of(part: LocalPart) -> Tensor:
    """The signs of this rank's rows, in a shape that broadcasts over its part of the gradient."""
    shape, line = part.layout.shape, part.line
    n = part.axis.length(shape)
    rows = torch.cat([torch.arange(run.start, run.stop) for run in part.layout.runs[line[0]]] or [torch.arange(0)])
    first = shape[line[0]] * math.prod(shape[d] for d in line[1:]) // n  # groups, one after the other
    sizes = [shape[d] for d in line]
    own = signs(part.name, n, part.device).repeat(first).view(sizes).index_select(0, rows.to(part.device))
    places = [len(rows) if d == line[0] else shape[d] if d in line else 1 for d in range(len(shape))]
    return own.reshape(places)


def _by_metric(parts: Any) -> list[list[LocalPart]]:
    by_metric: dict[int, list[LocalPart]] = {}
    for part in parts:
        if part.local is not None and part.local.numel():
            by_metric.setdefault(id(part.metric), []).append(part)
    return list(by_metric.values())


def _exchanges(parts: Sequence[LocalPart], backend: str, permuted: bool) -> list[list[Exchange]]:
    """By rank group and strategy, the exchanges of all that is divided."""
    work: dict[tuple[RankGroup, Any], list[Any]] = {}
    for part in parts:
        if part.group is not None and CENTRING.serves(part, permuted):
            work.setdefault((part.group, CENTRING), []).append(part)
    batches = batch_columns(part for part in parts if part.rows is not None)
    for batch, strategy in zip(batches, choose(batches, permuted), strict=True):
        work.setdefault((batch.group, strategy), []).append(batch)
    return [
        list(strategy.run_within_limit(group, together, backend, permuted))
        for (group, strategy), together in work.items()
    ]


# -- partial gradients -------------------------------------------------------------------------------------------------
# A is linear, so each share of a sum could be directed by itself. Reduced first, the result is rounded as one process
# rounds it, and what is not linear (the control "norm", diagnostics) sees the gradient and not its shares.


def _reduce_partial(parts: Sequence[LocalPart]) -> None:
    """Write the whole gradient in place of this rank's share: one all-reduce per rank group and dtype.

    A smaller one before them compares which gradients there are, which decides the sizes.
    """
    by_group: dict[RankGroup, list[LocalPart]] = {}
    for part in parts:
        group = rank_group(part.layout.mesh, tuple(dim for dim, _ in part.layout.partial))
        by_group.setdefault(group, []).append(part)
    for group, together in by_group.items():
        token = digest([(part.name, part.local is not None, str(part.dtype), part.parts) for part in together])
        absent = ", ".join(part.name for part in together if part.local is None)
        compared = AllReduce(group, 0, group.device)
        compared.start(token)
        compared.finish(token, f"Partial gradients; without a gradient: {absent or 'none'}".__str__)
        by_dtype: dict[tuple[torch.dtype, torch.device], list[tuple[LocalPart, Tensor]]] = {}
        for part in together:
            if part.local is not None:
                by_dtype.setdefault((part.local.dtype, part.local.device), []).append((part, part.local))
        for (_, device), alike in by_dtype.items():
            flat = torch.cat([local.reshape(-1) for _, local in alike]).to(group.device)
            dist.all_reduce(flat, group=group.process_group)
            sums = torch.split(flat.to(device), [local.numel() for _, local in alike])
            for (part, local), total in zip(alike, sums, strict=True):
                local.copy_((total / _partial_ranks(part, "avg")).view(local.shape))


def _share_partial(parts: Sequence[LocalPart]) -> None:
    """Leave each rank its share of the directed gradient, so that the placement is true again."""
    for part in parts:
        if part.local is not None and (ranks := _partial_ranks(part, "sum")) > 1:
            part.local.div_(ranks)


def _partial_ranks(part: LocalPart, reduce_op: str) -> int:
    return math.prod(part.layout.mesh.size(dim) for dim, op in part.layout.partial if op == reduce_op)
