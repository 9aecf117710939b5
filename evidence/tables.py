"""The tables of the pages, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evidence.contrasts import KEPT, norm_kept
from evidence.numbers import Arm, Arms, Correlation
from evidence.regularity import DIRECTIONS, QUANTITIES, filters_of


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A column of dashes for cells without a value would read as one, so that these stay empty."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def results(arms: Arms) -> str:
    """Every arm with its scores, and its difference from its baseline."""
    several = len({arm.result.arm.baseline for arm in arms.values()} - {None}) > 1
    head = ["arm", *["against"] * several, "trials", "train, %", "test, % ± sd", "difference (95% interval)"]
    rows = []
    for label, arm in arms.items():
        against = [arm.result.arm.baseline or ""] * several
        trials = f"{len(arm.result.scores)}/{arm.result.wanted}"
        rows.append([label, *against, trials, arm.train, f"{arm.mean} ± {arm.sd}", *_difference(arm)])
    family = max(one.family for arm in arms.values() if (one := arm.result.comparison))
    return markdown([*head, "p", f"p, Holm for {family}", "detectable", "verdict"], rows)


def _difference(arm: Arm) -> list[str]:
    if arm.result.comparison is None:
        return [""] * 5
    return [str(arm), arm.p, arm.p_holm, arm.detectable, arm.conclusion]


def changes(arms: Arms, controlled: Arms) -> str:
    """What a kept norm changes: the differences from SGD, and how far training went."""
    head = [
        "arm",
        "norm not kept",
        "norm kept",
        "change",
        "verdict",
        "train, %",
        "norm kept",
        "SGD",
        "gradient longer by",
    ]
    rows = []
    for label, change in norm_kept(arms, controlled).items():
        arm, kept = arms[label], controlled[label + KEPT]
        train = [each.train for each in (arm, kept, arms[arm.result.arm.baseline or ""])]
        rows.append([label, str(arm), str(kept), str(change), change.conclusion, *train, f"{arm.longer} times"])
    return markdown(head, rows)


def held_out(scores: Mapping[str, Mapping[float, str]], best: Mapping[str, float]) -> str:
    """The rates that were tried, with the held-out scores that chose among them."""
    rates = sorted(next(iter(scores.values())))
    head = ["held-out accuracy, %", *(f"rate {rate:g}" for rate in rates), "best"]
    return markdown(head, [[arm, *(own[rate] for rate in rates), f"{best[arm]:g}"] for arm, own in scores.items()])


def filters(experiments: Mapping[str, Arms], compared: Mapping[tuple[str, str, str], Correlation]) -> str:
    """Level and order of every arm, and their differences from SGD's; controls have none."""
    head = ["experiment", "arm", "level", "minus SGD's", "order", "minus SGD's", "beyond random order"]
    rows = []
    for name, arms in experiments.items():
        for label, arm in arms.items():
            if name.endswith("controls") and arm.config.control == "none":
                continue  # it stands in its own experiment
            own, cells = filters_of(arm), [name, label]
            for quantity in QUANTITIES:
                one = compared.get((name, label, quantity))
                cells += [f"{own.mean(quantity):+.4f}", f"{one}, {one.conclusion}" if one else ""]
            rows.append([*cells, own.beyond_random])
    return markdown(head, rows)


def orders(pairs: Mapping[tuple[str, str], Correlation]) -> str:
    """The order of SobolevTilde minus that of ReweightedL2."""
    head = ["experiment", "arm", "order minus ReweightedL2's", "seeds in which it is higher"]
    rows = [[*key, str(one), f"{one.comparison.wins} of {one.comparison.n}"] for key, one in pairs.items()]
    return markdown(head, rows)


def plain_filters(experiments: Mapping[str, Arms]) -> str:
    """Level and order of SGD's own filters, along both directions."""
    head = [
        "experiment",
        "arm",
        *(f"{quantity}, {direction}" for direction in DIRECTIONS for quantity in QUANTITIES),
    ]
    rows = [
        [name, label, *map(str, filters_of(arm).in_both_directions().own().values())]
        for name, arms in experiments.items()
        for label, arm in arms.items()
        if arm.config.metric == "identity"
    ]
    return markdown(head, rows)
