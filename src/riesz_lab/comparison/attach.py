"""What the user's loop is handed: `attach(optimizer, model)`, and `attach.log(...)` for curves."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import riesz
from riesz.hook.report import Diagnosis
from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.store.files import Row, is_number
from riesz_lab.tasks import optimizers

HELD_OUT = "held_out"
"""The field of the score that settings are chosen by."""


class DivergedTrialError(LabError):
    """Ends a tuning trial that has diverged. The final trials always run to their end."""


class PlainAttachment:
    """The attachment of a plain trial: it takes what an attachment takes, and changes nothing."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer
        self.metric: Any = riesz.Identity()
        self.enabled, self.recording, self.step = True, False, 0

    def schedule(self, fn: Any) -> None:
        """No metric, no schedule."""

    def report(self) -> str:
        return "a plain trial: no gradient is directed"

    def diagnostics(self) -> str:
        return "a plain trial: no gradient is directed"

    def detach(self) -> None:
        """Nothing is attached."""

    def __repr__(self) -> str:
        return f"PlainAttachment({type(self.optimizer).__name__})"


class Attach:
    """Directs the optimizer of one trial, and collects what the loop reports.

    Attributes:
        models: those that were attached.
        attachments: those of a trial that is not plain.
        rows: one per call of `log`.
        stepped: whether a directed optimizer made a step.
    """

    def __init__(self, config: Config, name: str):
        self.config, self.name = config, name
        self.models: list[nn.Module] = []
        self.attachments: list[riesz.Attachment] = []
        self.rows: list[Row] = []
        self.stepped = False

    def __call__(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> riesz.Attachment | PlainAttachment:
        """Direct the optimizer as this trial asks; in a plain trial nothing is directed."""
        if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, nn.Module):
            got = f"{type(optimizer).__name__}, {type(model).__name__}"
            raise LabError(f"{self.name!r} called attach: expected (optimizer, model), got ({got})")
        self.models.append(model)
        try:
            if (attachment := optimizers.attach(self.config, optimizer, model)) is None:
                self._check_selection(optimizer, model)
                return PlainAttachment(optimizer)
        except LabError as error:
            if not str(error).startswith("nothing to direct") or self.config.layers == "all":
                raise
            raise LabError(f"{error}. In a comparison: --set layers=all") from None
        self.attachments.append(attachment)
        optimizer.register_step_post_hook(self._after_step)
        return attachment

    def _after_step(self, *_: object) -> None:
        # Not a count: compiled steps would be compiled again for every value of it.
        self.stepped = True

    def _check_selection(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Attach in the plain trial too, which comes first: an unsuitable model fails before more is trained."""
        metric = riesz.ReweightedL2()
        attachment = optimizers.attach(replace(self.config, metric=str(metric)), optimizer, model)
        assert attachment is not None
        attachment.detach()

    def layers(self) -> dict[str, dict[str, float | None]]:
        """|g|/|f| and cos(f, g) of every directed weight at the last step, by name; empty where they are not known."""
        diagnoses: list[Diagnosis] = []
        for attachment in self.attachments:
            with contextlib.suppress(RuntimeError):  # the gradients are gone, or too little of them is left
                diagnoses += attachment.diagnostics()
        return {each.name: {"ratio": finite(each.ratio), "cosine": finite(each.cosine)} for each in diagnoses}

    def log(self, scores: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Report the scores of an epoch: `attach.log(loss=0.3, accuracy=0.9)`. Each call is one epoch.

        A tuning trial ends, and counts as diverged, when its score, its held-out score or a loss (by its name) is not
        a finite number.
        """
        row = {name: finite(number(value, name, self.name)) for name, value in {**(scores or {}), **named}.items()}
        self.rows.append({"epoch": len(self.rows) + 1, "step": 0, **row})
        score = self.config.model_options[0].partition("=")[2]
        watched = [name for name in row if name in (score, HELD_OUT) or "loss" in name.lower()]
        if self.config.hold_out and any(row[name] is None for name in watched):
            raise DivergedTrialError(f"{self.name!r} logged a score that is not a number: a tuning trial ends there")


def number(value: Any, what: str, name: str) -> float:
    """A number that a user's function reported."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.detach().item()
    if hasattr(value, "item") and not isinstance(value, torch.Tensor):  # a number of NumPy
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LabError(f"{name!r}: {what}: expected a number, got {value!r:.80}")
    return float(value)


def finite(value: float) -> float | None:
    """JSON has no NaN; and what the store does not read as a number is none."""
    return value if is_number(value) else None
