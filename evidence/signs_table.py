"""The comparisons of PROTOCOL-2.md whose trials are complete.

python -m evidence.signs_table RUNS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from evidence.signs import PART_3, TRIALS_2, Cell, Pair, chosen, confirmations, parts, scores, search
from riesz_lab.statistics import Comparison, holm, paired
from riesz_lab.statistics.comparison import Scores
from riesz_lab.store import Store
from riesz_lab.utils.terminal import table

MARGIN = 0.002
LOOKS = {8: 0.001, 16: 0.001, 24: 0.048}
"""Of part 3: pairs, and the p below which it ends there."""


def complete(cell: Cell, done: Mapping[str, float | None]) -> dict[str, Scores] | None:
    """The scores of a cell by arm and seed; None while a trial is missing, since no part of a cell is looked at."""
    arms = chosen(cell, done)
    trials = {label: {seed: replace(arm, seed=seed).id for seed in cell.seeds} for label, arm in arms.items()}
    if len(arms) < len(cell.arms) or any(id_ not in done for ids in trials.values() for id_ in ids.values()):
        return None
    return {label: {seed: done[id_] for seed, id_ in ids.items()} for label, ids in trials.items()}


def compare(cell: Cell, by_arm: Mapping[str, Scores]) -> dict[Pair, Comparison]:
    return {(arm, base): paired(by_arm[base], by_arm[arm], margin=MARGIN) for arm, base in cell.pairs}


def verdicts(done: Mapping[str, float | None]) -> Iterator[str]:
    """Of the confirmed comparisons, corrected for all of them; nothing while a trial of one is missing."""
    tables = {cell.name: (cell, complete(cell, done)) for cell in confirmations()}
    if any(by_arm is None for _, by_arm in tables.values()):
        yield "confirmation: trials are missing"
        return
    found = {
        (name, *pair): one
        for name, (cell, by_arm) in tables.items()
        for pair, one in compare(cell, by_arm or {}).items()
    }
    for (name, arm, base), one in holm(found).items():
        yield f"{name}: {arm} against {base}: {one.sentence}"


def lines(cell: Cell, done: Mapping[str, float | None]) -> Iterator[str]:
    by_arm = complete(cell, done)
    if by_arm is None:
        yield f"{cell.name}: trials are missing"
        return
    rows = []
    for label, by_seed in by_arm.items():
        finite = [score for score in by_seed.values() if score is not None]
        rate = search(cell.arms[label], done).rate if cell.tuned else cell.arms[label].lr
        mean = f"{100 * sum(finite) / len(finite):.2f}" if finite else "-"
        rows.append((label, f"{rate:g}", mean, f"{len(finite)}/{len(by_seed)}"))
    yield f"{cell.name}\n{table(('arm', 'rate', 'accuracy', 'finished'), rows, right=(1, 2, 3))}"
    differences = []
    for (arm, base), one in compare(cell, by_arm).items():
        low, high = one.interval or (float("nan"), float("nan"))
        p = "-" if one.p is None else f"{one.p:.4f}"
        differences.append((arm, base, f"{100 * one.difference:+.2f}", f"{100 * low:+.2f} to {100 * high:+.2f}", p))
    yield table(("arm", "against", "points", "95% interval", "p"), differences, right=(2, 3, 4))


def main(runs: Path) -> None:
    done = scores(Store(runs, TRIALS_2))
    for cell in parts([1, 2], done):
        print("\n".join(lines(cell, done)), end="\n\n")
    print("\n".join(verdicts(done)), end="\n\n")
    for cell in PART_3:
        for pairs, level in LOOKS.items():
            if pairs <= len(cell.seeds):
                looked = replace(cell, seeds=cell.seeds[:pairs])
                print(f"look at {pairs} pairs, ends at p < {level:g}:", *lines(looked, done), sep="\n", end="\n\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.signs_table RUNS")
    main(Path(sys.argv[1]))
