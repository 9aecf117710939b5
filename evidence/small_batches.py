"""Question 3: do small batches gain most, and is the gain still there at the rate that suits them?"""

from __future__ import annotations

from dataclasses import dataclass

import riesz
from evidence.attribution import OPEN, Attribution, attribute, compared, gains
from evidence.wording import metrics, numbers
from riesz_lab.report.figures.regimes import best_rate, regime_maps
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.sweeps import ArmResult, SweepResult

SMALL, LARGE, PAPER_RATE = 8, 128, 0.1
"""The batch sizes and the rate at which the paper's gain is largest and smallest."""

MORE = {"better": "higher", "worse": "lower", "no difference": "no difference"}
"""Not "gains more": a loss that is smaller is no gain."""


@dataclass(frozen=True)
class SmallBatches:
    """What the claim rests on, for one metric."""

    metric: str
    small: Comparison  # with SGD where the paper's gain is largest
    large: Comparison  # with SGD where it is smallest
    more: Comparison  # the difference of the small batches minus that of the large ones, seed by seed
    sgd_rate: float | None  # that suits SGD best at the small batch size; None if trials diverged at every rate
    own_rate: float | None  # that suits the metric best there
    edge: bool  # whether one of the two is the smallest or largest that was run
    at_sgd_rate: Attribution | None  # the gain at `sgd_rate`, if it is another one
    each_at_best: Comparison | None  # with SGD, each at the rate that suits it

    @property
    def conclusion(self) -> str:
        if self.sgd_rate is None or self.own_rate is None:
            return "trials diverged at every rate, so that none suits it"
        if self.at_sgd_rate is None:
            return "no other rate suits SGD better"
        fate = self.at_sgd_rate.fate
        if self.small.verdict != "better":
            return "no gain shown, so none to explain"
        if fate == "small":
            return "the gain is no larger than the margin"
        assert self.each_at_best is not None
        if fate == "remains" or (self.each_at_best.verdict == "better" and not self.each_at_best.equivalent):
            return "the gain is more than a matter of the rate"
        if fate == "gone" and self.each_at_best.verdict not in OPEN:
            return "the gain is a matter of the rate"
        return "open whether the gain is more than a matter of the rate"


def read(table: SweepResult) -> list[SmallBatches]:
    """One for each metric of the sweep."""
    cells = {(row.arm.config.metric, row.arm.config.batch_size, row.arm.config.lr): row for row in metrics(table)}
    names = list(dict.fromkeys(metric for metric, _, _ in cells))
    rates = [rate for metric, size, rate in cells if (metric, size) == (names[0], SMALL)]
    sgd_rate = best_rate(table, SMALL)
    more = holm({name: _more(table, cells[name, SMALL, PAPER_RATE], cells[name, LARGE, PAPER_RATE]) for name in names})
    moved = {}
    if sgd_rate not in (None, PAPER_RATE):
        at = {name: (cells[name, SMALL, PAPER_RATE], cells[name, SMALL, sgd_rate]) for name in names}
        moved = attribute({name: (table, then, table, now) for name, (then, now) in at.items()})
    to_best = {one.method: one.comparisons for one in regime_maps(table) if one.against_best}
    found = []
    for name in names:
        kind, own_rate = type(riesz.metric(name)).__name__, best_rate(table, SMALL, name)
        found.append(
            SmallBatches(
                kind,
                compared(cells[name, SMALL, PAPER_RATE]),
                compared(cells[name, LARGE, PAPER_RATE]),
                more[name],
                sgd_rate,
                own_rate,
                bool({sgd_rate, own_rate} & {min(rates), max(rates)}),
                moved.get(name),
                None if own_rate is None else to_best.get(kind, {}).get((SMALL, own_rate)),
            )
        )
    return found


def _more(table: SweepResult, small: ArmResult, large: ArmResult) -> Comparison:
    return paired(gains(table, large), gains(table, small), margin=table.sweep.margin, percent=table.percent)


def conclude(table: SweepResult) -> list[str]:
    """A line for each metric."""
    lines = []
    for one in read(table):
        parts = [
            f"{one.metric}, batch {SMALL}, rate {PAPER_RATE:g}: {one.small.verdict} ({numbers(one.small)})",
            f"batch {LARGE}: {one.large.verdict} ({numbers(one.large)})",
        ]
        more = f"{MORE.get(one.more.verdict, 'open')} ({numbers(one.more, failures=False)})"
        parts.append(f"difference at {SMALL} minus that at {LARGE}: {more}")
        if one.at_sgd_rate is not None:
            now = one.at_sgd_rate.now
            parts.append(f"at {one.sgd_rate:g}, which suits SGD best there: {now.verdict} ({numbers(now)})")
        if one.each_at_best is not None:
            best = f"{one.each_at_best.verdict} ({numbers(one.each_at_best)})"
            edge = ", at the edge of the rates that were run" if one.edge else ""
            parts.append(f"SGD at {one.sgd_rate:g} and the metric at {one.own_rate:g}, each at its best{edge}: {best}")
        lines.append("; ".join([*parts, one.conclusion]))
    return lines


def in_short(table: SweepResult) -> str:
    """The same in a sentence."""
    parts = [f"{one.metric} {one.small.verdict} ({numbers(one.small)}), {one.conclusion}" for one in read(table)]
    return f"On CIFAR-10 at batch {SMALL} and a rate of {PAPER_RATE:g}, against SGD: {'; '.join(parts)}."
