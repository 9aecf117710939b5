"""Fair baselines: the same grid of learning rates, tried equally often, for every arm.

Re-weighting raises the effective step along the mean, so a rate that was tuned for the baseline is not the method's.
Rates are chosen on images held out of the training data, with seeds that the final trials do not use, and
never on the test set. The choice is a pure function of stored trials.
"""

import hashlib
import re
from dataclasses import dataclass, replace

from riesz_lab.config import Config
from riesz_lab.errors import ConfigError
from riesz_lab.store import Store
from riesz_lab.sweeps.costs import images
from riesz_lab.sweeps.definition import Arm, Sweep
from riesz_lab.sweeps.results import results
from riesz_lab.utils.amounts import count

FIRST_SEED = 1000


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How rates are tuned."""

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # the grid, as multiples of each recipe's own rate
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
    def at_the_edge(self) -> bool:
        """Whether the best rate is the smallest or largest one tried, so that a better one may lie beyond."""
        return self.rate in (min(self.scores), max(self.scores))


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


def choices(sweep: Sweep, tuning: Tuning, store: Store) -> dict[str, Choice]:
    """The best rate of every arm, once all its tuning trials are complete. Of equals, the smaller."""
    table = results(search(sweep, tuning), store)
    # From the stored trials: a task of the user's own says it for each trial.
    rows, sign = table.rows, 1 if table.higher_is_better else -1
    chosen = {}
    for arm in sweep.arms:
        scores: dict[float, float | None] = {}
        for rate in _rates(arm, tuning):
            row = rows[f"{arm.label} lr {rate:g}"]
            if len(row.scores) < row.wanted:
                missing = row.wanted - len(row.scores)
                left = count(missing, "trial")
                raise ConfigError(f"arm {arm.label!r} is not tuned yet: {left} at rate {rate:g} to be completed")
            # One divergent trial disqualifies a rate.
            scores[rate] = sum(row.finite) / row.wanted if len(row.finite) == row.wanted else None
        ranked = sorted((-sign * rounded(score), rate) for rate, score in scores.items() if score is not None)
        if not ranked:
            raise ConfigError(f"arm {arm.label!r} diverged at every rate of the grid: {sorted(scores)}")
        chosen[arm.label] = Choice(scores, ranked[0][1])
    return chosen


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
