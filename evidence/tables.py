"""The table of every sweep of the protocol, from stored trials."""

from __future__ import annotations

from pathlib import Path

from evidence import TRIALS, sweeps
from evidence.claims import CLAIMS
from riesz_lab.errors import ConfigError
from riesz_lab.store import Store
from riesz_lab.sweeps import SweepResult, results, tuning

TUNING = tuning.Tuning(factors=sweeps.LR_FACTORS)


def tables(trials: Path = TRIALS) -> dict[str, SweepResult]:
    """The table of each claim's sweep, by its name; the tuned one at the rates that were chosen, once they are."""
    store = Store(trials)
    by_name = {}
    for claim in CLAIMS:
        asked = run = claim.sweep()
        if claim.sweep is sweeps.tuned_fashion:
            try:
                run = tuning.tuned(asked, tuning.choices(asked, TUNING, store))
            except ConfigError:  # its tuning trials are not complete
                run = tuning.search(asked, TUNING)
        by_name[asked.name] = results(run, store)
    return by_name


def is_decided(table: SweepResult) -> bool:
    """Whether all trials are there; trials that tune compare nothing."""
    return table.complete and bool(table.comparisons)
