"""A step over DTensors: a rank directs whole columns by itself, and divided ones together with its rank groups.

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
from collections.abc import Callable, Iterable, Sequence
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
from riesz.sharded.agreement import RankGroup, describe_metrics, detector_of, digest, tunable_numbers
from riesz.sharded.collectives import WholeSums, reduce_partial_, share_partial_
from riesz.sharded.columns import ColumnBatch, ExchangedColumns, Strategy, batch_columns
from riesz.sharded.layout import LocalShard, local_of, open_shard
from riesz.sharded.sums import GatheredSums, OutputMeans, ReducedSums

MAX_PREPARED = 32
"""Lists of parameters that are remembered; a model has one per set of parameters that get gradients together."""

COLUMN_STRATEGIES: tuple[type[Strategy[ColumnBatch]], ...] = (ReducedSums, GatheredSums, ExchangedColumns)


@dataclass(frozen=True)
class ShardedGradient:
    """A parameter to direct: its gradient, a DTensor, or None where it has none now."""

    name: str
    parameter: Any
    gradient: Any
    axis: Axis
    metric: Operator


Gradients = Sequence[ShardedGradient]
Check = Callable[[object, str, Axis], None]


@torch.no_grad()
def direct_(gradients: Gradients, backend: str, control: Control = None, recording: bool = False) -> list[Tensor]:
    """Direct gradients in place. Every rank passes the same parameters, in the same order.

    Args:
        gradients: what to direct, with the parameters that have no gradient at the moment.
        backend: the backend of what a rank computes by itself.
        control: None, "norm", "permuted" or "signs".
        recording: whether to return what diagnostics need.

    Returns:
        |f|^2, |g|^2 and <f, g> of every gradient present, if `recording`, else nothing.
    """
    return _without_hook.start(gradients, backend, control, recording).finish()


class StepCache:
    """Prepared steps by which parameters have gradients; only the last one that was used keeps buffers."""

    def __init__(self) -> None:
        self._known: dict[object, PreparedStep] = {}
        self._last: PreparedStep | None = None

    def start(
        self, gradients: Gradients, backend: str, control: Control, recording: bool, check: Check | None = None
    ) -> "PreparedStep":
        """Begin to direct these, as the last list like it if that still holds: `finish` or `abandon` must follow.

        Raises where a layout is unsupported, before anything is touched or sent.

        Args:
            gradients, backend, control, recording: see `direct_`.
            check: called with every gradient that was not seen before, its name and its axis; raises if it is not
                writable.
        """
        first = gradients[0]
        present = tuple(one.gradient is not None for one in gradients)
        key = (backend, control, id(first.parameter), id(first.metric), first.axis, present)
        known = self._known.get(key)
        if known is None or not known.holds(gradients):
            if len(self._known) >= MAX_PREPARED:
                self._known.clear()
            for one in gradients:
                if check is not None and one.gradient is not None:
                    check(one.gradient, f"the gradient of {one.name!r}", one.axis)
            known = self._known[key] = PreparedStep(gradients, backend, control)
        self._use(known)
        known.start([None if one.gradient is None else local_of(one.gradient) for one in gradients], recording)
        return known

    def repeat_(self, prepared: "PreparedStep", gradients: Sequence[Any]) -> Sequence[Tensor]:
        """Direct gradients by a step that was prepared for all parameters, if they are as they were then.

        Args:
            prepared: the step; names, axes and metrics are known to hold.
            gradients: one per parameter, or None, which is not as it was.

        Returns:
            The local parts that were written; none, with nothing touched, if this step does not hold.
        """
        try:
            specs, locals_ = layouts(gradients), local_tensors(gradients)
        except AttributeError:  # None, or no DTensor
            return ()
        if not prepared.holds_for(specs, locals_):
            return ()
        self._use(prepared)
        with torch.no_grad():
            prepared.start(locals_, recording=False)
            prepared.finish()
        return locals_

    def _use(self, prepared: "PreparedStep") -> None:
        if self._last is not None and self._last is not prepared:
            self._last.drop_buffers()
        self._last = prepared


_without_hook = StepCache()


class PreparedStep:
    """All that follows from the layout of some gradients: shards, strategies, buffers, tables. Holds no gradient."""

    def __init__(self, gradients: Gradients, backend: str, control: Control):
        self._backend, self._control = backend, control
        self._world: object = dist.group.WORLD
        self._backends = registered()
        self._keys = [(one.name, one.axis, one.metric) for one in gradients]
        self._present = [one.gradient is not None for one in gradients]
        self._specs = _layouts(gradients)
        self._guard = TensorGuard(_locals(gradients))
        self._opened = [open_shard(one.gradient, one.parameter, one.axis, one.metric, one.name) for one in gradients]
        self._shards = [shard for shard in self._opened if shard is not None]
        self._partial = [shard for shard in self._shards if shard.layout.partial]
        if control == "norm":
            for shard in self._shards:
                shard.dtype = compute_dtype(shard.dtype)
                shard.local = _widened(shard.local)
        self._signs = [_signs_of(shard) for shard in self._shards] if control == "signs" else []
        self._alone = _whole_columns(self._shards)
        self._fast_paths = [FastPathCache() for _ in self._alone]
        self._strategies = strategies_for(self._shards, backend, permuted=control == "permuted")
        self._sums = WholeSums(self._shards)
        by_detector: dict[Any, list[object]] = {}
        for shard in self._shards:
            by_detector.setdefault(detector_of(shard.layout.mesh), []).append(_described(shard))
        self._work = {detector: digest(described) for detector, described in by_detector.items()}
        self._under_way = self._failed = self._recording = False
        self._homes: Sequence[Tensor | None] = ()
        self._originals: Sequence[Tensor | None] = ()
        self._set_locals([None] * len(self._shards))

    # -- whether it holds

    def holds(self, gradients: Gradients) -> bool:
        """Whether these have the parameters, layouts, metrics and memory formats that this was made for."""
        if len(gradients) != len(self._keys):
            return False
        for one, (name, axis, metric) in zip(gradients, self._keys, strict=True):
            if one.metric is not metric or one.name != name or (one.axis is not axis and one.axis != axis):
                return False
        return self.holds_for(_layouts(gradients), _locals(gradients))

    def holds_for(self, specs: list[Any], locals_: list[Any]) -> bool:
        """The same for gradients of these layouts and local parts, where names, axes and metrics are known to hold."""
        known = self._specs
        same = len(specs) == len(known) and (all(map(is_, specs, known)) or specs == known)
        same = same and not self._failed and self._world is dist.group.WORLD
        # A backend registered since then may rank first.
        return same and self._backends == registered() and self._guard.matches(locals_)

    # -- a step

    def start(self, locals_: Sequence[Tensor | None], recording: bool) -> None:
        """Begin to direct gradients for which this holds, given the local part of each, or None: collectives start."""
        self._recording, self._under_way = recording, True
        for detector, work in self._work.items():
            detector.begin(work)
        try:
            self._homes = locals_
            if len(self._shards) < len(locals_):  # a rank that is not on the mesh of a gradient knows nothing of it
                self._homes = [own for own, shard in zip(locals_, self._opened, strict=True) if shard is not None]
            self._set_locals(self._homes)
            if self._partial:
                reduce_partial_(self._partial)
            if recording:
                self._originals = [None if home is None else home.clone() for home in self._homes]
            if self._control == "norm":
                self._set_locals([_widened(home) for home in self._homes])
            elif self._control == "signs":
                self._flip_()
            for portions in self._strategies:
                portions[0].start()
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> list[Tensor]:
        """Direct them; returns what `direct_` does."""
        try:
            for shards, fast_path in zip(self._alone, self._fast_paths, strict=True):
                self._direct_alone_(shards, fast_path)
            for first, *others in self._strategies:
                first.finish()
                for strategy in others:
                    strategy.start()
                    strategy.finish()
            products = self._undo_control_and_record() if self._control or self._recording else []
            if self._partial:
                share_partial_(self._partial)
        except BaseException:
            self.abandon()
            raise
        self._end()
        return products

    def abandon(self) -> None:
        """Never use this again: collectives may be under way in its buffers, on this rank or on others."""
        self._failed = True
        self.drop_buffers()
        self._end()

    def drop_buffers(self) -> None:
        """Free the buffers; a collective that is under way holds its own until it ends."""
        for portions in self._strategies:
            for strategy in portions:
                strategy.drop_buffers()

    def _end(self) -> None:
        if self._under_way:
            for detector in self._work:
                detector.end()
        self._under_way = False
        self._set_locals([None] * len(self._shards))
        self._homes = self._originals = ()

    def _set_locals(self, locals_: Sequence[Tensor | None]) -> None:
        for shard, local in zip(self._shards, locals_, strict=True):
            shard.local = local

    def _direct_alone_(self, shards: Sequence[LocalShard], fast_path: FastPathCache) -> None:
        """Direct what needs no other rank."""
        locals_: list[Any] = [shard.local for shard in shards]
        metric = shards[0].metric
        if self._control == "permuted":
            homes = [(shard.open(), shard.name) for shard in shards]
            copies = [controlled(home, name, "permuted") for home, name in homes]
            direct_columns_(copies, metric, self._backend)
            for (home, name), copy in zip(homes, copies, strict=True):
                put_back(home, copy, name, "permuted")
        elif not fast_path.direct_(locals_, metric):
            columns = [shard.open() for shard in shards]
            direct_columns_(columns, metric, self._backend)
            fast_path.learn(self._backend, locals_, columns)

    def _undo_control_and_record(self) -> list[Tensor]:
        if self._control == "norm":
            for shard, home, ratio in zip(self._shards, self._homes, self._sums.norm_ratios(self._homes), strict=True):
                if home is not None and shard.local is not None:
                    home.copy_(shard.local * ratio.to(shard.dtype))
            self._set_locals(self._homes)
        elif self._control == "signs":
            self._flip_()
        if not self._recording:
            return []
        products = iter(self._sums.products(self._originals))
        by_parameter = [torch.zeros(3).double() if shard is None else next(products) for shard in self._opened]
        return [product for product, present in zip(by_parameter, self._present, strict=True) if present]

    def _flip_(self) -> None:
        """Multiply by the signs of the control, which is exact and undone by doing it again."""
        for shard, own in zip(self._shards, self._signs, strict=True):
            if shard.local is not None:
                shard.local.mul_(own)


def strategies_for(
    shards: Sequence[LocalShard], backend: str, permuted: bool
) -> list[list[Strategy[ColumnBatch]] | list[Strategy[LocalShard]]]:
    """By rank group and strategy, the portions of all that is divided.

    Of those that serve a batch, the strategy of the fewest bytes, added up over all batches of a rank group that the
    same ones serve: one collective carries all of them.
    """
    by_outputs: dict[RankGroup, list[LocalShard]] = {}
    for shard in shards:
        if shard.group is not None and OutputMeans.serves(shard, permuted):
            by_outputs.setdefault(shard.group, []).append(shard)
    candidates: dict[tuple[RankGroup, tuple[type[Strategy[ColumnBatch]], ...]], list[ColumnBatch]] = {}
    for batch in batch_columns(shard for shard in shards if shard.partition is not None):
        served_by = tuple(strategy for strategy in COLUMN_STRATEGIES if strategy.serves(batch, permuted))
        candidates.setdefault((batch.group, served_by), []).append(batch)
    chosen: dict[tuple[RankGroup, type[Strategy[ColumnBatch]]], list[ColumnBatch]] = {}
    for (group, served_by), batches in candidates.items():
        cheapest = min(served_by, key=lambda strategy: sum(map(strategy.bytes, batches)))
        chosen.setdefault((group, cheapest), []).extend(batches)
    return [
        *(OutputMeans.within_limit(group, parts, backend, permuted) for group, parts in by_outputs.items()),
        *(kind.within_limit(group, batches, backend, permuted) for (group, kind), batches in chosen.items()),
    ]


def agree(gradients: Gradients, settings: object) -> None:
    """Raise on all ranks of a mesh if their parameters, metrics or settings differ.

    Ranks whose metrics are of different kinds make different collectives, or none, and would wait for each other; where
    shapes differ, so do the sizes of collectives, at which gloo ends the process. Later changes of numbers are compared
    by the collectives that direct, within each rank group.

    Args:
        gradients: the parameters to direct, which are DTensors; their gradients are not read.
        settings: anything else that decides which collectives are made.
    """
    by_mesh: dict[Any, list[ShardedGradient]] = {}
    for one in gradients:
        mesh = one.parameter.device_mesh
        if mesh.size() > 1 and mesh.get_coordinate() is not None:
            by_mesh.setdefault(mesh, []).append(one)
    for mesh, together in by_mesh.items():
        metrics = list({id(one.metric): one.metric for one in together}.values())
        described = [
            (tuple(one.parameter.shape), one.parameter.dtype, one.parameter.placements, _described(one))
            for one in together
        ]
        work = digest([settings, tunable_numbers(metrics), described])
        detector_of(mesh).agree(work, f"{describe_metrics(metrics)}; {settings}".__str__)


def _described(one: ShardedGradient | LocalShard) -> tuple[object, ...]:
    """Name, axis, and the metric but for its numbers."""
    return one.name, one.axis, one.metric.kind_name(), one.metric.fixed_settings()


def _layouts(gradients: Gradients) -> list[Any]:
    return layouts([one.parameter if one.gradient is None else one.gradient for one in gradients])


def _locals(gradients: Gradients) -> list[Tensor]:
    return [local_of(one.gradient) for one in gradients if one.gradient is not None]


def _widened(local: Tensor | None) -> Tensor | None:
    """A copy in the precision of the computation, so that gradients are rounded once."""
    if local is None:
        return None
    wide = compute_dtype(local.dtype)
    return local.to(wide.to_complex() if local.is_complex() else wide, copy=True)


def _signs_of(shard: LocalShard) -> Tensor:
    """The signs of this rank's rows, in a shape that broadcasts over its part of the gradient."""
    shape, line = shard.layout.shape, shard.line
    n, sizes = shard.axis.length(shape), [shape[dim] for dim in line]
    held = [torch.arange(span.start, span.stop) for span in shard.layout.held[line[0]]]
    rows = torch.cat([*held, torch.arange(0)]).to(shard.device)
    of_line = signs(shard.name, n, shard.device).repeat(math.prod(sizes) // n)  # the same in each group
    own = of_line.view(sizes).index_select(0, rows)
    return own.reshape([len(rows) if d == line[0] else size if d in line else 1 for d, size in enumerate(shape)])


def _whole_columns(shards: Iterable[LocalShard]) -> list[list[LocalShard]]:
    """What needs no other rank, by metric."""
    by_metric: dict[int, list[LocalShard]] = {}
    for shard in shards:
        if shard.group is None and shard.local is not None and shard.local.numel():
            by_metric.setdefault(id(shard.metric), []).append(shard)
    return list(by_metric.values())
