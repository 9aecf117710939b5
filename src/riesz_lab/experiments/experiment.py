"""The record of what is asked: arms, score, margin, seeds, tuning, and when to stop.

It is written as experiment.json before the first trial, so that nothing about the design is ever guessed afterwards.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from riesz_lab.config import Config
from riesz_lab.errors import BadFileError, ConfigError, LabError, unknown
from riesz_lab.experiments.arm import Arm
from riesz_lab.experiments.margin import DEFAULT_MARGIN, Margin
from riesz_lab.store import experiment as stored

FIRST_TUNING_SEED = 1000


@dataclass(frozen=True)
class Score:
    """What arms are compared by: a column of a trial's history, and how it is read and printed."""

    name: str
    higher_is_better: bool = True
    percent: bool = True  # a fraction, printed in percent

    @property
    def unit(self) -> str:
        """Of differences: "points" for fractions that are printed in percent, else that of the scores, unnamed."""
        return "points" if self.percent else ""


ACCURACY, MIOU = Score("test_accuracy"), Score("test_miou")


def fid_score(config: Config) -> Score:
    return Score(f"fid_{config.fid}", higher_is_better=False, percent=False)


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """The seeds that all arms share."""

    count: int = 5
    first: int = 0  # the seeds are this and the following ones
    crossed: bool = False  # every initialisation seed with every data seed: `count` squared trials per arm
    # Seeds of stored trials, as (seed, init_seed, data_seed), besides these.
    also: tuple[tuple[int, int | None, int | None], ...] = ()

    def __iter__(self) -> Iterator[dict[str, int | None]]:
        """The seeds of an arm's trials, as settings."""
        given = []
        numbers = range(self.first, self.first + self.count)
        for seed in numbers:
            # Where both are equal it is the same trial as without crossing, and is stored once.
            given += [(seed, None, None if data == seed else data) for data in (numbers if self.crossed else (seed,))]
        for seed, init, data in dict.fromkeys((*given, *self.also)):
            yield {"seed": seed, "init_seed": init, "data_seed": data}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Every arm at its own best value of some settings: one grid, tried equally often, chosen on held-out scores.

    The grid is `setting` at multiples of each arm's own value, or the values of `grid`, which are the same for all
    arms. A best value at its edge extends it, for all arms alike.
    """

    setting: str = "lr"
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    own: tuple[str, ...] = ()  # of these settings, those of a user's function; the others are fields of a config
    seeds: int = 2  # trials per arm and point of the grid
    first_seed: int = FIRST_TUNING_SEED  # other seeds than the compared trials have
    hold_out: int | None = None  # training items to tune on; a tenth of them if None

    def __post_init__(self) -> None:
        factors = self.factors
        if not self.grid and (len(factors) < 2 or min(factors) <= 0 or len(set(factors)) < len(factors)):
            raise ConfigError(f"lr_factors: expected two or more different factors above 0, got {factors}")
        if self.seeds < 1:
            raise ConfigError(f"tune_seeds: expected 1 or more, got {self.seeds}")

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(self.grid) or (self.setting,)


class Rule(msgspec.Struct, frozen=True):
    """When to stop. What differs by rule is said here; `stopping.follow` applies it."""

    sequential: ClassVar[bool] = True  # whether intervals hold at every look; else the number of pairs is fixed before
    plans: ClassVar[bool] = False  # whether it takes all stored pairs, and says how many a verdict would take

    @property
    def most(self) -> int | None:
        """The most pairs of a rule that adds them one by one; None for another."""
        return None


class Fixed(Rule, frozen=True, tag="fixed"):
    """Stop after the seeds of the experiment: t tests, corrected by Holm for all comparisons."""

    sequential: ClassVar[bool] = False


class UntilSure(Rule, frozen=True, tag="until sure"):
    """Add seeds until every arm has a verdict or none is in reach: intervals that hold at every look."""

    budget: int = 50  # the most pairs

    def __post_init__(self) -> None:
        if self.budget < 3:
            raise ConfigError(f"budget: expected 3 or more pairs, got {self.budget!r}")

    @property
    def most(self) -> int:
        return self.budget


class Pilot(Rule, frozen=True, tag="pilot"):
    """Run a few pairs, or take all that are stored, and say how many a verdict would take."""

    plans: ClassVar[bool] = True
    pairs: int = 3


Stopping = Fixed | UntilSure | Pilot
FIXED = Fixed()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is asked. Trials are not part of it: see `result`."""

    name: str  # what the command line calls it
    question: str  # in a line
    arms: tuple[Arm, ...]
    score: Score | None = None  # None for that of the task
    margin: Margin = DEFAULT_MARGIN  # differences up to this do not matter
    seeds: Seeds = Seeds()
    tuning: Tuning | None = None  # None where every arm has the settings it is given
    stopping: Stopping = FIXED
    family: int = 0  # comparisons that a claim is corrected for, if they are more than those here
    collapsed: float | None = None  # a score at this value or worse counts as collapsed; None if only divergence does
    reproduces: str = ""  # the table or figure of the paper
    selected: frozenset[str] = frozenset()  # labels of the arms that are run and shown; all if empty. Not stored

    def __post_init__(self) -> None:
        labels = [arm.label for arm in self.arms]
        for label in labels:
            if labels.count(label) > 1:
                raise ConfigError(f"experiment {self.name!r} has two arms labelled {label!r}")
        for arm in self.arms:
            if arm.baseline is not None and arm.baseline not in labels:
                raise ConfigError(f"arm {arm.label!r}: " + unknown("baseline", arm.baseline, labels))
        if self.seeds.count < 1 and not self.seeds.also:
            raise ConfigError(f"seeds: expected 1 or more, got {self.seeds.count}")
        if self.seeds.crossed and self.stopping.sequential:
            raise ConfigError("seeds that are crossed: expected a fixed number of them, got another stopping rule")

    def __getitem__(self, label: str) -> Arm:
        return {arm.label: arm for arm in self.arms}[label]

    @property
    def chosen(self) -> tuple[Arm, ...]:
        """The arms that are run and shown."""
        return tuple(arm for arm in self.arms if not self.selected or arm.label in self.selected)

    @property
    def comparisons(self) -> int:
        """How many comparisons a claim is corrected for."""
        return max(self.family, sum(arm.baseline is not None for arm in self.arms))

    @property
    def description(self) -> str:
        """Its question, and what of the paper it reproduces."""
        question = self.question if self.question.endswith("?") else f"{self.question}."
        return f"{question} In the paper: {self.reproduces}." if self.reproduces else question

    def with_seeds(self, count: int | None) -> "Experiment":
        return self if count is None else replace(self, seeds=replace(self.seeds, count=count))

    def only(self, texts: Iterable[str]) -> "Experiment":
        """Select the arms whose label, recipe or metric contains one of these texts, and the baselines they need.

        Claims stay corrected for all comparisons, since the arms may be chosen after a look at them.
        """
        texts = list(texts)
        if not texts:
            return self
        names = {arm.label: f"{arm.label} {arm.config.recipe} {arm.config.metric}".lower() for arm in self.arms}
        needed = {label for label, name in names.items() for text in texts if text.lower() in name}
        if not needed:
            wanted = " or ".join(map(repr, texts))
            raise ConfigError(f"no arm of {self.name!r} matches {wanted}; its arms: {', '.join(names)}")
        return replace(self, selected=frozenset(self.with_baselines(needed)))

    def with_baselines(self, labels: Iterable[str]) -> set[str]:
        """These arms, those they are compared with, and so on."""
        needed = set(labels)
        while more := {baseline for label in needed if (baseline := self[label].baseline)} - needed:
            needed |= more
        return needed

    def configs(self, arm: Arm) -> list[Config]:
        """The trials of an arm, at the settings it is given."""
        return [replace(arm.config, **seeds) for seeds in self.seeds]  # type: ignore[arg-type]

    def all_configs(self) -> list[Config]:
        """Every trial of the chosen arms once, seed by seed, so that complete ones can be compared at any moment."""
        rounds = zip(*map(self.configs, self.chosen), strict=True)
        return list({config.id: config for trials in rounds for config in trials}.values())

    @property
    def id(self) -> str:
        """Twelve hex digits that stand for what is compared, and by which rule.

        The same comparison with more seeds, another margin or other words replaces the stored one. The name of the
        rule's class is part of it: renaming a class changes the ids of stored experiments.
        """
        arms = sorted((arm.label, arm.config.group, arm.baseline or "") for arm in self.arms)
        tuning = None if self.tuning is None else msgspec.to_builtins(self.tuning)
        score = None if self.score is None else self.score.name
        asked = [self.name, arms, score, self.seeds.crossed, tuning, type(self.stopping).__name__]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON. Of configs, the settings that are not at their defaults, which never change."""
        values: dict[str, Any] = {
            each.name: msgspec.to_builtins(getattr(self, each.name))
            for each in fields(self)
            if each.name not in ("arms", "selected")
        }
        arms = []
        for arm in self.arms:
            plain = replace(arm.config, seed=0, init_seed=None, data_seed=None)
            arms.append({"label": arm.label, "baseline": arm.baseline, "config": plain.chosen(), "id": plain.id})
        return {**values, "arms": arms}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Experiment":
        """The inverse of `to_dict`; a BadFileError says what is wrong."""
        try:
            arms = tuple(
                Arm(str(arm["label"]), Config.from_dict(arm["config"], str(arm["id"])), arm["baseline"])
                for arm in values["arms"]
            )
            return replace(msgspec.convert({**values, "arms": ()}, cls), arms=arms)
        except (msgspec.ValidationError, KeyError, TypeError, LabError) as error:
            raise BadFileError(f"not an experiment: {error}") from None

    def write(self, runs: Path) -> Path:
        """Store what is asked as RUNS/experiments/<name>-<id>/experiment.json; returns its folder."""
        return stored.write(runs, self.name, self.id, self.to_dict())


def read_experiments(*folders: Path) -> tuple[dict[Path, Experiment], dict[Path, str]]:
    """The experiments stored below some folders of trials, by folder; and the files that are none, with the reason."""
    contents, broken = stored.read(*folders)
    experiments: dict[Path, Experiment] = {}
    for path, content in contents.items():
        try:
            experiments[path] = Experiment.from_dict(content)
        except BadFileError as error:
            broken[path] = str(error)
    return experiments, broken
