"""Tables divided into parts that can be drawn: of one setting, or of one grid of batch sizes and rates."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from riesz_lab.config import Config
from riesz_lab.report.labels import is_as_published
from riesz_lab.sweeps import ArmResult, SweepResult


def parts(
    tables: Iterable[SweepResult], key: Callable[[Config], Config], beside: Iterable[SweepResult] = ()
) -> list[SweepResult]:
    """The tables, each divided by what `key` makes of the settings of an arm; a part without trials is left out.

    Controls, directions and layers that the paper's tables do not have, and trials that chose a rate are left out. So
    is a part whose trials are all in another, or in a table `beside` them: sweeps share trials, and those of controls
    repeat what they control.
    """
    divided = [part for table in tables for part in _divide(table, key)]
    kept, drawn = [], [_ids(table) for table in beside]
    for part in sorted(divided, key=lambda part: -len(_ids(part))):
        if not any(_ids(part) <= ids for ids in drawn):
            kept.append(part)
            drawn.append(_ids(part))
    return [part for part in divided if any(part is one for one in kept)]


def _divide(table: SweepResult, key: Callable[[Config], Config]) -> list[SweepResult]:
    rows: dict[Config, dict[str, ArmResult]] = {}
    for label, row in table.rows.items():
        config = row.arm.config
        if row.trials and is_as_published(config) and not config.hold_out:
            rows.setdefault(key(config), {})[label] = row
    # Claims stay corrected for all comparisons of the sweep.
    whole = replace(table.sweep, family=table.sweep.comparisons)
    return [replace(table, sweep=whole, rows=some) for some in rows.values()]


def _ids(part: SweepResult) -> set[str]:
    return {trial.config.id for row in part.rows.values() for trial in row.trials.values()}
