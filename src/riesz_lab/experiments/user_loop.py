"""One trial of a user's loop: what it is handed, and how it is run, as a whole: it cannot be resumed here.

The loop gets `attach(optimizer, model)`, and `attach.log(...)` for curves. It ends with its score: a number; or a dict,
named tuple or dataclass with the score under its name and, for tuning, another one on held-out data as `held_out`. It
may be a generator that yields the scores of each epoch.
"""

import contextlib
import dataclasses
import inspect
import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

import riesz
from riesz.hook.report import Diagnosis
from riesz_lab import models
from riesz_lab.config import Config
from riesz_lab.errors import LabError, first_line
from riesz_lab.experiments.tuning import HELD_OUT
from riesz_lab.store import Result, environment
from riesz_lab.store.files import Row, append_row, is_number, write_rows
from riesz_lab.store.result import is_percent
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import optimizers
from riesz_lab.training import checkpoint
from riesz_lab.utils import randomness


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


def run_user_loop(
    trial: Trial, call: Callable[..., Any], name: str, score: str, higher_is_better: bool, tuning: bool = False
) -> Result:
    """Train, and store the result; a failure is stored with its reason."""
    with trial.open():
        attach = Attach(trial.config, name)
        randomness.seed_all(randomness.derived("compare", trial.config.seed))
        began = time.monotonic()
        try:
            final = _scores(_train(call, attach, trial.config, score), name, score, attach, tuning)
        except DivergedTrialError:
            final = {score: math.nan}
        except LabError:
            raise
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {first_line(error)}" if str(error) else type(error).__name__
            trial.fail(reason, traceback.format_exc())
            raise LabError(
                f"{name!r} failed with metric {trial.config.metric}, seed {trial.config.seed}: {reason}. Complete "
                f"trials are kept: run the same again to continue. The traceback is in {trial.failure_file}"
            ) from error
        seconds = time.monotonic() - began
        if not attach.models:
            raise LabError(f"{name!r} did not call attach(optimizer, model): every trial would be the same")
        devices = {p.device for model in attach.models for p in model.parameters()}
        kinds = sorted({device.type for device in devices} - {"cpu"}) or ["cpu"]
        trial.add_session(environment.describe(kinds[0], max(1, sum(device.type == kinds[0] for device in devices))))
        result = _result(attach, final, score, higher_is_better)
        trial.write_history(_history(attach.rows, final if result.last else None))
        if layers := attach.layers():
            write_rows(trial.updates_file, [{"epoch": max(1, len(attach.rows)), "layers": layers}])
        stepped = {"stepped": attach.stepped} if attach.attachments else {}
        append_row(trial.timing_file, {"epoch": max(1, len(attach.rows)), "seconds": seconds, **stepped})
        networks = {f"model{i}" if i else "model": model for i, model in enumerate(attach.models)}
        trial.finish(checkpoint.pack(networks), result)
    return result


def _train(call: Callable[..., Any], attach: Attach, config: Config, score: str) -> Any:
    """What the loop returns; each value that a generator yields is logged as an epoch."""
    returned = call(attach, config.seed)
    if not inspect.isgenerator(returned):
        return returned
    last = None
    while True:
        try:
            last = next(returned)
        except StopIteration as end:
            return last if end.value is None else end.value
        attach.log(_fields(last) or {score: last})


def _fields(value: Any) -> dict[str, Any] | None:
    """A dict, or anything with named fields, as a dict; None for a plain value."""
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _scores(value: Any, name: str, score: str, attach: Attach, tuning: bool) -> dict[str, float]:
    """The final scores by name, checked."""
    if value is None and attach.rows:
        value = {key: each for key, each in attach.rows[-1].items() if key not in ("epoch", "step")}
        value = {key: math.nan if each is None else each for key, each in value.items()}
    fields = _fields(value)
    if fields is None:
        fields = {score: value}
        if value is None:
            raise LabError(f"{name!r} returned no score: expected a number, got None")
    if score not in fields:
        raise LabError(
            f"{name!r} returned {', '.join(fields) or 'no field'}: expected a field {score!r}; name the score with "
            f"--score {_likely_score(score, fields)}. This trial is not kept"
        )
    scores = {key: number(each, key, name) for key, each in fields.items()}
    if tuning and HELD_OUT not in scores:
        raise LabError(
            f"{name!r} returned no held-out score, and a setting is never chosen on the test score: expected "
            f'{{"{score}": ..., "{HELD_OUT}": ...}}, with {HELD_OUT} measured on data that is neither trained nor '
            f"tested on, got {', '.join(fields)}"
        )
    for key in (score, HELD_OUT):
        each = scores.get(key, math.nan)
        if is_percent(score) and math.isfinite(each) and not 0 <= each <= 1:
            raise LabError(
                f"{name!r} returned {key!r}, which is printed in percent: expected a fraction from 0 to 1 (or another "
                f"name, such as {score + '_percent'!r}), got {each!r}"
            )
    return scores


def _likely_score(score: str, fields: Mapping[str, Any]) -> str:
    """The field that was meant: one of a similar name, or the only one that is no held-out score."""
    others = [name for name in fields if name != HELD_OUT]
    close = get_close_matches(score, others, n=1) or (others if len(others) == 1 else [])
    return close[0] if close else "NAME"


def _history(logged: list[Row], final: dict[str, float] | None) -> list[Row]:
    """The logged rows; the final scores are part of the last."""
    if final is None:
        return logged
    *before, last = logged or [{"epoch": 1, "step": 0}]
    return [*before, {**last, **{key: finite(value) for key, value in final.items()}}]


def _result(attach: Attach, final: dict[str, float], score: str, higher_is_better: bool) -> Result:
    diverged = finite(final[score]) is None
    rows = [row for row in _history(attach.rows, None if diverged else final) if row.get(score) is not None]
    sign = 1 if higher_is_better else -1
    return Result(
        status="diverged" if diverged else "finished",
        step=0,
        parameters=models.parameters(attach.models[0]),
        score=score,
        higher_is_better=higher_is_better,
        percent=is_percent(score),
        last=None if diverged else rows[-1],
        best=max(rows, key=lambda row: sign * row[score]) if rows else None,
    )
