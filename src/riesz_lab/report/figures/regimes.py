"""The regime map: difference to the plain optimizer by batch size and learning rate.

Two questions of one set of trials: against the plain optimizer in the same cell, which a longer step alone may answer,
and against the plain optimizer at its best rate for that batch size, which it cannot.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from riesz_lab.config import Config
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figure import Figure, Image, Panel
from riesz_lab.report.labels import dataset, network
from riesz_lab.statistics import Comparison, holm
from riesz_lab.statistics.verdict import without_noise
from riesz_lab.sweeps import Arm, ArmResult, SweepResult
from riesz_lab.sweeps.methods import method, setting
from riesz_lab.utils.amounts import count

CLAIMS = ("better", "worse", "no difference", "identical")
"""Verdicts that state something about a cell; the others are hatched."""

Cell = tuple[int, float]
"""Batch size and learning rate."""


@dataclass(frozen=True)
class RegimeMap:
    """The comparisons of one method, by cell."""

    method: str
    against_best: bool  # the plain optimizer at its best rate, or in the same cell
    comparisons: Mapping[Cell, Comparison]

    @property
    def against(self) -> str:
        return "SGD at SGD's best rate" if self.against_best else "SGD at the same rate"

    @property
    def sizes(self) -> list[int]:
        return sorted({size for size, _ in self.comparisons})

    @property
    def rates(self) -> list[float]:
        return sorted({rate for _, rate in self.comparisons})


def regimes(evidence: ReportData) -> Figure | None:
    own = [part for part in map(_compared_in_cells, evidence.own_tables(_without_cell, "regimes")) if _is_grid(part)]
    return regime_figure([*evidence.tables_of("regimes"), *own])


def _without_cell(config: Config) -> Config:
    """What the cells of one map have in common; recipes are often named by their batch size."""
    return replace(setting(config), batch_size=1, lr=1.0, recipe="regimes")


def _compared_in_cells(table: SweepResult) -> SweepResult:
    """Without methods that have another baseline than plain SGD in their cell: the map names no other."""
    rows = {label: row for label, row in table.rows.items() if _is_in_cell(table, row.arm)}
    return replace(table, rows=rows)


def _is_in_cell(table: SweepResult, arm: Arm) -> bool:
    if arm.config.metric == "identity" or arm.baseline is None:
        return arm.config.metric == "identity"
    against = table.sweep[arm.baseline].config
    return against.metric == "identity" and setting(against) == setting(arm.config)


def _is_grid(table: SweepResult) -> bool:
    """Whether methods on SGD were run at two batch sizes or more, and at two rates or more."""
    configs = [row.arm.config for row in table.rows.values() if row.arm.config.metric != "identity"]
    configs = [config for config in configs if config.optimizer == "sgd"]
    return len({config.batch_size for config in configs}) > 1 and len({config.lr for config in configs}) > 1


def regime_figure(tables: Iterable[SweepResult]) -> Figure | None:
    """Two panels per table and method; None while no cell has a pair."""
    maps = [(table, one) for table in tables for one in regime_maps(table)]
    if not maps:
        return None
    settings = "; ".join(dict.fromkeys(_setting(table) for table, _ in maps))
    return Figure(
        name="regimes",
        title="Where a metric helps: batch size and learning rate",
        caption="Mean difference in test score over pairs of trials with equal seeds: to the plain optimizer in the"
        " same cell, and to the plain optimizer at its best rate for that batch size. That rate is chosen by the mean"
        " of the same test scores, which favours the plain optimizer; those cells also contain what the plain optimizer"
        " itself loses at their rate. Red: the method is better; differences beyond the ends of the bar have the colour"
        " of its end. ± is half of the 95% interval. Hatched: undecided, after Holm's correction over all cells of a"
        f" kind. {settings}.",
        alt=" ".join(_describe(one) for _, one in maps),
        panels=[_panel(table, one, maps) for table, one in maps],
        columns=2,
    )


def regime_maps(table: SweepResult) -> list[RegimeMap]:
    """Two maps per method; claims are corrected for all cells and methods of a kind."""
    plain: dict[Cell, ArmResult] = {}
    directed: dict[str, dict[Cell, ArmResult]] = {}
    for row in table.rows.values():
        if not row.trials:
            continue
        cell = (row.arm.config.batch_size, row.arm.config.lr)
        if row.arm.config.metric == "identity":
            plain[cell] = row
        else:
            directed.setdefault(method(row.arm.config), {})[cell] = row
    best = {size: best_rate(table, size) for size, _ in plain}
    same = {(name, cell): row.comparison for name, rows in directed.items() for cell, row in rows.items()}
    to_best = {
        (name, cell): table.paired(plain[cell[0], rate].scores, row.scores, table.sweep.margin)
        for name, rows in directed.items()
        for cell, row in rows.items()
        if (rate := best.get(cell[0])) is not None
    }
    # Cells that are not run yet count too, as they do for the comparisons of the table.
    corrected = holm(to_best, max(table.sweep.family, len(table.comparisons)))
    maps = []
    for name in directed:
        for against_best, comparisons in ((False, same), (True, corrected)):
            mine = {cell: one for (method, cell), one in comparisons.items() if method == name and one is not None}
            if any(one.n for one in mine.values()):
                maps.append(RegimeMap(name, against_best, mine))
    return maps


def best_rate(table: SweepResult, size: int, metric: str = "identity") -> float | None:
    """The rate at which a metric scores best for a batch size; one at which a trial diverged does not count."""
    means = {}
    for row in table.rows.values():
        config, diverged = row.arm.config, len(row.scores) - len(row.finite)
        if config.metric == metric and config.batch_size == size and row.scores and not diverged:
            means[config.lr] = statistics.fmean(row.finite)
    if not means:
        return None
    return (max if table.higher_is_better else min)(means, key=lambda rate: means[rate])


def _panel(table: SweepResult, one: RegimeMap, maps: Sequence[tuple[SweepResult, RegimeMap]]) -> Panel:
    times = 100.0 if table.percent else 1.0
    shape = (len(one.sizes), len(one.rates))
    z, hatched = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    texts = [[""] * shape[1] for _ in one.sizes]
    for (size, rate), comparison in one.comparisons.items():
        row, column = one.sizes.index(size), one.rates.index(rate)
        if comparison.n:
            z[row, column] = times * comparison.difference
        texts[row][column] = _text(comparison, times)
        hatched[row, column] = comparison.verdict not in CLAIMS
    return Panel(
        title=f"{one.method} against {one.against}",
        image=Image(
            z=z,
            rows="batch size",
            columns="learning rate",
            row_names=[str(size) for size in one.sizes],
            column_names=[f"{rate:g}" for rate in one.rates],
            texts=texts,
            hatched=hatched,
            largest=_end(table, one.against_best, maps),
        ),
    )


def _end(table: SweepResult, against_best: bool, maps: Sequence[tuple[SweepResult, RegimeMap]]) -> float | None:
    """One scale for all methods: a collapsed cell must not leave the others without colour, nor noise have it all."""
    times = 100.0 if table.percent else 1.0
    sizes = sorted(
        abs(times * one.difference)
        for other, regime_map in maps
        for one in regime_map.comparisons.values()
        if other is table and regime_map.against_best == against_best and one.n
    )
    return 2 * max(statistics.median(sizes), times * table.sweep.margin) if sizes else None


def _text(comparison: Comparison, times: float) -> str:
    if comparison.n == 0:
        return "failed" if comparison.trials else "not run"
    text = f"{without_noise(times * comparison.difference):+.2f}"
    if comparison.interval is not None:
        text += f"\n±{times * (comparison.interval[1] - comparison.interval[0]) / 2:.2f}"
    base, method = comparison.collapsed
    # Short lines: a cell is narrow.
    return text + (f"\nfailed {method}" if base or method else "") + (f"\nSGD {base}" if base else "")


def _describe(one: RegimeMap) -> str:
    verdicts = [comparison.verdict for comparison in one.comparisons.values()]
    return (
        f"{one.method} against {one.against}: better in {verdicts.count('better')} of {len(verdicts)} cells, worse in"
        f" {verdicts.count('worse')}, no difference in {verdicts.count('no difference')}."
    )


def _setting(table: SweepResult) -> str:
    config = next(iter(table.rows.values())).arm.config
    images = "" if config.train_limit is None else f", {config.train_limit:,} training images"
    epochs = count(config.epochs, "epoch")
    trials = max(len(row.trials) for row in table.rows.values())
    return f"{dataset(config)}, {network(config.model)}, {epochs}{images}, up to {count(trials, 'seed')} per cell"
