"""Differences between differences, by seed: with the norm kept minus without, at batch 8 minus at batch 128."""

from __future__ import annotations

from collections.abc import Hashable

from evidence.numbers import Arm, Arms, Difference
from riesz_lab.experiments.arm import CONTROLS
from riesz_lab.statistics import Comparison, holm, paired

KEPT = f", {CONTROLS['norm']}"


def norm_kept(arms: Arms, controlled: Arms) -> dict[str, Difference]:
    """By arm, its difference from SGD with the norm of the gradient kept, minus that without."""
    kept = {label.removesuffix(KEPT): arm for label, arm in controlled.items() if label.endswith(KEPT)}
    return _corrected({label: _contrast(arms, arms[label], controlled, arm) for label, arm in kept.items()})


def small_batches(regimes: Arms) -> dict[str, Difference]:
    """By metric, its difference from SGD at batch 8 minus that at batch 128, both at a rate of 0.1."""
    found = {}
    for name in ("SobolevTilde", "ReweightedL2"):
        small, large = (regimes[f"{batch} lr 0.1 SGD + {name}"] for batch in ("b8", "b128"))
        found[name] = _contrast(regimes, large, regimes, small)
    return _corrected(found)


def _corrected(contrasts: dict[str, Comparison]) -> dict[str, Difference]:
    return {name: Difference(f"contrast of {name}", one) for name, one in holm(contrasts).items()}


def _contrast(first: Arms, before: Arm, second: Arms, after: Arm) -> Comparison:
    """What an arm gains in the second place, minus what it gains in the first."""
    return paired(_gains(first, before), _gains(second, after), margin=before.comparison.margin)


def _gains(arms: Arms, arm: Arm) -> dict[Hashable, float | None]:
    """By seed, the difference from the baseline; None where either trial diverged."""
    base = arms[arm.result.arm.baseline or ""].result.scores
    return {
        seed: None if score is None or (start := base[seed]) is None else score - start
        for seed, score in arm.result.scores.items()
        if seed in base
    }
