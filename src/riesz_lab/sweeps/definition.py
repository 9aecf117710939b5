"""The definition of a sweep: arms, the seeds they share, and which arm is compared with which."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError, unknown
from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A named set of trials."""

    name: str  # what the command line calls it
    about: str  # its question, in a line
    reproduces: str  # the table or figure of the paper
    arms: tuple[Arm, ...]  # its settings
    trials: int = 5  # seeds per arm by default
    first_seed: int = 0  # the seeds are this and the following ones
    family: int = 0  # comparisons that a claim is corrected for, if this is part of a larger sweep
    crossed: bool = False  # every initialisation seed with every data seed, so `trials` squared trials per arm
    margin: float = 0.002  # the largest difference in score that does not matter
    relative_margin: float | None = None  # the same as a share of the baseline's mean, for scores such as FID
    collapsed: float | None = None  # a score at this value or worse counts as collapsed; None if only divergence does

    def __post_init__(self) -> None:
        labels = [arm.label for arm in self.arms]
        for label in labels:
            if labels.count(label) > 1:
                raise ConfigError(f"sweep {self.name!r} has two arms labelled {label!r}")
        for arm in self.arms:
            if arm.baseline is not None and arm.baseline not in labels:
                raise ConfigError(f"arm {arm.label!r}: " + unknown("baseline", arm.baseline, labels))
        if self.trials < 1:
            raise ConfigError(f"trials: expected 1 or more, got {self.trials}")

    def __getitem__(self, label: str) -> Arm:
        return {arm.label: arm for arm in self.arms}[label]

    @property
    def comparisons(self) -> int:
        """How many comparisons a claim is corrected for."""
        return self.family or sum(arm.baseline is not None for arm in self.arms)

    @property
    def description(self) -> str:
        """Its question, and what of the paper it reproduces."""
        question = self.about if self.about.endswith("?") else f"{self.about}."
        return f"{question} In the paper: {self.reproduces}." if self.reproduces else question

    def with_trials(self, count: int | None) -> "Sweep":
        return self if count is None else replace(self, trials=count)

    def only(self, texts: Iterable[str]) -> "Sweep":
        """The arms whose label, recipe or metric contains one of these texts, and the baselines they need.

        Claims stay corrected for all comparisons of the sweep, since the arms may be chosen after a look at them.
        """
        texts = list(texts)
        if not texts:
            return self
        names = {arm.label: f"{arm.label} {arm.config.recipe} {arm.config.metric}".lower() for arm in self.arms}
        needed = {label for label, name in names.items() for text in texts if text.lower() in name}
        if not needed:
            wanted = " or ".join(map(repr, texts))
            raise ConfigError(f"no arm of {self.name!r} matches {wanted}; its arms: {', '.join(names)}")
        while more := {self[label].baseline for label in needed} - needed - {None}:
            needed |= more  # type: ignore[arg-type]
        kept = tuple(arm for arm in self.arms if arm.label in needed)
        return replace(self, arms=kept, family=self.comparisons)

    def seeds(self) -> Iterator[dict[str, int]]:
        """The seeds of an arm's trials, as settings."""
        numbers = range(self.first_seed, self.first_seed + self.trials)
        for seed in numbers:
            if not self.crossed:
                yield {"seed": seed}
                continue
            for data in numbers:
                # Where both are equal it is the same trial as in a sweep that is not crossed, and is stored once.
                yield {"seed": seed} if data == seed else {"seed": seed, "data_seed": data}

    def configs(self, arm: Arm) -> list[Config]:
        plain = replace(arm.config, seed=0, init_seed=None, data_seed=None)
        return [replace(plain, **seeds) for seeds in self.seeds()]  # type: ignore[arg-type]

    def all_configs(self) -> list[Config]:
        """Every trial once, seed by seed, so that complete trials can be compared at any moment."""
        rounds = zip(*map(self.configs, self.arms), strict=True)
        return list({config.id: config for trials in rounds for config in trials}.values())


def by_name(*sweeps: Sweep) -> dict[str, Sweep]:
    return {sweep.name: sweep for sweep in sweeps}


def from_experiment(asked: Experiment) -> Sweep:
    relative = asked.margin.unit == "relative"
    return Sweep(
        name=asked.name, about=asked.question, reproduces=asked.reproduces, arms=asked.arms, trials=asked.seeds.count,
        crossed=asked.seeds.crossed, collapsed=asked.collapsed, relative_margin=asked.margin.size if relative else None,
    )  # fmt: skip
