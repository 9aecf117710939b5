"""The regime map: difference to the plain optimizer by batch size and learning rate.

Two questions of one set of trials: against the plain optimizer in the same cell, which a longer step alone may answer,
and against the plain optimizer at its best rate for that batch size, which it cannot.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from riesz_lab.config import Config
from riesz_lab.experiments import Arm, ArmResult, Result
from riesz_lab.experiments.arm import method, setting
from riesz_lab.report.data import ReportData
from riesz_lab.report.figure import Figure, Image, Panel
from riesz_lab.report.labels import dataset, network
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.statistics.verdict import Verdict, without_noise
from riesz_lab.utils.amounts import count

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


def regimes(data: ReportData) -> Figure | None:
    own = [part for part in map(_compared_in_cells, data.parts(_without_cell, "regimes")) if _is_grid(part)]
    return regime_figure([*data.named("regimes"), *own])


def _without_cell(config: Config) -> Config:
    """What the cells of one map have in common; recipes are often named by their batch size."""
    return replace(setting(config), batch_size=1, lr=1.0, recipe="regimes")


def _compared_in_cells(found: Result) -> Result:
    """Without methods that have another baseline than plain SGD in their cell: the map names no other."""
    return replace(found, arms={label: each for label, each in found.arms.items() if _is_in_cell(found, each.arm)})


def _is_in_cell(found: Result, arm: Arm) -> bool:
    if arm.config.metric == "identity" or arm.baseline is None:
        return arm.config.metric == "identity"
    against = found.experiment[arm.baseline].config
    return against.metric == "identity" and setting(against) == setting(arm.config)


def _is_grid(found: Result) -> bool:
    """Whether methods on SGD were run at two batch sizes or more, and at two rates or more."""
    configs = [row.arm.config for row in found.arms.values() if row.arm.config.metric != "identity"]
    configs = [config for config in configs if config.optimizer == "sgd"]
    return len({config.batch_size for config in configs}) > 1 and len({config.lr for config in configs}) > 1


def regime_figure(results: Iterable[Result]) -> Figure | None:
    """Two panels per result and method; None while no cell has a pair."""
    maps = [(found, one) for found in results for one in regime_maps(found)]
    if not maps:
        return None
    settings = "; ".join(dict.fromkeys(_setting(found) for found, _ in maps))
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
        panels=[_panel(found, one, maps) for found, one in maps],
        columns=2,
    )


def regime_maps(found: Result) -> list[RegimeMap]:
    """Two maps per method; claims are corrected for all cells and methods of a kind."""
    plain: dict[Cell, ArmResult] = {}
    directed: dict[str, dict[Cell, ArmResult]] = {}
    for row in found.arms.values():
        if not row.trials:
            continue
        cell = (row.arm.config.batch_size, row.arm.config.lr)
        if row.arm.config.metric == "identity":
            plain[cell] = row
        else:
            directed.setdefault(method(row.arm.config), {})[cell] = row
    best = {size: best_rate(found, size) for size, _ in plain}
    same = {(name, cell): row.comparison for name, rows in directed.items() for cell, row in rows.items()}
    to_best = {
        (name, cell): _paired(found, plain[cell[0], rate], row)
        for name, rows in directed.items()
        for cell, row in rows.items()
        if (rate := best.get(cell[0])) is not None
    }
    # Cells that are not run yet count too, as they do for the comparisons of the table.
    corrected = holm(to_best, found.experiment.comparisons)
    maps = []
    for name in directed:
        for against_best, comparisons in ((False, same), (True, corrected)):
            mine = {cell: one for (method, cell), one in comparisons.items() if method == name and one is not None}
            if any(one.n for one in mine.values()):
                maps.append(RegimeMap(name, against_best, mine))
    return maps


def _paired(found: Result, baseline: ArmResult, row: ArmResult) -> Comparison:
    return paired(
        baseline.scores,
        row.scores,
        margin=_margin(found),
        higher_is_better=found.score.higher_is_better,
        percent=found.score.percent,
        collapsed=found.experiment.collapsed,
    )


def _margin(found: Result) -> float:
    margins = [each.judged.margin for each in found.arms.values() if each.judged is not None]
    return max(margins, default=found.experiment.margin.value(found.score.percent))


def best_rate(found: Result, size: int, metric: str = "identity") -> float | None:
    """The rate at which a metric scores best for a batch size; one at which a trial diverged does not count."""
    means = {}
    for row in found.arms.values():
        config, diverged = row.arm.config, len(row.scores) - len(row.finite)
        if config.metric == metric and config.batch_size == size and row.scores and not diverged:
            means[config.lr] = statistics.fmean(row.finite)
    if not means:
        return None
    return (max if found.score.higher_is_better else min)(means, key=lambda rate: means[rate])


def _panel(found: Result, one: RegimeMap, maps: Sequence[tuple[Result, RegimeMap]]) -> Panel:
    times = 100.0 if found.score.percent else 1.0
    shape = (len(one.sizes), len(one.rates))
    z, hatched = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    texts = [[""] * shape[1] for _ in one.sizes]
    for (size, rate), comparison in one.comparisons.items():
        row, column = one.sizes.index(size), one.rates.index(rate)
        if comparison.n:
            z[row, column] = times * comparison.difference
        texts[row][column] = _text(comparison, times)
        hatched[row, column] = comparison.verdict == Verdict.UNDECIDED
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
            largest=_end(found, one.against_best, maps),
        ),
    )


def _end(found: Result, against_best: bool, maps: Sequence[tuple[Result, RegimeMap]]) -> float | None:
    """One scale for all methods: a collapsed cell must not leave the others without colour, nor noise have it all."""
    times = 100.0 if found.score.percent else 1.0
    sizes = sorted(
        abs(times * one.difference)
        for other, regime_map in maps
        for one in regime_map.comparisons.values()
        if other is found and regime_map.against_best == against_best and one.n
    )
    return 2 * max(statistics.median(sizes), times * _margin(found)) if sizes else None


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
        f"{one.method} against {one.against}: better in {verdicts.count(Verdict.BETTER)} of {len(verdicts)} cells,"
        f" worse in {verdicts.count(Verdict.WORSE)}, the same in {verdicts.count(Verdict.SAME)}."
    )


def _setting(found: Result) -> str:
    config = next(iter(found.arms.values())).arm.config
    images = "" if config.train_limit is None else f", {config.train_limit:,} training images"
    epochs = count(config.epochs, "epoch")
    trials = max(len(row.trials) for row in found.arms.values())
    return f"{dataset(config)}, {network(config.model)}, {epochs}{images}, up to {count(trials, 'seed')} per cell"
