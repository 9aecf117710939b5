"""Every arm at its own best settings: one grid, tried equally often for all, chosen on held-out scores.

A metric changes the length of steps, so a rate that was tuned for the baseline is not the method's. Settings are chosen
on data held out of the training data, with seeds that the compared trials do not use, and never on the test set. A best
value at the edge of the grid extends it on that side, for all arms alike. Grid and choice are pure functions of stored
trials.
"""

import itertools
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from riesz_lab.config import Config
from riesz_lab.data.sizes import images
from riesz_lab.errors import ConfigError
from riesz_lab.experiments.arm import Arm, format_values
from riesz_lab.experiments.experiment import Experiment, Tuning
from riesz_lab.store import Result, StoredTrial
from riesz_lab.utils.amounts import count

HELD_OUT = "held_out"
"""The column of the score that settings are chosen by; without it, trials were scored on held-out data."""

EXTENSIONS = 4
"""The most values that a grid grows by on one side."""

Values = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A point of an arm's grid."""

    settings: Values
    trials: tuple[StoredTrial, ...]  # that are complete, in the order of their seeds
    held_out: tuple[float | None, ...]  # their scores on held-out data; None where one diverged

    @property
    def mean(self) -> float | None:
        """None if a trial diverged: one disqualifies the settings."""
        finite = [value for value in self.held_out if value is not None]
        return statistics.fmean(finite) if finite and len(finite) == len(self.held_out) else None


@dataclass(frozen=True)
class Tuned:
    """How far tuning has come, and the settings it chose."""

    points: dict[str, tuple[Point, ...]]  # of every arm that is run, in the order of the grid
    best: dict[str, Values]  # of every arm whose grid is complete and where not all points diverged
    missing: dict[str, list[tuple[Config, Values]]]  # the trials that are not complete, by arm
    seeds: int  # trials per arm and point
    extended: int  # how many values the grid grew by
    at_the_edge: tuple[str, ...]  # arms whose best value is the first or last of a grid of numbers

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what was tuned."""
        return tuple(next(iter(self.points.values()))[0].settings)

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values that were tried, by setting, of all arms."""
        tried = [point.settings for points in self.points.values() for point in points]
        values = {name: list(dict.fromkeys(point[name] for point in tried)) for name in self.settings}
        return {name: sorted(each) if all(map(is_number, each)) else each for name, each in values.items()}

    @property
    def trials(self) -> list[StoredTrial]:
        return [trial for points in self.points.values() for point in points for trial in point.trials]

    @property
    def why_not(self) -> str:
        """Why not every arm has its settings yet, in words; empty if all have them."""
        for label, points in self.points.items():
            if self.missing[label]:
                left, (_, values) = count(len(self.missing[label]), "trial"), self.missing[label][0]
                return f"arm {label!r} is not tuned yet: {left} to be completed, the first at {format_values(values)}"
            if label not in self.best:
                tried = "; ".join(format_values(point.settings) for point in points)
                return f"arm {label!r} diverged at every point of the grid: {tried}. Give other values"
        return ""


def tune(experiment: Experiment, complete: Mapping[str, StoredTrial]) -> Tuned:
    """The grid, what is missing of it, and the best settings so far.

    Args:
        experiment: what is asked. The grid is extended for all of its arms; those that are run have its points.
        complete: stored trials by id.
    """
    tuning = experiment.tuning
    assert tuning is not None
    axes = _axes(tuning)
    grown: dict[_Edge, int] = {}
    while True:
        points = {arm.label: _points(arm, tuning, axes, complete) for arm in experiment.arms}
        places = {label: _best(each, tuning, _sign(complete, experiment)) for label, each in points.items()}
        edges = {edge for place in places.values() if place is not None for edge in _edges(axes, place)}
        if not _extend(axes, edges, grown):
            break
    labels = [arm.label for arm in experiment.chosen]
    best = {label: points[label][place][0].settings for label in labels if (place := places[label]) is not None}
    return Tuned(
        points={label: tuple(point for point, _ in points[label].values()) for label in labels},
        best=best,
        missing={
            label: [(config, point.settings) for point, missing in points[label].values() for config in missing]
            for label in labels
        },
        seeds=tuning.seeds,
        extended=sum(grown.values()),
        at_the_edge=tuple(label for label in best if (place := places[label]) is not None and _edges(axes, place)),
    )


def held_out_score(result: Result) -> float | None:
    """A user's loop returns it beside its score; the lab's loop is tested on held-out data."""
    value = None if result.last is None else result.last.get(HELD_OUT, result.value())
    return None if value is None else float(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass
class _Axis:
    """The values of a setting, or multiples of each arm's own."""

    name: str
    values: list[Any]
    relative: bool

    def value(self, arm: Arm, place: int) -> Any:
        return getattr(arm.config, self.name) * self.values[place] if self.relative else self.values[place]


_Place = tuple[int, ...]
"""Position on every axis."""
_Edge = tuple[int, int]
"""Axis and side; side 0 is the low end."""


def _axes(tuning: Tuning) -> list[_Axis]:
    if not tuning.grid:
        return [_Axis(tuning.setting, sorted(tuning.factors), relative=True)]
    return [
        _Axis(name, sorted(values) if all(map(is_number, values)) else list(values), relative=False)
        for name, values in tuning.grid.items()
    ]


def _points(
    arm: Arm, tuning: Tuning, axes: list[_Axis], complete: Mapping[str, StoredTrial]
) -> dict[_Place, tuple[Point, list[Config]]]:
    """Every point of an arm with its complete trials, and the trials it still needs."""
    points = {}
    for place in itertools.product(*(range(len(axis.values)) for axis in axes)):
        settings = {axis.name: axis.value(arm, index) for axis, index in zip(axes, place, strict=True)}
        at_point = arm.at(settings, tuning.own).config
        plain = replace(at_point, hold_out=_hold_out(arm.config, tuning), init_seed=None, data_seed=None)
        configs = [replace(plain, seed=tuning.first_seed + k) for k in range(tuning.seeds)]
        trials = tuple(complete[config.id] for config in configs if config.id in complete)
        scores = tuple(held_out_score(trial.result) for trial in trials if trial.result is not None)
        missing = [config for config in configs if config.id not in complete]
        points[place] = Point(settings, trials, scores), missing
    return points


def _hold_out(config: Config, tuning: Tuning) -> int:
    if tuning.hold_out is not None:
        return tuning.hold_out
    try:
        return images(config)[0] // 10
    except KeyError:
        raise ConfigError(f"hold_out: the size of {config.dataset!r} is unknown; pass --hold-out N") from None


def _sign(complete: Mapping[str, StoredTrial], experiment: Experiment) -> int:
    """1 if a higher held-out score is better: as asked, or as the trials recorded it."""
    if experiment.score is not None:
        return 1 if experiment.score.higher_is_better else -1
    groups = {arm.config.recipe for arm in experiment.arms}
    for trial in complete.values():
        if trial.result is not None and trial.config.hold_out and trial.config.recipe in groups:
            return 1 if trial.result.higher_is_better else -1
    return 1


def _best(points: dict[_Place, tuple[Point, list[Config]]], tuning: Tuning, sign: int) -> _Place | None:
    """Of equals, the smaller or earlier; None while trials are missing, or if some diverged at every point."""
    if any(missing for _, missing in points.values()):
        return None
    # Without the last digits, in which equal means differ by the order of their sum.
    means = {place: mean for place, (point, _) in points.items() if (mean := point.mean) is not None}
    return min(means, key=lambda place: (-sign * float(f"{means[place]:.12g}"), place), default=None)


def _edges(axes: list[_Axis], place: _Place) -> list[_Edge]:
    """The edges of the grid that a place lies at."""
    numeric = [i for i, axis in enumerate(axes) if all(map(is_number, axis.values))]
    return [(i, side) for i in numeric for side, end in enumerate((0, len(axes[i].values) - 1)) if place[i] == end]


def _extend(axes: list[_Axis], edges: set[_Edge], grown: dict[_Edge, int]) -> bool:
    """Add a value beyond these edges; False if none was added, since there is no edge or the bound is reached."""
    added = []
    for edge in sorted(edges):
        i, side = edge
        values = axes[i].values
        end, next_ = (values[0], values[1]) if side == 0 else (values[-1], values[-2])
        if grown.get(edge, 0) >= EXTENSIONS or min(end, next_) <= 0:
            continue
        # The ratio of the last two. A count stays a count; beyond extreme values lies 0 or, rounded, the end itself.
        value = round(end * end / next_) if type(end) is int else float(f"{end * end / next_:.6g}")
        if value > 0 and value not in values:
            added.append((edge, value))
    for (i, side), value in added:
        axes[i].values.insert(0 if side == 0 else len(axes[i].values), value)
        grown[i, side] = grown.get((i, side), 0) + 1
    return bool(added)
