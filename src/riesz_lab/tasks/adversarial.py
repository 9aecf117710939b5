"""Adversarial losses as in SPADE: hinge loss and feature matching, as means over the discriminator's scales."""

import torch
from torch import Tensor
from torch.nn import functional

PatchFeatures = list[list[Tensor]]
"""The discriminator's features per scale and layer; the last of a scale is its verdict on every patch."""


def discriminator_hinge(fake: PatchFeatures, real: PatchFeatures) -> Tensor:
    """max(0, 1 - real) + max(0, 1 + fake): real patches above 1 and generated ones below -1 cost nothing."""
    return _mean(
        [functional.relu(1 - r[-1]).mean() + functional.relu(1 + f[-1]).mean() for f, r in zip(fake, real, strict=True)]
    )


def generator_hinge(fake: PatchFeatures) -> Tensor:
    """-fake: the more real its patches look, the less the generator pays, without bound."""
    return _mean([-scale[-1].mean() for scale in fake])


def feature_distance(fake: PatchFeatures, real: PatchFeatures) -> Tensor:
    """L1 between all features but the verdicts, summed over layers; those of the real images are fixed."""
    return _mean(
        [
            torch.stack([functional.l1_loss(a, b.detach()) for a, b in zip(f[:-1], r[:-1], strict=True)]).sum()
            for f, r in zip(fake, real, strict=True)
        ]
    )


def _mean(scales: list[Tensor]) -> Tensor:
    return torch.stack(scales).mean()
