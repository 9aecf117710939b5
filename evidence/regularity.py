"""Question 5 of the protocol: correlation of filters along the channels, in trained weights.

The *level* is the correlation of all pairs of filters, the *order* that of neighbouring filters minus the level. Trials
of one seed start from the same weights, so a metric is compared with SGD seed by seed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from evidence.numbers import Arm, Arms, Correlation, metrics
from riesz_lab.config import Config
from riesz_lab.statistics import holm, paired
from riesz_lab.store import StoredTrial

QUANTITIES = ("level", "order")
DIRECTIONS = ("output", "input")
MARGIN = 0.01
"""A difference in correlation that does not matter."""

Layers = list[dict[str, Any]]


@dataclass(frozen=True)
class Filters:
    """What is stored of the trained weights of an arm: the layers by seed; a trial that diverged has none."""

    by_seed: Mapping[Hashable, Layers]

    def means(self, quantity: str, direction: str = "output") -> dict[Hashable, float | None]:
        """By seed, the mean over layers."""
        return {seed: _mean(layers, quantity, direction) for seed, layers in self.by_seed.items()}

    def mean(self, quantity: str, direction: str = "output") -> float:
        return statistics.fmean(mean for mean in self.means(quantity, direction).values() if mean is not None)

    @property
    def beyond_random(self) -> str:
        """Layers whose order random orders of the channels reach in fewer than 5% of cases."""
        ps = [one["p"] for layers in self.by_seed.values() for one in layers if one["direction"] == "output"]
        return f"{sum(p < 0.05 for p in ps)} of {len(ps)}"

    def in_both_directions(self) -> Filters:
        """Without the layers that are measured along one direction alone: the first has too few input channels."""
        return Filters({seed: _in_both(layers) for seed, layers in self.by_seed.items()})

    def own(self) -> dict[tuple[str, str], Correlation]:
        """By direction and quantity, the correlation itself, with its interval over seeds."""
        found = {}
        for direction, quantity in product(DIRECTIONS, QUANTITIES):
            means = self.means(quantity, direction)
            found[direction, quantity] = Correlation("own", paired(dict.fromkeys(means, 0.0), means, margin=MARGIN))
        return found


def filters_of(arm: Arm) -> Filters:
    return Filters({seed: _layers(trial) for seed, trial in arm.result.trials.items()})


def _layers(trial: StoredTrial) -> Layers:
    layers: Layers = json.loads((trial.path / "regularity.json").read_text()) if trial.status == "finished" else []
    return layers


def _mean(layers: Layers, quantity: str, direction: str) -> float | None:
    values = [layer[quantity] for layer in layers if layer["direction"] == direction]
    return statistics.fmean(values) if values else None


def _in_both(layers: Layers) -> Layers:
    names = [{one["layer"] for one in layers if one["direction"] == direction} for direction in DIRECTIONS]
    return [one for one in layers if one["layer"] in names[0] & names[1]]


def against_sgd(experiments: Mapping[str, Arms]) -> dict[tuple[str, str, str], Correlation]:
    """By experiment, arm and quantity; Holm over all metrics and both quantities."""
    found = {}
    for (name, arms), quantity in product(experiments.items(), QUANTITIES):
        for arm in metrics(arms):
            base, own = filters_of(arms[arm.result.arm.baseline or ""]), filters_of(arm)
            key = name, arm.label, quantity
            found[key] = paired(base.means(quantity), own.means(quantity), margin=MARGIN)
    return {key: Correlation(", ".join(key), one) for key, one in holm(found).items()}


def against_reweighted(experiments: Mapping[str, Arms]) -> dict[tuple[str, str], Correlation]:
    """By experiment and arm: the order of SobolevTilde minus that of ReweightedL2 at the same lam; not corrected."""
    found = {}
    for name, arms in experiments.items():
        partners = {_setting(arm): arm for arm in metrics(arms) if arm.metric == "ReweightedL2"}
        for arm in metrics(arms):
            if arm.metric == "SobolevTilde" and (partner := partners.get(_setting(arm))) is not None:
                both = filters_of(partner).means("order"), filters_of(arm).means("order")
                found[name, arm.label] = Correlation(f"order, {arm.name}", paired(*both, margin=MARGIN))
    return found


def _setting(arm: Arm) -> tuple[Config, float]:
    """What two metrics at the same lam have in common."""
    return replace(arm.config, metric="identity"), arm.lam


def more_alike_along_input(experiments: Mapping[str, Arms], plain: bool) -> str:
    """In how many arms, of SGD or with a metric, the level is higher along the input than along the output."""
    arms = [arm for arms in experiments.values() for arm in arms.values() if (arm.config.metric == "identity") == plain]
    both = [filters_of(arm).in_both_directions() for arm in arms]
    return f"{sum(one.mean('level', 'input') > one.mean('level') for one in both)} of {len(both)}"
