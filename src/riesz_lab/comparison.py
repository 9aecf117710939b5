"""Does it help *you*? Paired trials of your own function, and the conclusions they allow.

The function is one of

    def train(attach, seed) -> float          your own loop; call attach(optimizer, model) in it
    def build() -> model, (train, test), loss trained by the lab's loop, with checkpoints and curves

It is called once per metric and seed; equal seeds give equal random numbers.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import riesz
from riesz_lab import models
from riesz_lab.config import OWN, Config
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.store import Result, Store, environment
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import Arm, Sweep, Table, results
from riesz_lab.sweeps.methods import baseline, method
from riesz_lab.sweeps.results import is_percent
from riesz_lab.tasks import optimizers
from riesz_lab.training import checkpoint, progress
from riesz_lab.training.trainer import train as train_trial
from riesz_lab.utils import randomness

METRICS = ("reweighted-l2", "sobolev-tilde")


def compare(
    function: Callable[..., Any],
    *,
    metrics: Sequence[str | riesz.Metric] = METRICS,
    seeds: int = 5,
    controls: bool = False,
    score: str = "score",
    higher_is_better: bool = True,
    margin: float = 0.002,
    runs: Path | str = "runs",
    say: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Table:
    """Train with and without each metric, several seeds each, and compare pair by pair.

    Trials are stored as any others: `riesz report` reads them, and complete ones are not trained again unless the
    file of the function has changed.

    Args:
        function: `train(attach, seed) -> score`, or `build() -> model, (train, test), loss`.
        metrics: what to compare with the plain optimizer.
        seeds: trials per metric.
        controls: also run each metric with the gradient's norm kept, and along a random order of the channels.
        score: what `train` returns, by name; one that ends in "accuracy" is a fraction, printed in percent. A `build`
            is scored by the lab, and takes neither this nor the next.
        higher_is_better: whether more of it is better.
        margin: the largest difference that does not matter.
        runs: the folder of all trials.
        say: called with a line per trial.
        **settings: for `build`: epochs, batch_size, optimizer, lr, or any other setting of a config.

    Returns:
        The table; its `sentences` are the conclusions.

    Example:
        >>> import riesz_lab, tempfile, torch
        >>> def train(attach, seed):
        ...     model = torch.nn.Conv2d(1, 8, 3)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     attach(optimizer, model)
        ...     model(torch.randn(4, 1, 8, 8)).square().mean().backward()
        ...     optimizer.step()
        ...     return -model.weight.square().mean()
        >>> table = riesz_lab.compare(train, seeds=3, metrics=["sobolev-tilde"], runs=tempfile.mkdtemp())
        >>> list(table.rows)
        ['plain', 'SobolevTilde']
    """
    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more (3 or more for a conclusion), got {seeds!r}")
    trains_itself = _trains_itself(function)
    if trains_itself and settings:
        setting = next(iter(settings))
        raise ConfigError(f"{setting} is a setting of the lab's loop, and {_name(function)!r} has a loop of its own")
    if trains_itself:
        # What the number is called and which way is better decide what a stored one means: they name the trial too.
        better = "better=higher" if higher_is_better else "better=lower"
        settings = {"optimizer": OWN, "model_options": (f"score={score}", better)}
    elif score != "score" or not higher_is_better:
        raise ConfigError(
            f"score and its direction are for train(attach, seed); {_name(function)!r} is trained by the lab's loop, "
            "which scores test accuracy, or else test loss"
        )
    try:
        names = [str(riesz.metric(metric)) for metric in metrics]
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None
    base = Config(recipe=_slug(function), task="own", model=_identity(function), dataset="own", **settings)
    sweep = Sweep(
        name=base.recipe,
        about=f"{_name(function)}, with and without",
        reproduces="",
        arms=tuple(_arms(base, names, controls)),
        trials=seeds,
        margin=margin,
    )
    configs = sweep.all_configs()
    labels = {config.id: arm.label for arm in sweep.arms for config in sweep.configs(arm)}
    for number, config in enumerate(configs, 1):
        title = f"{number:>{len(str(len(configs)))}}/{len(configs)} {labels[config.id]}, seed {config.seed}"
        if trains_itself:
            result, fresh = _own_loop(config, function, runs, score, higher_is_better)
        else:
            outcome = train_trial(config, data=function, runs=runs)
            result, fresh = outcome.result, outcome.trained
        scores = "diverged" if result.last is None else progress.format_scores(result.last)
        say(f"{title}: {scores}" + ("" if fresh else "  (stored before)"))
    return results(sweep, Store(Path(runs) / base.recipe))


def _own_loop(
    config: Config, function: Callable[..., Any], runs: Path | str, score: str, higher_is_better: bool
) -> tuple[Result, bool]:
    """One trial of a user's loop, which is run as a whole: it cannot be resumed here."""
    trial = Trial(runs, config)
    if (stored := trial.result()) is not None:
        return stored, False
    with trial.open():
        attached: list[nn.Module] = []

        def attach(optimizer: torch.optim.Optimizer, model: nn.Module) -> riesz.Attachment | None:
            """Direct the optimizer as this trial asks; None for the plain one."""
            if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, nn.Module):
                got = f"{type(optimizer).__name__}, {type(model).__name__}"
                raise LabError(f"{_name(function)!r} called attach: expected (optimizer, model), got ({got})")
            attached.append(model)
            return optimizers.attach(config, optimizer, model)

        trial.add_session(environment.describe("cpu", 1))
        randomness.seed_all(randomness.derived("compare", config.seed))
        value = function(attach, config.seed)
        if not attached:
            raise LabError(f"{_name(function)!r} did not call attach(optimizer, model): every trial would be the same")
        value = _number(value, _name(function), score)
        row = {"epoch": 1, "step": 0, score: value} if math.isfinite(value) else None
        result = Result(
            status="diverged" if row is None else "finished",
            step=0,
            parameters=models.parameters(attached[0]),
            score=score,
            higher_is_better=higher_is_better,
            last=row,
            best=row,
        )
        trial.write_history([] if row is None else [row])
        networks = {f"model{i}" if i else "model": model for i, model in enumerate(attached)}
        trial.finish(checkpoint.pack(networks), result)
    return result, True


def _number(value: Any, name: str, score: str) -> float:
    """The score that a user's loop returned, checked."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.detach().item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LabError(f"{name!r} returned no score: expected a number, got {value!r:.80}")
    if is_percent(score) and math.isfinite(value) and not 0 <= value <= 1:
        raise LabError(
            f"{name!r} returned {score!r}, which is printed in percent: expected a fraction from 0 to 1 (or another "
            f"name, such as {score + '_percent'!r}), got {value!r}"
        )
    return float(value)


def _arms(base: Config, metrics: list[str], controls: bool) -> Iterator[Arm]:
    configs = [base]
    for metric in metrics:
        directed = replace(base, metric=metric)
        configs.append(directed)
        if controls:
            configs.append(replace(directed, control="norm"))
            if not isinstance(riesz.metric(metric), riesz.ReweightedL2):  # a mean knows no order
                configs.append(replace(directed, control="permuted"))
    # Named and paired as the report does with what it finds in the store, so that both say the same.
    names = [method(config) for config in configs]
    for name, config in zip(names, configs, strict=True):
        yield Arm(name, config, baseline(config, names))


def _trains_itself(function: Callable[..., Any]) -> bool:
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{function!r} cannot be compared: {error}") from None
    needed = [each.name for each in given if each.default is each.empty and each.kind in (0, 1, 3)]
    if needed not in ([], ["attach", "seed"]):
        raise ConfigError(
            f"{_name(function)!r}: expected train(attach, seed), or build() without arguments, got the arguments "
            f"{', '.join(needed)}"
        )
    return bool(needed)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _slug(function: Callable[..., Any]) -> str:
    stem = Path(getattr(getattr(function, "__code__", None), "co_filename", "")).stem
    slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{stem}-{_name(function)}").strip("-")
    return f"compare-{slug}"[:60].rstrip("-")


def _identity(function: Callable[..., Any]) -> str:
    """The function's file and name with a hash of the file: a changed function is another trial."""
    code = getattr(function, "__code__", None)
    file = Path(getattr(code, "co_filename", ""))
    try:
        content = file.read_bytes()
    except OSError:  # typed at a prompt
        content = repr((getattr(code, "co_code", b""), getattr(code, "co_consts", ()))).encode()
    return f"{file.name or 'own'}:{_name(function)}@{hashlib.sha256(content).hexdigest()[:12]}"
