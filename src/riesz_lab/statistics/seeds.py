"""The seeds of pairs: which pairs are independent, and where the spread of scores comes from."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from riesz_lab.statistics.estimate import Array


def grid(keys: list[Hashable]) -> tuple[list[Hashable], list[Hashable]] | None:
    """The rows and columns of a full grid among pairs of seeds (initialisation, data) that share seeds.

    None if no two pairs share a seed, or if all share the same one: then they are independent, in the latter case given
    that seed. Incomplete columns are left out; incomplete rows instead, if fewer than two columns are complete. There
    may be a larger grid.
    """
    if not keys or not all(isinstance(key, tuple) and len(key) == 2 for key in keys):
        return None
    there = set(keys)
    rows = sorted({key[0] for key in keys})  # type: ignore[index]
    columns = sorted({key[1] for key in keys})  # type: ignore[index]
    if (len(rows) == len(columns) == len(there)) or 1 in (len(rows), len(columns)):
        return None
    full = [column for column in columns if all((row, column) in there for row in rows)]
    if len(full) > 1:
        return rows, full
    return [row for row in rows if all((row, column) in there for column in columns)], columns


def as_grid(values: Mapping[Hashable, float], rows: list[Hashable], columns: list[Hashable]) -> Array:
    return np.array([[values[row, column] for column in columns] for row in rows], dtype=float)


@dataclass(frozen=True)
class Components:
    """Standard deviations of a score by their source. Estimates; a negative variance becomes zero."""

    initialisation: float
    data: float
    rest: float


def components(scores: Mapping[Hashable, float]) -> Components | None:
    """How much of a method's spread comes from the initial weights, the order of the data, and both together.

    Needs scores by (initialisation seed, data seed) on a grid of at least two by two.
    """
    finite = {key: value for key, value in scores.items() if value is not None and np.isfinite(value)}
    seeds = grid(list(finite))
    if seeds is None or min(map(len, seeds)) < 2:
        return None
    values_IJ = as_grid(finite, *seeds)
    by_row, by_column = values_IJ.mean(1), values_IJ.mean(0)
    rest = values_IJ - by_row[:, None] - by_column[None, :] + values_IJ.mean()
    count_rows, count_columns = values_IJ.shape
    noise = float((rest**2).sum() / ((count_rows - 1) * (count_columns - 1)))
    rows = float(by_row.var(ddof=1)) - noise / count_columns
    columns = float(by_column.var(ddof=1)) - noise / count_rows
    return Components(*(float(np.sqrt(max(0.0, variance))) for variance in (rows, columns, noise)))
