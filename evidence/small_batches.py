"""Question 3: do small batches gain most, and is the gain still there at the rate that suits them?"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import riesz
from evidence.attribution import OPEN, Attribution, attribute
from evidence.conclusions import OUTCOMES, outcome
from evidence.rows import compared, gains, metrics, train_accuracy
from evidence.wording import count_verdicts, if_small, interval, numbers, points, said
from riesz_lab.report.figures.regimes import best_rate, regime_maps
from riesz_lab.report.published import published
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.sweeps import ArmResult, SweepResult
from riesz_lab.sweeps.controls import CONTROLS

SMALL, LARGE, PAPER_RATE = 8, 128, 0.1
"""The batch sizes and the rate at which the paper's gain is largest and smallest."""

WHERE = f"on CIFAR-10 at batch {SMALL} and learning rate {PAPER_RATE:g}, where the paper gains most"

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
    rates: tuple[float, ...]  # that were run at the small batch size
    sgd_rate: float | None  # SGD's best of them; None if trials diverged at every one
    own_rate: float | None  # the metric's best
    at_sgd_rate: Attribution | None  # the gain at `sgd_rate`, if it is another one than the paper's
    each_at_best: Comparison | None  # with SGD, each at its own rate, if these are two

    @property
    def outcome(self) -> str:
        """Of the claim that small batches gain most."""
        if self.small.verdict != "better":
            return f"contradicted, less than at batch {LARGE}" if self.order == "worse" else outcome(self.small)
        gain = {
            "better": OUTCOMES["better"],
            "worse": f"a gain, yet a smaller one than at batch {LARGE}",
            "no difference": f"a gain, yet no larger one than at batch {LARGE}",
        }.get(self.order, f"a gain; open whether it is larger than at batch {LARGE}")
        return gain + if_small(self.small)

    @property
    def order(self) -> str:
        """The verdict on `more`; none where trials diverged, since their pairs may be the ones that matter."""
        return "no claim" if self.more.n < self.more.trials else self.more.verdict

    @property
    def rate_conclusion(self) -> str:
        """Of a gain: whether the rate explains it."""
        if self.small.equivalent:
            return "a gain within the margin is not explained"
        if self.at_sgd_rate is None:
            found = "no rate that was run suits SGD better, so that none explains the gain"
        else:
            best, fate = self.each_at_best or self.at_sgd_rate.now, self.at_sgd_rate.fate
            if fate in ("larger", "remains", "part") or (best.verdict == "better" and not best.equivalent):
                found = "the gain is more than a matter of the rate"
                found += ", though part of it is one" if fate == "part" else ""
            elif fate == "gone" and best.verdict not in OPEN:
                found = "the gain is a matter of the rate"
            else:
                found = "open whether the gain is more than a matter of the rate"
        at_the_edge = {min(self.rates), max(self.rates)} & {self.sgd_rate, self.own_rate}
        return found + (", as far as the rates that were run tell" if at_the_edge else "")

    def at(self, rate: float | None) -> str:
        """The rate, and whether a better one may lie beyond those that were run."""
        return f"{rate:g}" + (", the edge of what was run" if rate in (min(self.rates), max(self.rates)) else "")


def read(table: SweepResult) -> list[SmallBatches]:
    """One for each metric of the sweep."""
    cells = {(row.arm.config.metric, row.arm.config.batch_size, row.arm.config.lr): row for row in metrics(table)}
    names = list(dict.fromkeys(metric for metric, _, _ in cells))
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
        other_rate = None if sgd_rate is None or sgd_rate == own_rate else own_rate
        found.append(
            SmallBatches(
                kind,
                published_gain(name.partition("(")[0], SMALL),
                compared(cells[name, SMALL, PAPER_RATE]),
                compared(cells[name, LARGE, PAPER_RATE]),
                more[name],
                tuple(rate for metric, size, rate in cells if (metric, size) == (name, SMALL)),
                sgd_rate,
                own_rate,
                moved.get(name),
                None if other_rate is None else to_best[kind][SMALL, other_rate],
            )
        )
    return found


def _more(table: SweepResult, small: ArmResult, large: ArmResult) -> Comparison:
    return paired(gains(table, large), gains(table, small), margin=table.sweep.margin, percent=table.percent)


def conclude(table: SweepResult) -> list[str]:
    """A line for each metric, and one for all batch sizes and rates."""
    return [*(f"{one.metric}: {_verdict(one)}" for one in read(table)), _all_cells(table)]


def explain(table: SweepResult) -> list[str]:
    """A line for each metric, with all that its verdict rests on."""
    return list(map(_line, read(table)))


def _verdict(one: SmallBatches) -> str:
    more = ""
    if one.more.interval is not None:
        more = f"; the difference minus that at batch {LARGE}: {points(one.more.difference)}, {interval(one.more)}"
    more += _at_sgd_rate(one)
    return ", ".join([f"{one.outcome} ({_against_paper(one)}{more})", *_rate_conclusion(one)])


def _line(one: SmallBatches) -> str:
    parts = [f"{one.metric}: {one.outcome}", f"batch {SMALL}, rate {PAPER_RATE:g}: {_against_paper(one)}"]
    parts.append(f"batch {LARGE}: {said(one.large)} ({numbers(one.large)})")
    more = f"{MORE.get(one.order, 'undecided')} ({numbers(one.more, failures=False)})"
    shown = "better" in (one.small.verdict, one.large.verdict) or one.order not in ("better", "worse")
    parts.append(f"the first difference minus the second: {more}{'' if shown else ', no gain shown at either'}")
    if one.at_sgd_rate is not None:
        now = one.at_sgd_rate.now
        chosen = f"SGD's best rate ({100 * now.baseline_mean:.2f}%; chosen on these scores, which favours SGD)"
        parts.append(f"at {one.at(one.sgd_rate)}, {chosen}: {said(now)} ({numbers(now)})")
    if one.each_at_best is not None:
        rates = f"SGD at {one.at(one.sgd_rate)}, and the metric at {one.at(one.own_rate)}, each at its best"
        parts.append(f"{rates}: {said(one.each_at_best)} ({numbers(one.each_at_best)})")
    return "; ".join([*parts, *_rate_conclusion(one)])


def _at_sgd_rate(one: SmallBatches, detectable: bool = True) -> str:
    """The difference at the rate that suits SGD best, if it is another one than the paper's."""
    if one.at_sgd_rate is None:
        return ""
    now = one.at_sgd_rate.now
    return f"; at {one.sgd_rate:g}, SGD's best rate: {said(now)}, {numbers(now, detectable=detectable)}"


def _rate_conclusion(one: SmallBatches) -> list[str]:
    return [one.rate_conclusion] if one.small.verdict == "better" else []


def _against_paper(one: SmallBatches) -> str:
    """The difference, and whether its interval has the paper's in it."""
    text = numbers(one.small)
    if one.small.interval is not None:
        inside = one.small.interval[0] <= one.published <= one.small.interval[1]
        text += f"; the paper's {points(one.published)} is {'within' if inside else 'outside'} the interval"
    return text


def _all_cells(table: SweepResult) -> str:
    """Which batch sizes and rates differ, what could have been seen, and how far the networks were trained."""
    rows = list(metrics(table))
    line = f"All batch sizes and rates: {count_verdicts(rows)}"
    for verdict in ("better", "worse"):
        if cells := [_cell(row, rows) for row in rows if compared(row).verdict == verdict]:
            line += f"; {verdict}: {', '.join(cells)}"
    if detectable := [100 * c.detectable for row in rows if (c := compared(row)).detectable is not None]:
        line += f"; detectable alone: {min(detectable):.2f} to {max(detectable):.2f} points"
    sgd = next(row for row in table.rows.values() if row.arm.config.metric == "identity")
    if (train := train_accuracy(sgd)) is not None and sgd.finite:
        ends = f"{100 * train:.1f}% on training images and {100 * statistics.fmean(sgd.finite):.1f}% on test images"
        line += f"; runs are short: {sgd.arm.label} ends at {ends}"
    return line


def _cell(row: ArmResult, rows: list[ArmResult]) -> str:
    """An arm with its difference, and with that of the other metric at the same batch size and rate."""
    others = [
        f"{other.arm.label}: {said(compared(other))}, {numbers(compared(other), detectable=False)}"
        for other in rows
        if other is not row and other.arm.baseline == row.arm.baseline
    ]
    return f"{row.arm.label} ({'; '.join([numbers(compared(row)), *others])})"


def underpowered(table: SweepResult) -> bool:
    """Whether one test alone has less than 80% power for a gain as large as the paper's, for every metric."""
    return all(one.small.detectable is not None and one.small.detectable > one.published for one in read(table))


def in_short(table: SweepResult, controlled: SweepResult | None = None) -> str:
    """The same in a sentence; a contrast with large batches, where one is shown, in words.

    Args:
        table: the sweep.
        controlled: its controls, if a metric differs.
    """
    order = {"better": "higher than", "worse": "lower than", "no difference": "within the margin of"}
    found = []
    for one in read(table):
        size = f"{numbers(one.small, detectable=False)}; the paper: {points(one.published)}"
        if one.order in order:
            size += f"; {order[one.order]} that at batch {LARGE}"
        size += _at_sgd_rate(one, detectable=False)
        found.append(", ".join([f"{one.metric} {one.outcome} ({size})", *_rate_conclusion(one)]))
    config = next(metrics(table)).arm.config
    here = (
        f"there ResNet-56; here ResNet-20, {config.train_limit:,} images and {config.epochs} epochs; differences from"
        " SGD in points, with 95% intervals"
    )
    counted = f"at all batch sizes and rates, {count_verdicts(metrics(table))}{_differing(table, controlled)}"
    return f"{WHERE[0].upper()}{WHERE[1:]} ({here}): {'; '.join(found)}; {counted}."


def _differing(table: SweepResult, controlled: SweepResult | None) -> str:
    """Which arms differ, each with what a kept norm leaves of it."""
    named = []
    for row in metrics(table):
        if (verdict := compared(row).verdict) in ("better", "worse"):
            config = row.arm.config
            where = f"{type(riesz.metric(config.metric)).__name__} at batch {config.batch_size} and rate {config.lr:g}"
            text = f"{verdict}: {where} ({numbers(compared(row))})"
            kept = controlled and controlled.rows.get(f"{row.arm.label}, {CONTROLS['norm']}")
            if controlled and kept and controlled.complete:
                now = compared(kept)
                text += f", with the norm of the gradient kept {said(now)} ({numbers(now, detectable=False)})"
            named.append(text)
    return "".join(f"; {text}" for text in named)
