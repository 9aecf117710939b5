"""A fair comparison: every arm at its own best setting, from one grid, tried equally often, chosen on held-out scores.

A best value at the edge of the grid extends the grid on that side, for all arms alike, by up to `EXTENSIONS` values.
Tuning has seeds of its own, so the final trials decide nothing that they are judged by.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from riesz_lab.comparison.arms import Values, at, format_value
from riesz_lab.comparison.attach import HELD_OUT
from riesz_lab.comparison.function import UserFunction
from riesz_lab.comparison.trials import Trials
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.store import Result
from riesz_lab.sweeps import Arm
from riesz_lab.sweeps.tuning import EXTENSIONS, FIRST_SEED, Tuning, beyond, rounded
from riesz_lab.utils import randomness

Point = tuple[Any, ...]
Grid = dict[str, list[Any]]


@dataclass(frozen=True)
class Tuned:
    """How the settings of all arms were chosen."""

    grid: Grid  # all values that were tried, by setting, with what the grid was extended by
    # The mean held-out score by arm and point of the grid; None where a trial diverged.
    scores: dict[str, dict[Point, float | None]]
    by_seed: dict[str, dict[Point, list[float | None]]]  # the held-out scores behind these means, one per seed
    best: dict[str, Values]  # the point of each arm
    ids: tuple[str, ...]  # of the trials that were needed
    seconds: float  # what they took
    seeds: int  # trials per arm and point
    extended: int  # how many values the grid grew by

    @property
    def trials(self) -> int:
        """How many were needed."""
        return len(self.ids)

    @property
    def at_the_edge(self) -> list[str]:
        """Arms whose best value is the first or last of a grid of numbers."""
        return [label for label, values in self.best.items() if any(_edges(self.grid, values))]


def start_grid(function: UserFunction, names: Sequence[str], settings: Values) -> Grid:
    """The grid to start with: the values given, or multiples of the function's own."""
    grid: Grid = {}
    for name in names:
        given = settings.get(name, function.defaults.get(name))
        if given is None and not function.trains and not function.takes(name):
            given = getattr(Config(), name, None)
        values: list[Any] = given if isinstance(given, list) else [given]
        if len(values) == 1 and _is_number(values[0]) and values[0] > 0:
            values = list(dict.fromkeys(_times(values[0], factor) for factor in Tuning().factors))
        if len(set(map(repr, values))) < 2:
            raise ConfigError(
                f"tune: expected a grid for {name!r}, such as --set {name}=0.01,0.03,0.1, or a number above 0 as its "
                f"default in {function.name!r}; got {values[0]!r}"
            )
        grid[name] = sorted(values) if all(map(_is_number, values)) else list(values)
    return grid


def tune(trials: Trials, arms: Sequence[Arm], grid: Grid, seeds: int) -> Tuned:
    """Try every arm at every point; extend the grid while a best value lies at its edge."""
    grid = {name: list(values) for name, values in grid.items()}
    scores: dict[str, dict[Point, float | None]] = {arm.label: {} for arm in arms}
    by_seed: dict[str, dict[Point, list[float | None]]] = {arm.label: {} for arm in arms}
    ids: dict[str, None] = {}
    added = {(name, side): 0 for name in grid for side in (0, 1)}
    while True:
        new = [point for point in itertools.product(*grid.values()) if point not in scores[arms[0].label]]
        jobs = tuning_configs(trials.function, arms, grid, new, seeds)
        batch = [(config, f"{arm.label}, {_describe(grid, point)}, seed {config.seed}") for arm, point, config in jobs]
        trials.run(batch, "tuning {done}/{total}")
        for arm, point, config in jobs:
            by_seed[arm.label].setdefault(point, []).append(held_out_score(trials.results[config.id]))
            ids[config.id] = None
        for label, by_point in by_seed.items():
            # One divergent trial disqualifies a setting.
            scores[label] = {point: _mean(values) for point, values in by_point.items()}
        higher = next(iter(trials.results.values())).higher_is_better
        best = {arm.label: _best(scores[arm.label], grid, arm.label, higher) for arm in arms}
        if not _extend(grid, best, added):
            cost = sum(trials.seconds[id_] for id_ in ids)
            return Tuned(grid, scores, by_seed, best, tuple(ids), cost, seeds, sum(added.values()))


def tuning_configs(
    function: UserFunction, arms: Sequence[Arm], grid: Grid, points: Sequence[Point], seeds: int
) -> list[tuple[Arm, Point, Config]]:
    """Every arm at every point, with the seeds of tuning."""
    held_out = _held_out_count(function)
    return [
        (arm, point, replace(_at(function, arm, grid, point), seed=FIRST_SEED + k, hold_out=held_out))
        for k in range(seeds)
        for point in points
        for arm in arms
    ]


def _at(function: UserFunction, arm: Arm, grid: Grid, point: Point) -> Config:
    return at(function, arm.config, dict(zip(grid, point, strict=True)))


def _describe(grid: Grid, point: Point) -> str:
    return ", ".join(f"{name}={format_value(value)}" for name, value in zip(grid, point, strict=True))


def _held_out_count(function: UserFunction) -> int:
    """What marks a trial as one that tunes: the training items held out, or 1 where the user's loop holds them out."""
    if function.trains:
        return 1
    randomness.seed_all(0)
    _, (train, _), _ = function.call()
    return max(1, len(train) // 10)


def held_out_score(result: Result) -> float | None:
    """What a tuning trial is judged by: a user's loop returns it, the lab's loop is tested on held-out data."""
    value = None if result.last is None else result.last.get(HELD_OUT, result.value())
    return None if value is None else float(value)


def _mean(values: list[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return statistics.fmean(finite) if len(finite) == len(values) else None


def _best(scores: dict[Point, float | None], grid: Grid, label: str, higher: bool) -> Values:
    """The best point; of equals, the smaller or earlier."""
    finite = {point: score for point, score in scores.items() if score is not None}
    if not finite:
        tried = "; ".join(_describe(grid, point) for point in scores)
        raise ConfigError(f"arm {label!r} diverged at every point of the grid: {tried}. Give others with --set")
    order = {name: {repr(value): i for i, value in enumerate(values)} for name, values in grid.items()}

    ranked = [
        (
            -rounded(score) if higher else rounded(score),
            [order[name][repr(value)] for name, value in zip(grid, point, strict=True)],
            point,
        )
        for point, score in finite.items()
    ]
    return dict(zip(grid, min(ranked)[2], strict=True))


def _times(value: Any, factor: float) -> Any:
    """A multiple of a number; a count stays a count."""
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _edges(grid: Grid, values: Values) -> list[tuple[str, int]]:
    """(setting, side) of the edges that a point lies at: side 0 is the low end."""
    numeric = {name: each for name, each in grid.items() if all(map(_is_number, each))}
    return [
        (name, side)
        for name, each in numeric.items()
        for side, edge in enumerate((each[0], each[-1]))
        if values[name] == edge
    ]


def _extend(grid: Grid, best: dict[str, Values], added: dict[tuple[str, int], int]) -> bool:
    """Grow the grid beyond the edges at which a best value lies; False if none does, or the bound is reached."""
    grown = False
    for name, side in dict.fromkeys(edge for values in best.values() for edge in _edges(grid, values)):
        each = grid[name]
        end, next_ = (each[0], each[1]) if side == 0 else (each[-1], each[-2])
        if added[name, side] >= EXTENSIONS or min(end, next_) <= 0:
            continue
        value = round(end * end / next_) if isinstance(end, int) else beyond(end, next_)
        if value in each or value <= 0:
            continue
        each.insert(0 if side == 0 else len(each), value)
        added[name, side] += 1
        grown = True
    return grown
