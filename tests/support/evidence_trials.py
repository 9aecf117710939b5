"""Trials of the evidence's sweeps with made-up scores."""

from __future__ import annotations

import random

from evidence import sweeps
from evidence.tables import TUNING

from riesz_lab.sweeps import tuning
from stored import store_trial

SEARCH = tuning.search(sweeps.tuned_fashion(), TUNING)
"""The trials that tune, before the grid is extended."""


def store(runs, sweep, gains, base=0.8):
    """Every trial of a sweep; `gains` are those of the arms over `base`, by label."""
    for arm in sweep.arms:
        store_arm(runs, sweep, arm.label, base + gains.get(arm.label, 0.0))


def store_arm(runs, sweep, label, mean, spread=0.00005):
    """The trials of an arm: their mean is exact, their noise its own."""
    rng, configs = random.Random(label), sweep.configs(sweep[label])
    noise = [rng.gauss(0.0, spread) for _ in configs]
    for config, one in zip(configs, noise, strict=True):
        store_trial(runs, config, score=mean + one - sum(noise) / len(noise))
