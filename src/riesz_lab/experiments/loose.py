"""Trials that belong to no stored experiment are asked the plain question: against the plain optimizer at the same
settings."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from riesz_lab.config import SEEDS, Config
from riesz_lab.experiments.arm import Arm, baseline, method, setting
from riesz_lab.experiments.experiment import Experiment, Seeds
from riesz_lab.experiments.margin import DEFAULT_MARGIN, Margin
from riesz_lab.experiments.tuning import tune
from riesz_lab.store import StoredTrial


def all_experiments(
    trials: Collection[StoredTrial], experiments: Iterable[Experiment], margin: Margin = DEFAULT_MARGIN
) -> list[Experiment]:
    """The experiments that have trials among these, and the plain question about the other trials.

    An experiment whose arms are all those of a larger one, compared by the same rule, is left out: it would say the
    same twice.
    """
    complete = {trial.config.id: trial for trial in trials if trial.result is not None}
    groups = {trial.config.group for trial in complete.values()}
    taken: set[str] = set()
    chosen: list[Experiment] = []
    for experiment in sorted(experiments, key=lambda each: -len(each.arms)):
        own = _groups(experiment, complete)
        if not own & groups or any(_contains(larger, experiment) for larger in chosen):
            continue
        chosen.append(experiment)
        taken |= own
    chosen.sort(key=lambda each: each.name)
    loose = [trial for trial in complete.values() if trial.config.group not in taken and not trial.config.hold_out]
    # The baseline of what is left may be an experiment's, too.
    needed = {group for trial in loose for group in _baselines(trial.config)} & taken
    loose += [trial for trial in complete.values() if trial.config.group in needed]
    return [*chosen, *plain_questions(loose, margin)]


def plain_questions(trials: Iterable[StoredTrial], margin: Margin) -> list[Experiment]:
    """An experiment per setting: every method that was trained there, against the plain optimizer."""
    by_setting: dict[Config, list[StoredTrial]] = {}
    for trial in trials:
        by_setting.setdefault(setting(trial.config), []).append(trial)
    versions: dict[str, set[str]] = {}
    for base in by_setting:
        versions.setdefault(base.recipe, set()).add(base.model)
    asked = []
    for base, chosen in by_setting.items():
        configs = {method(trial.config): _without_seeds(trial.config) for trial in chosen}
        plain = method(base)
        names = sorted(configs, key=lambda name: (name != plain, name))
        name = base.recipe
        if len(versions[name]) > 1 and "@" in base.model:  # after an edit of the script
            name += f", version {base.model.partition('@')[2][:6]}"
        seeds = sorted({tuple(getattr(trial.config, seed) for seed in SEEDS) for trial in chosen}, key=_order)
        arms = tuple(Arm(name, configs[name], baseline(configs[name], names)) for name in names)
        question = "against the plain optimizer at the same settings"
        asked.append(
            Experiment(name=name, question=question, arms=arms, margin=margin, seeds=Seeds(count=0, also=tuple(seeds)))
        )
    return asked


def _groups(experiment: Experiment, complete: dict[str, StoredTrial]) -> set[str]:
    """The groups of its trials, at the settings that were tuned."""
    arms = experiment.arms
    if experiment.tuning is not None:
        tuned = tune(experiment, complete)
        arms = tuple(arm.at(tuned.best.get(arm.label, {}), experiment.tuning.own) for arm in arms)
        return {arm.config.group for arm in arms} | {trial.config.group for trial in tuned.trials}
    return {arm.config.group for arm in arms}


def _contains(larger: Experiment, smaller: Experiment) -> bool:
    def compared(experiment: Experiment) -> set[tuple[str, str]]:
        return {
            (arm.config.group, experiment[arm.baseline].config.group)
            for arm in experiment.arms
            if arm.baseline is not None
        }

    rules = [(type(each.stopping), each.tuning, each.score) for each in (larger, smaller)]
    return rules[0] == rules[1] and compared(larger) >= compared(smaller)


def _baselines(config: Config) -> set[str]:
    """The groups of what a trial of no experiment is compared with."""
    plain = {setting(config).group}
    return plain | ({replace(config, control="none").group} if config.control == "permuted" else set())


def _without_seeds(config: Config) -> Config:
    return replace(config, seed=0, init_seed=None, data_seed=None)


def _order(seeds: tuple[int | None, ...]) -> list[int]:
    return [-1 if seed is None else seed for seed in seeds]
