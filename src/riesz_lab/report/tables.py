"""The tables of comparisons that the trials of a store allow.

Sweeps that the user names are compared as `riesz sweep NAME --table` does. Other trials that were run for a built-in
sweep are compared as that sweep says, with tuned rates each at its own. The rest (the demo, `riesz compare`, trials by
hand) are compared with the plain optimizer at the same settings, permuted channels with the true order. A trial
records the sweeps it was run for. A claim on a trial that no given sweep has is corrected for as many comparisons as
any of them plans; if none is recorded, for as many as any known sweep with these settings plans, since it may have been
one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from riesz_lab.config import SEEDS, Config
from riesz_lab.report.labels import scale, version
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.store import grouped
from riesz_lab.sweeps import SWEEPS, Arm, Sweep, SweepResult, results
from riesz_lab.sweeps.methods import baseline, method, setting
from riesz_lab.sweeps.tuning import TUNED


def tables(store: Store, margin: float, given: Collection[Sweep] = ()) -> list[SweepResult]:
    """Every table that complete trials allow: of given sweeps, of built-in ones in the order of `SWEEPS`, of the rest.

    Sweeps share trials. A built-in sweep whose stored trials all belong to given ones, or to sweeps with more arms, is
    left out: its table would repeat theirs. Trials of no sweep are compared with this margin.
    """
    groups = grouped(trial for trial in store.trials if trial.result is not None)
    run_for = {group: {name for trial in trials for name in trial.sweeps()} for group, trials in groups.items()}
    stored = [
        (sweep, [arm.config.group for arm in sweep.arms if sweep.name in run_for.get(arm.config.group, ())])
        for sweep in SWEEPS.values()
    ]
    stored.sort(key=lambda pair: (-len(pair[1]), -len(pair[1]) / len(pair[0].arms)))
    in_given = {arm.config.group for sweep in given for arm in sweep.arms}
    covered = set(in_given)
    chosen: list[Sweep] = []
    for sweep, names in stored:
        if not covered.issuperset(names):
            chosen.append(_with_seeds(sweep, [trial for group in sorted(set(names)) for trial in groups[group]]))
            covered.update(names)
    chosen.sort(key=lambda sweep: list(SWEEPS).index(sweep.name))
    for name in sorted({name for names in run_for.values() for name in names if TUNED.fullmatch(name)}):
        names = [group for group in groups if name in run_for[group]]
        tuned = _tuned_sweep(name, [groups[group][0].config for group in names])
        if tuned is not None and not in_given.issuperset(names):
            chosen.append(_with_seeds(tuned, [trial for group in names for trial in groups[group]], planned=False))
            covered.update(names)
    rest = [trial for group, trials in groups.items() if group not in covered for trial in trials]
    # The baseline of what is left may be a sweep's, too.
    shared = {group for trial in rest for group in _baselines(trial.config)} & covered
    rest += [trial for group, trials in groups.items() if group in shared for trial in trials]
    return [results(sweep, store) for sweep in (*given, *chosen, *_sweeps_by_setting(rest, margin))]


def _baselines(config: Config) -> Iterator[str]:
    """The groups of what a trial of no sweep is compared with."""
    yield setting(config).group
    if config.control == "permuted":
        yield replace(config, control="none").group


def _tuned_sweep(name: str, configs: list[Config]) -> Sweep | None:
    """The known sweep whose arms these configs are, each at its own rate, by the name that `sweeps.tuning.tuned` gave
    it; None where that is not certain."""
    match = TUNED.fullmatch(name)
    known = SWEEPS.get(match[1]) if match else None
    stored = {_without_rate(config): config for config in configs}
    if known is None or len(stored) < len(configs):
        return None
    if len({_without_rate(arm.config) for arm in known.arms}) < len(known.arms):  # its arms differ in their rates
        return None
    at_own_rate = {arm.label: stored[key] for arm in known.arms if (key := _without_rate(arm.config)) in stored}
    labels = {label: f"{label}, lr {config.lr:g}" for label, config in at_own_rate.items()}
    arms = (
        Arm(labels[arm.label], at_own_rate[arm.label], labels.get(arm.baseline or ""))
        for arm in known.arms
        if arm.label in labels
    )
    return replace(known, name=f"{known.name}, tuned rates", arms=tuple(arms))


def _without_rate(config: Config) -> str:
    return replace(config, lr=1.0, discriminator_lr=None).group


@dataclass(frozen=True, kw_only=True)
class _StoredSweep(Sweep):
    """A sweep with the seeds of the stored trials; if `planned`, its own seeds count too."""

    stored_seeds: tuple[tuple[tuple[str, int | None], ...], ...] = ()
    planned: bool = True

    def seeds(self) -> Iterator[dict[str, int]]:
        planned = list(super().seeds()) if self.planned else []
        yield from planned
        for stored in self.stored_seeds:
            seeds = {name: seed for name, seed in stored if seed is not None}
            if seeds not in planned:
                yield seeds


def _with_seeds(sweep: Sweep, trials: list[StoredTrial], planned: bool = True) -> _StoredSweep:
    seeds = sorted(
        {tuple((name, getattr(trial.config, name)) for name in SEEDS) for trial in trials},
        key=lambda seeds: [-1 if seed is None else seed for _, seed in seeds],
    )
    settings = vars(sweep) | {"family": max(sweep.comparisons, *map(_family, trials))}
    return _StoredSweep(**settings, stored_seeds=tuple(seeds), planned=planned)


def _family(trial: StoredTrial) -> int:
    """The most comparisons that a sweep with this trial plans."""
    return max((trial.sweeps() or {"": _known_families().get(trial.config.group, 0)}).values())


@lru_cache(maxsize=1)
def _known_families() -> dict[str, int]:
    families: dict[str, int] = {}
    for sweep in SWEEPS.values():
        for arm in sweep.arms:
            families[arm.config.group] = max(families.get(arm.config.group, 0), sweep.comparisons)
    return families


def _sweeps_by_setting(trials: list[StoredTrial], margin: float) -> Iterator[Sweep]:
    """A sweep per setting, of trials that belong to no known sweep."""
    by_setting: dict[Config, list[StoredTrial]] = {}
    for trial in trials:
        if not trial.config.hold_out:  # those served to choose a learning rate
            by_setting.setdefault(setting(trial.config), []).append(trial)
    versions: dict[str, set[str]] = {}
    for base in by_setting:
        versions.setdefault(base.recipe, set()).add(version(base))
    for base, chosen in by_setting.items():
        configs = {method(t.config): replace(t.config, seed=0, init_seed=None, data_seed=None) for t in chosen}
        plain = method(base)
        names = sorted(configs, key=lambda name: (name != plain, name))
        arms = tuple(Arm(name, configs[name], baseline(configs[name], names)) for name in names)
        title = base.recipe
        if len(versions[title]) > 1:  # after an edit of the script
            title += f", version {version(base)}"
        sweep = Sweep(name=title, about=scale(base), reproduces="", arms=arms, margin=margin)
        yield _with_seeds(sweep, chosen, planned=False)
