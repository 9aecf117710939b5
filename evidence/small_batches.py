"""Question 3: do small batches gain most, and is the gain still there at the rate that suits them?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import riesz
from evidence.attribution import OPEN, Attribution, attribute, compared, gains
from evidence.conclusions import OUTCOMES, outcome
from evidence.wording import count_verdicts, metrics, numbers, points, said, train_accuracy
from riesz_lab.report.figures.regimes import best_rate, regime_maps
from riesz_lab.report.published import published
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.sweeps import ArmResult, SweepResult

SMALL, LARGE, PAPER_RATE = 8, 128, 0.1
"""The batch sizes and the rate at which the paper's gain is largest and smallest."""

MORE = {"better": "higher", "worse": "lower", "no difference": "no difference"}
"""Not "gains more": a loss that is smaller is no gain."""


def published_gain(metric: str, batch: int) -> float:
    """What the paper's metric gains over SGD with ResNet-56 on CIFAR-10, as a fraction."""
    row = next(row for row in published()["cifar10"] if row["network"] == "ResNet-56" and row["batch"] == batch)
    return float(row[metric] - row["baseline"]) / 100


@dataclass(frozen=True)
class SmallBatches:
    """What the claim rests on, for one metric."""

    metric: str
    published: float  # what it gains in the paper where that is most
    small: Comparison  # with SGD where the paper's gain is largest
    large: Comparison  # with SGD where it is smallest
    more: Comparison  # the difference of the small batches minus that of the large ones, seed by seed
    sgd_rate: float | None  # at which SGD's mean is highest at the small batch size; None if all rates diverged
    own_rate: float | None  # at which the metric's is
    edges: tuple[float, ...]  # those of the two that are the smallest or largest that was run
    at_sgd_rate: Attribution | None  # the gain at `sgd_rate`, if it is another one than the paper's
    each_at_best: Comparison | None  # with SGD, each at its own rate, if these are two

    @property
    def outcome(self) -> str:
        """Of the claim that small batches gain most."""
        if self.small.verdict != "better":
            return outcome(self.small)
        return {
            "better": outcome(self.small),
            "worse": f"a gain, yet a smaller one than at batch {LARGE}",
            "no difference": f"a gain, yet no larger one than at batch {LARGE}",
        }.get(self.order, f"a gain; open whether it is larger than at batch {LARGE}")

    @property
    def order(self) -> str:
        """The verdict on `more`; none where trials diverged, since their pairs may be the ones that matter."""
        return "no claim" if any((*self.small.diverged, *self.large.diverged)) else self.more.verdict

    @property
    def rate_conclusion(self) -> str:
        """Of a gain: whether the rate explains it."""
        if self.sgd_rate is None:
            return "trials of SGD diverged at every rate, so that none suits it"
        if self.at_sgd_rate is None:
            return "no rate that was run suits SGD better, so the rate does not explain the gain"
        best, fate = self.each_at_best or self.at_sgd_rate.now, self.at_sgd_rate.fate
        if fate == "small":
            return "the gain is no larger than the margin"
        if fate == "part":
            found = "part of the gain is a matter of the rate"
        elif fate == "remains" or (best.verdict == "better" and not best.equivalent):
            found = "the gain is more than a matter of the rate"
        elif fate == "gone" and best.verdict not in OPEN:
            found = "the gain is a matter of the rate"
        else:
            found = "open whether the gain is more than a matter of the rate"
        return f"{found}, as far as the rates that were run tell" if self.edges else found


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
        # At one and the same rate it is a cell of the table, which has a verdict of its own.
        at_best = None if own_rate in (None, sgd_rate) else to_best.get(kind, {}).get((SMALL, own_rate))
        found.append(
            SmallBatches(
                kind,
                published_gain(name.partition("(")[0], SMALL),
                compared(cells[name, SMALL, PAPER_RATE]),
                compared(cells[name, LARGE, PAPER_RATE]),
                more[name],
                sgd_rate,
                own_rate,
                tuple(rate for rate in (min(rates), max(rates)) if rate in (sgd_rate, own_rate)),
                moved.get(name),
                at_best,
            )
        )
    return found


def _more(table: SweepResult, small: ArmResult, large: ArmResult) -> Comparison:
    return paired(gains(table, large), gains(table, small), margin=table.sweep.margin, percent=table.percent)


def conclude(table: SweepResult) -> list[str]:
    """A line for each metric, and one for all batch sizes and rates."""
    return [*(_line(one, _sgd_mean(table, one.sgd_rate)) for one in read(table)), _all_cells(table)]


def _line(one: SmallBatches, sgd_mean: str) -> str:
    parts = [f"{one.metric}: {one.outcome}", f"batch {SMALL}, rate {PAPER_RATE:g}: {_against_paper(one)}"]
    parts.append(f"batch {LARGE}: {said(one.large)} ({numbers(one.large)})")
    more = f"{MORE.get(one.order, 'undecided')} ({numbers(one.more, failures=False)})"
    no_gain = ", a gain at neither" if "better" not in (one.small.verdict, one.large.verdict) else ""
    parts.append(f"the first difference minus the second: {more}{no_gain}")
    edge = dict.fromkeys(one.edges, ", the edge of what was run")
    if one.at_sgd_rate is not None and one.sgd_rate is not None:
        now, chosen = one.at_sgd_rate.now, f"{sgd_mean}, chosen on these scores, which favours SGD"
        where = f"at {one.sgd_rate:g}{edge.get(one.sgd_rate, '')}, where SGD's mean is highest ({chosen})"
        parts.append(f"{where}: {said(now)} ({numbers(now)})")
    if one.each_at_best is not None and one.own_rate is not None:
        rates = f"SGD at {one.sgd_rate:g} and the metric at {one.own_rate:g}{edge.get(one.own_rate, '')}"
        parts.append(
            f"{rates}, where each has its highest mean: {said(one.each_at_best)} ({numbers(one.each_at_best)})"
        )
    if one.small.verdict == "better":
        parts.append(one.rate_conclusion)
    return "; ".join(parts)


def _against_paper(one: SmallBatches) -> str:
    """The difference, and whether its interval has the paper's in it."""
    text = numbers(one.small)
    if one.small.interval is not None:
        inside = one.small.interval[0] <= one.published <= one.small.interval[1]
        text += f"; the paper's {points(one.published)} is {'within' if inside else 'outside'} the interval"
    return text


def _sgd_mean(table: SweepResult, rate: float | None) -> str:
    rows = (row for row in table.rows.values() if row.arm.config.metric == "identity")
    at = [row for row in rows if (row.arm.config.batch_size, row.arm.config.lr) == (SMALL, rate)]
    return f"{100 * statistics.fmean(at[0].finite):.2f}%" if at else ""


def _all_cells(table: SweepResult) -> str:
    """Which batch sizes and rates differ, what could have been seen, and how far the networks were trained."""
    rows = list(metrics(table))
    line = f"All batch sizes and rates: {count_verdicts(rows)}"
    for verdict in OUTCOMES:
        if cells := [f"{row.arm.label} ({numbers(c)})" for row in rows if (c := compared(row)).verdict == verdict]:
            line += f"; {verdict}: {', '.join(cells)}"
    if detectable := [100 * c.detectable for row in rows if (c := compared(row)).detectable is not None]:
        line += f"; one test alone detects {min(detectable):.2f} to {max(detectable):.2f} points"
    sgd = next(row for row in table.rows.values() if row.arm.config.metric == "identity")
    if (train := train_accuracy(sgd)) is not None and sgd.finite:
        test = statistics.fmean(sgd.finite)
        ends = f"{100 * train:.1f}% on training images and {100 * test:.1f}% on test images"
        line += f"; runs are short: {sgd.arm.label} ends at {ends}"
    return line


def in_short(table: SweepResult) -> str:
    """The same in a sentence."""
    parts = [f"for {one.metric} {one.outcome} ({_against_paper(one)})" for one in read(table)]
    cells = count_verdicts(metrics(table))
    claim = f"On CIFAR-10 with ResNet-20, that batch {SMALL} at a rate of {PAPER_RATE:g} gains most is"
    return f"{claim} {', '.join(parts)}; {cells}."
