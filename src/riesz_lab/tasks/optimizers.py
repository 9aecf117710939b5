"""Optimizers from a config: their learning rate at any step, and the metric attached to them."""

import inspect
import math
from typing import Any

import torch
from torch import nn

import riesz
from riesz_lab.config import Config, parse_metric
from riesz_lab.errors import ConfigError, LabError, unknown
from riesz_lab.utils.importing import load_object
from riesz_lab.utils.options import parse

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
}  # fmt: skip


def check(config: Config) -> None:
    """Raise if the optimizer or the metric cannot be built."""
    build(config, nn.Linear(1, 1))
    parse_metric(config.metric)


def build(config: Config, model: nn.Module, *, lr: float | None = None) -> torch.optim.Optimizer:
    """The optimizer of one model; `lr` overrides the config's where a task has several."""
    name = config.optimizer
    if ":" not in name and name not in OPTIMIZERS:
        raise ConfigError(unknown("optimizer", name, OPTIMIZERS, other="any as 'package.module:Class'"))
    kind: Any = load_object("optimizer", name) if ":" in name else OPTIMIZERS[name]
    options = {"lr": config.lr if lr is None else lr, **parse("optimizer_options", config.optimizer_options)}
    if "weight_decay" in inspect.signature(kind).parameters:
        options.setdefault("weight_decay", config.weight_decay)
    if kind is torch.optim.SGD:
        options = {"momentum": config.momentum, "nesterov": config.nesterov, **options}
    try:
        optimizer = kind(model.parameters(), **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer {config.optimizer!r} cannot be built with {options}: {error}") from None
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"optimizer {config.optimizer!r}: expected an Optimizer, got {type(optimizer).__name__}")
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def attach(config: Config, optimizer: torch.optim.Optimizer, model: nn.Module) -> riesz.Attachment | None:
    """Attach the config's metric; None for the identity, which is the plain optimizer."""
    metric = parse_metric(config.metric)
    if metric == riesz.Identity():
        return None
    options: dict[str, Any] = {"direction": config.direction, "layers": config.layers, "backend": config.backend}
    try:
        control = None if config.control == "none" else config.control
        return riesz.attach(optimizer, model, metric=metric, control=control, **options)
    except (ValueError, RuntimeError, TypeError) as error:
        raise LabError(str(error)) from error


def rate_factor(config: Config, step: int, steps_per_epoch: int, total: int) -> float:
    """The factor on the initial rate at a step, counted from 0, of `total`: a pure function, so nothing is saved."""
    warmup_steps = config.warmup_epochs * steps_per_epoch
    warm = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    if config.schedule == "constant":
        return warm
    if config.schedule == "step":
        first = config.drop_after or config.drop_every
        drops = max(0, 1 + (step // steps_per_epoch - first) // config.drop_every)
        return float(warm * config.drop_factor**drops)
    return warm * 0.5 * (1 + math.cos(math.pi * step / total))
