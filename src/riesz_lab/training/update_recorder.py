"""What an epoch did to the conv weights, for the claim that Sobolev gradients work from coarse to fine.

After each epoch a line is added to the trial's updates.jsonl; per conv weight W of n output channels:

    n         its output channels (per group)
    moved     |W - W before the epoch| / |W|
    spectrum  how the power of that change is spread over frequencies along the output axis: the share of the mean
              (frequency 0) first, then of `BINS` equal parts of the frequencies above it, coarse to fine
    ratio, cosine   what the last step of the epoch did to the gradient: |directed| / |original|, and their cosine;
              only where the optimizer is directed

It is measured on the side: nothing of the training depends on it. It costs a copy of the conv weights and one FFT of
them per epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import riesz
from riesz.layout.axis import Axis, ColumnView, compute_dtype
from riesz.layout.scope import Scope

BINS = 8


class Watch:
    """Follows the conv weights of a task's models through an epoch."""

    def __init__(self, models: dict[str, nn.Module], attachments: dict[str, riesz.Attachment]):
        self.attachments = attachments
        self.weights: dict[str, tuple[Tensor, Axis]] = {}
        for name, model in models.items():
            prefix = f"{name}." if len(models) > 1 else ""
            self.weights |= {prefix + key: found for key, found in _conv_weights(model).items()}
        self.before: dict[str, Tensor] | None = None
        self.diagnoses: dict[str, dict[str, float | None]] = {}

    def begin(self) -> None:
        """An epoch begins."""
        self.diagnoses = {}
        self.before = {name: weight.detach().clone() for name, (weight, _) in self.weights.items()}

    @contextmanager
    def step(self, last: bool) -> Iterator[None]:
        """Around a step; of the last one of an epoch, what it did to the gradients is kept."""
        for attachment in self.attachments.values():
            attachment.recording = last
        yield
        if not last:
            return
        for name, attachment in self.attachments.items():
            prefix = f"{name}." if len(self.attachments) > 1 else ""
            self.diagnoses |= {prefix + key: told for key, told in _diagnoses(attachment).items()}

    @torch.no_grad()
    def end(self) -> dict[str, dict[str, Any]] | None:
        """What the epoch did, by weight; None if its beginning was not seen, or there is nothing to watch."""
        if not self.before:
            return None
        rows = {name: _row(weight, self.before[name], axis) for name, (weight, axis) in self.weights.items()}
        for name, told in self.diagnoses.items():
            if name in rows:
                rows[name] |= told
        self.before = None
        return rows

    def state(self) -> dict[str, Any]:
        before = {} if self.before is None else {name: weight.cpu() for name, weight in self.before.items()}
        return {"before": before, "diagnoses": self.diagnoses}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up an epoch that was interrupted; without its beginning, it is left out."""
        before, self.diagnoses = state.get("before", {}), state.get("diagnoses", {})
        fits = before.keys() == self.weights.keys() and all(
            before[name].shape == weight.shape for name, (weight, _) in self.weights.items()
        )
        self.before = {name: before[name].to(weight) for name, (weight, _) in self.weights.items()} if fits else None


def _conv_weights(model: nn.Module) -> dict[str, tuple[Tensor, Axis]]:
    scope = Scope(model, "output", "conv")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    records = scope.records({"params": parameters}, 0, scope.locations())
    return {
        record.name: (parameter, record.where)
        for record, parameter in zip(records, parameters, strict=True)
        if record.applied and record.where is not None and record.where.length(record.shape) > 1
    }


def _row(weight: Tensor, before: Tensor, axis: Axis) -> dict[str, Any]:
    change = (weight.detach() - before).to(compute_dtype(weight.dtype))
    columns_ONI = ColumnView.open(change, axis).read()
    n = columns_ONI.shape[1]
    power_F = torch.fft.rfft(columns_ONI, dim=1).abs().square().sum((0, 2), dtype=torch.float64)
    power_F[1 : (n + 1) // 2] *= 2  # each stands for a pair of conjugate frequencies
    shares_F = (power_F / power_F.sum()).tolist()
    spectrum = [shares_F[0], *(math.fsum(shares_F[k] for k in part) for part in parts(n))]
    norm, moved = (float(torch.linalg.vector_norm(one, dtype=torch.float64)) for one in (weight.detach(), change))
    return {
        "n": n,
        "moved": _short(moved / norm if norm else 0.0),
        "spectrum": [_short(share) for share in spectrum],
    }


def parts(n: int) -> list[list[int]]:
    """The frequencies 1..n//2 in `BINS` parts, coarse to fine; with fewer frequencies than that, some are empty."""
    highest = n // 2
    found: list[list[int]] = [[] for _ in range(BINS)]
    for k in range(1, highest + 1):
        found[(k - 1) * BINS // highest].append(k)
    return found


def _diagnoses(attachment: riesz.Attachment) -> dict[str, dict[str, float | None]]:
    attachment.recording = False
    try:
        found = attachment.diagnostics()
    except RuntimeError:  # the step was not directed: a schedule, or `smooth_epochs`, has ended
        return {}
    return {one.name: {"ratio": _short(one.ratio), "cosine": _short(one.cosine)} for one in found}


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
