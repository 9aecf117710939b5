"""Fair baselines: the same grid of learning rates, tried equally often, for every arm.

Re-weighting raises the effective step along the mean, so a rate that was tuned for the baseline is not the method's.
Rates are chosen on images held out of the training data, with seeds that the final trials do not use, and
never on the test set. A best rate at the edge of the grid extends the grid on that side, for all arms alike. Grid and
choice are pure functions of stored trials.
"""

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from riesz_lab.config import Config
from riesz_lab.data.sizes import images
from riesz_lab.errors import ConfigError
from riesz_lab.experiments.arm import Arm
from riesz_lab.store import Store
from riesz_lab.sweeps.definition import Sweep
from riesz_lab.sweeps.results import SweepResult, results
from riesz_lab.utils.amounts import count

FIRST_SEED = 1000

EXTENSIONS = 4
"""The most values that a grid grows by on one side."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How rates are tuned."""

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # the grid to start with, as multiples of a recipe's rate
    trials: int = 2  # per arm and rate
    hold_out: int | None = None  # images to tune on; a tenth of the training images if not given

    def __post_init__(self) -> None:
        if len(self.factors) < 2 or min(self.factors) <= 0 or len(set(self.factors)) < len(self.factors):
            raise ConfigError(f"lr_factors: expected two or more different factors above 0, got {self.factors}")
        if self.trials < 1:
            raise ConfigError(f"tune_trials: expected 1 or more, got {self.trials}")


@dataclass(frozen=True)
class Choice:
    """The rate of an arm: mean held-out score by rate (None: a trial diverged), and the best of them."""

    scores: dict[float, float | None]
    rate: float

    @property
    def edge(self) -> Literal["low", "high"] | None:
        """The edge of the grid that the best rate lies at, so that a better one may lie beyond."""
        if self.rate == min(self.scores):
            return "low"
        return "high" if self.rate == max(self.scores) else None


def search(sweep: Sweep, tuning: Tuning) -> Sweep:
    """The trials that tune a sweep, as a sweep: every arm at every rate."""
    arms = tuple(
        Arm(f"{arm.label} lr {rate:g}", replace(at_rate(arm.config, rate), hold_out=_hold_out(arm.config, tuning)))
        for arm in sweep.arms
        for rate in _rates(arm, tuning)
    )
    return replace(
        sweep, name=f"{sweep.name} tuning", arms=arms, trials=tuning.trials, crossed=False, first_seed=FIRST_SEED
    )


def extended(sweep: Sweep, tuning: Tuning, store: Store) -> Tuning:
    """The grid with as many factors beyond its edges as the arms whose trials are complete ask for."""
    left = {"low": EXTENSIONS, "high": EXTENSIONS}
    while True:
        table = results(search(sweep, tuning), store)
        reached = set()
        for arm in sweep.arms:
            with suppress(ConfigError):  # trials are missing, or diverged at every rate
                reached.add(_choose(arm, tuning, table).edge)
        edges = {edge for edge in reached if edge is not None and left[edge]}
        if not edges:
            return tuning
        factors = sorted(tuning.factors)
        new = {"low": beyond(factors[0], factors[1]), "high": beyond(factors[-1], factors[-2])}
        # Beyond extreme factors lies 0, or, rounded, the factor itself.
        factors += [new[edge] for edge in edges if new[edge] > 0 and new[edge] not in factors]
        tuning = replace(tuning, factors=tuple(sorted(factors)))
        left = {edge: number - (edge in edges) for edge, number in left.items()}


def beyond(end: float, next_: float) -> float:
    """What follows the end of a grid whose values have a constant ratio."""
    return float(f"{end * end / next_:.6g}")


def choices(sweep: Sweep, tuning: Tuning, store: Store) -> dict[str, Choice]:
    """The best rate of every arm, once all its tuning trials are complete. Of equals, the smaller.

    `tuning` is what `extended` returned for the whole sweep; the sweep itself may be a part of it.
    """
    table = results(search(sweep, tuning), store)
    return {arm.label: _choose(arm, tuning, table) for arm in sweep.arms}


def _choose(arm: Arm, tuning: Tuning, table: SweepResult) -> Choice:
    # The direction is that of the stored trials: a task of the user's own says it for each trial.
    sign = 1 if table.higher_is_better else -1
    scores: dict[float, float | None] = {}
    for rate in _rates(arm, tuning):
        row = table.rows[f"{arm.label} lr {rate:g}"]
        if len(row.scores) < row.wanted:
            left = count(row.wanted - len(row.scores), "trial")
            raise ConfigError(f"arm {arm.label!r} is not tuned yet: {left} at rate {rate:g} to be completed")
        # One divergent trial disqualifies a rate.
        scores[rate] = sum(row.finite) / row.wanted if len(row.finite) == row.wanted else None
    ranked = sorted((-sign * rounded(score), rate) for rate, score in scores.items() if score is not None)
    if not ranked:
        raise ConfigError(f"arm {arm.label!r} diverged at every rate of the grid: {sorted(scores)}")
    return Choice(scores, ranked[0][1])


def rounded(mean: float) -> float:
    """Without the last digits, in which equal means differ by the order of their sum."""
    return float(f"{mean:.12g}")


def tuned(sweep: Sweep, chosen: dict[str, Choice]) -> Sweep:
    """The sweep with every arm at its own best rate. Its name tells it from one with other rates."""
    arms = tuple(replace(arm, config=at_rate(arm.config, chosen[arm.label].rate)) for arm in sweep.arms)
    digest = hashlib.sha256(" ".join(arm.config.group for arm in arms).encode()).hexdigest()[:6]
    return replace(sweep, name=f"{sweep.name} tuned {digest}", arms=arms)


TUNED = re.compile(r"(.+) tuned [0-9a-f]{6}")
"""The names that `tuned` gives, with that of the sweep."""


def at_rate(config: Config, rate: float) -> Config:
    """The config at another rate; where a discriminator has its own, that keeps its proportion."""
    other = config.discriminator_lr
    return replace(config, lr=rate, discriminator_lr=None if other is None else other * rate / config.lr)


def _rates(arm: Arm, tuning: Tuning) -> list[float]:
    return sorted(arm.config.lr * factor for factor in tuning.factors)


def _hold_out(config: Config, tuning: Tuning) -> int:
    if tuning.hold_out is not None:
        return tuning.hold_out
    try:
        return images(config)[0] // 10
    except KeyError:
        raise ConfigError(f"hold_out: the size of {config.dataset!r} is unknown; pass --hold-out N") from None
