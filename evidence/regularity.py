"""What trained weights show along the output channels: correlation of neighbours, and of all filters.

Trials of one seed start from the same weights, so a method is compared with SGD seed by seed.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from evidence.rows import strength
from riesz_lab.config import Config
from riesz_lab.report.labels import metric_kind
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.store import StoredTrial
from riesz_lab.sweeps import Arm, SweepResult
from riesz_lab.sweeps.methods import setting

Layers = list[dict[str, Any]]
"""The layers of a trial, as evidence.collect stores them."""

Arms = Mapping[str, tuple[Arm, Mapping[Hashable, Layers | None]]]
"""The arms of a sweep by label, each with its trials by seed; None for one that diverged."""

Key = tuple[str, str, str]
"""Sweep, arm and quantity."""

QUANTITIES = {
    "level": "correlation of all pairs of filters",
    "order": "correlation of neighbouring filters minus that of all pairs",
}

AXES = ("output", "input")

MARGIN = 0.01
"""A difference in correlation that does not matter."""

WORDS = {"better": "higher", "worse": "lower", "no difference": f"equal within {MARGIN}", "no evidence": "undecided"}
"""Verdicts on a correlation, which is neither good nor bad."""

WHOSE = {True: "of SGD (in the paper, it is the reverse)", False: "with a metric"}

HEADER = (
    "Along the output channels, mean over layers and seeds: *level* is the correlation of all pairs of filters, which"
    " ReweightedL2 assumes; *order* is the correlation of neighbouring filters minus the level, which a Sobolev metric"
    " assumes; in random order of the channels it is zero on average. A step along f + lam mean(f) moves all filters"
    " alike: a higher level follows from the method, and is no benefit by itself. Trials of one seed start from the"
    " same weights, so both are compared with those of SGD seed by seed, with 95% intervals; verdicts are"
    " Holm-corrected for all arms and both quantities. *Beyond random order* counts the layers, over all seeds, whose"
    " order random orders of the channels reach in fewer than 5% of cases (`riesz inspect`): a description, not a"
    " verdict. Rows of controls are described only.",
    "",
    "| sweep | arm | seeds | level | level minus SGD's | order | order minus SGD's | beyond random order |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)

PAIRED_HEADER = (
    "Order shrinks as the level rises, since filters that are all alike leave little to tell neighbours by, so"
    " comparing it with SGD's works against metrics that raise the level. ReweightedL2 at the same lam raises it"
    " about as much and ignores the order of the channels. Not planned and not corrected: the order of SobolevTilde"
    " minus that of ReweightedL2, with 95% intervals.",
    "",
    "| sweep | SobolevTilde | order minus ReweightedL2's | seeds in which it is higher |",
    "| --- | --- | --- | --- |",
)

PLAIN_HEADER = (
    "The paper also shows that SGD's own filters are correlated along the output and not along the input. Below: SGD"
    " alone, means over seeds and layers, without the first layer, which has too few input channels. The 95% intervals"
    " are not corrected.",
    "",
    "| sweep | arm | seeds | level, output | order, output | level, input | order, input |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def measure(tables: Iterable[SweepResult]) -> dict[str, Arms]:
    """What is stored of the weights, by sweep."""
    return {
        table.sweep.name.removeprefix("evidence-"): {
            label: (row.arm, {seed: _layers(trial) for seed, trial in row.trials.items()})
            for label, row in table.rows.items()
        }
        for table in tables
    }


def _layers(trial: StoredTrial) -> Layers | None:
    file = trial.path / "regularity.json"
    layers: Layers = json.loads(file.read_text()) if trial.status == "finished" and file.exists() else []
    return layers or None


def compare(measured: Mapping[str, Arms]) -> dict[Key, Comparison]:
    """By sweep, arm and quantity: each metric against its baseline, by seed."""
    return holm(
        {
            (name, label, quantity): paired(
                _means(arms[arm.baseline][1], quantity), _means(layers, quantity), margin=MARGIN
            )
            for name, arms in measured.items()
            for label, (arm, layers) in arms.items()
            if arm.baseline is not None and arm.config.metric != "identity"
            for quantity in QUANTITIES
        }
    )


def verdicts(compared: Mapping[Key, Comparison]) -> list[str]:
    """How many comparisons with SGD, by sweep, arm and quantity, came out which way; a line for each quantity."""
    lines = []
    for quantity, meaning in QUANTITIES.items():
        of_quantity = [one for (_, _, name), one in compared.items() if name == quantity and one.n]
        counted = Counter(_word(one) for one in of_quantity)
        higher = f"{counted.pop('higher', 0)} of {len(of_quantity)} arms higher"
        counts = ", ".join([higher, *(f"{n} {word}" for word, n in counted.items())])
        ends = [f"{end(one.difference for one in of_quantity):+.3f}" for end in (min, max)] if of_quantity else []
        sizes = f" (mean differences {' to '.join(ends)}{_interval_range(of_quantity)})" if ends else ""
        lines.append(f"{meaning}, against SGD's: {counts}{sizes}")
    return lines


def along_input(measured: Mapping[str, Arms]) -> str:
    """In how many arms filters are more alike along the input than along the output; a description, not a test."""
    higher: dict[bool, list[bool]] = {True: [], False: []}
    for arm, trials in (one for arms in measured.values() for one in arms.values()):
        both = {seed: _in_both_directions(layers) for seed, layers in trials.items()}
        if any(both.values()):
            plain = arm.config.metric == "identity"
            higher[plain].append(_mean(both, "level", "input") > _mean(both, "level"))
    counts = [f"in {sum(higher[plain])} of {len(higher[plain])} arms {who}" for plain, who in WHOSE.items()]
    return f"more alike along the input than along the output, not tested: {', '.join(counts)}"


def against_reweighted(measured: Mapping[str, Arms]) -> dict[tuple[str, str], Comparison]:
    """By sweep and arm: the order of SobolevTilde minus that of ReweightedL2 at the same lam, by seed."""
    found = {}
    for name, arms in measured.items():
        reweighted = {_lam(arm): trials for arm, trials in arms.values() if metric_kind(arm.config) == "reweighted-l2"}
        for label, (arm, trials) in arms.items():
            if metric_kind(arm.config) == "sobolev-tilde" and (partner := reweighted.get(_lam(arm))) is not None:
                found[name, label] = paired(_means(partner, "order"), _means(trials, "order"), margin=MARGIN)
    return {key: one for key, one in found.items() if one.n}


def _lam(arm: Arm) -> tuple[Config, float]:
    """What two metrics at the same lam have in common."""
    return setting(arm.config), strength(arm.config)


def describe_order(measured: Mapping[str, Arms]) -> str:
    """How SobolevTilde's order compares with ReweightedL2's; a description, not a planned test."""
    found = against_reweighted(measured).values()
    higher = [one for one in found if one.wins == one.n]
    sizes = [f"{end(one.difference for one in higher):.3f}" for end in (min, max)] if higher else []
    return (
        "order of SobolevTilde minus that of ReweightedL2 at the same lam, not planned: higher in every seed in"
        f" {len(higher)} of {len(found)} pairs of arms{', by ' if sizes else ''}{' to '.join(sizes)}"
    )


def section(
    measured: Mapping[str, Arms], compared: Mapping[Key, Comparison], controlled: Mapping[str, Arms] | None = None
) -> list[str]:
    """The tables of the page, of the arms that have trials; those of controls are described only."""
    lines, pairs, plain = [*HEADER], [*PAIRED_HEADER], [*PLAIN_HEADER]
    for (name, label), one in against_reweighted(measured).items():
        pairs.append(f"| {name} | {label} | {_cell(one, words=False)} | {one.wins} of {one.n} |")
    for name, arms in {**measured, **(controlled or {})}.items():
        for label, (arm, trials) in arms.items():
            if not (known := [seed for seed, layers in trials.items() if layers]):
                continue
            cells = [name, label, str(len(known))]
            for quantity in QUANTITIES:
                cells.append(f"{_mean(trials, quantity):+.4f}")
                cells.append(_cell(compared.get((name, label, quantity))))
            cells.append(_beyond_random(trials))
            lines.append(f"| {' | '.join(cells)} |")
            if arm.config.metric == "identity":
                plain.append(f"| {' | '.join([name, label, str(len(known)), *_own(trials)])} |")
    return [*lines, "", *pairs, "", *plain, ""]


def _beyond_random(trials: Mapping[Hashable, Layers | None]) -> str:
    layers = [one for found in trials.values() for one in found or () if one["direction"] == "output" and "p" in one]
    return f"{sum(one['p'] < 0.05 for one in layers)} of {len(layers)}"


def _interval_range(comparisons: Iterable[Comparison]) -> str:
    """The least and greatest end of their intervals."""
    ends = [end for one in comparisons for end in one.interval or ()]
    return f"; 95% intervals within {min(ends):+.3f} to {max(ends):+.3f}" if ends else ""


def _in_both_directions(layers: Layers | None) -> Layers:
    """Those that are measured along output and input: a layer that sees one channel, or few, is not along the input."""
    along = {direction: {one["layer"] for one in layers or () if one["direction"] == direction} for direction in AXES}
    return [one for one in layers or () if all(one["layer"] in names for names in along.values())]


def _own(trials: Mapping[Hashable, Layers | None]) -> Iterator[str]:
    """Level and order themselves, along the output and along the input."""
    both = {seed: _in_both_directions(layers) for seed, layers in trials.items()}
    for direction, quantity in product(AXES, QUANTITIES):
        means = _means(both, quantity, direction)
        yield _cell(paired(dict.fromkeys(means, 0.0), means, margin=MARGIN), words=False)


def _cell(comparison: Comparison | None, words: bool = True) -> str:
    if comparison is None or not comparison.n:
        return ""
    ends = comparison.interval
    interval = f" ({ends[0]:+.4f} to {ends[1]:+.4f})" if ends else ""
    return f"{comparison.difference:+.4f}{interval}" + (f", {_word(comparison)}" if words else "")


def _word(comparison: Comparison) -> str:
    return WORDS.get(comparison.verdict, comparison.verdict)


def _mean(trials: Mapping[Hashable, Layers | None], quantity: str, direction: str = "output") -> float:
    return statistics.fmean(mean for mean in _means(trials, quantity, direction).values() if mean is not None)


def _means(
    trials: Mapping[Hashable, Layers | None], quantity: str, direction: str = "output"
) -> dict[Hashable, float | None]:
    """By seed, the mean over layers."""
    means: dict[Hashable, float | None] = {}
    for seed, layers in trials.items():
        values = [layer[quantity] for layer in layers or () if layer["direction"] == direction]
        means[seed] = statistics.fmean(values) if values else None
    return means
