"""The table of every sweep of the protocol, from stored trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from evidence import TRIALS, sweeps
from evidence.claims import CLAIMS
from riesz_lab.errors import ConfigError
from riesz_lab.store import Store
from riesz_lab.sweeps import Sweep, SweepResult, results, tuning

TUNING = tuning.Tuning()
"""The grid that tuning starts with, a factor of 4 to either side; four extensions end at 64, as the protocol says."""

MISSING = "trials are missing"


def tables(store: Store) -> dict[str, SweepResult]:
    """The table of each claim's sweep, by its name; the tuned one at the rates that were chosen, once they are."""
    by_name = {}
    for claim in CLAIMS:
        asked = run = claim.sweep()
        if claim.sweep is sweeps.tuned_fashion:
            run = search(store) if why_not_tuned(store) else tuning.tuned(asked, tuned_rates(store))
        by_name[asked.name] = results(run, store)
    return by_name


def select(by_name: Mapping[str, SweepResult], *makers: Callable[[], Sweep]) -> list[SweepResult]:
    """The tables of these sweeps that are there."""
    return [by_name[name] for make in makers if (name := make().name) in by_name]


def at_one_rate(by_name: Mapping[str, SweepResult]) -> list[SweepResult]:
    """The tables of questions 1 and 3, in which metrics meet SGD at the same rate."""
    return select(by_name, sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd, sweeps.regimes)


def grid(store: Store) -> tuning.Tuning:
    """The rates to try: as many as the stored trials ask for."""
    return tuning.extended(sweeps.tuned_fashion(), TUNING, store)


def search(store: Store) -> Sweep:
    """The trials that tune."""
    return tuning.search(sweeps.tuned_fashion(), grid(store))


def tunes(sweep: Sweep) -> bool:
    """Whether its trials choose rates, and compare nothing."""
    return sweep.arms[0].config.hold_out > 0


def tuned_rates(store: Store) -> dict[str, tuning.Choice]:
    """The rate of each arm of the tuned sweep; ConfigError while trials are missing."""
    return tuning.choices(sweeps.tuned_fashion(), grid(store), store)


def why_not_tuned(store: Store) -> str:
    """Why the tuned sweep has no rates yet; empty if it has."""
    if not results(search(store), store).complete:
        return MISSING
    try:
        tuned_rates(store)
    except ConfigError as error:  # an arm diverged at every rate
        return str(error)
    return ""


def tuned_fashion(trials: Path = TRIALS) -> Sweep:
    """The tuned sweep at the rates that stored trials chose, which the labels name; for `riesz report --sweeps`."""
    store, asked = Store(trials), sweeps.tuned_fashion()
    if reason := why_not_tuned(store):
        raise ConfigError(f"{asked.name}: rates are chosen once all trials that tune are complete: {reason}")
    arms = tuning.tuned(asked, tuned_rates(store)).arms
    labels = {arm.label: f"{arm.label}, lr {arm.config.lr:g}" for arm in arms}
    named = (replace(arm, label=labels[arm.label], baseline=labels.get(arm.baseline or "")) for arm in arms)
    return replace(asked, arms=tuple(named))


def planned(store: Store, by_name: Mapping[str, SweepResult]) -> tuple[set[str], int]:
    """The ids of all trials of the protocol, and how many have none yet: those at rates that are not chosen."""
    run = [table.sweep for table in by_name.values()]
    unknown = len(sweeps.tuned_fashion().all_configs()) if any(map(tunes, run)) else 0
    return {config.id for sweep in (*run, search(store)) for config in sweep.all_configs()}, unknown


def is_decided(table: SweepResult) -> bool:
    """Whether all trials are there; trials that tune compare nothing."""
    return table.complete and bool(table.comparisons)
