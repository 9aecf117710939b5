"""Accelerate: attach to the optimizer inside its wrapper."""

from typing import Any

import torch
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import extract_model_from_parallel
from torch import nn

from riesz.hook.attach import attach as attach_to_plain
from riesz.hook.attachment import Attachment
from riesz.metrics import Operator


def attach(
    optimizer: torch.optim.Optimizer, model: nn.Module | None = None, *, metric: Operator | str, **settings: Any
) -> Attachment:
    """`riesz.attach` for what `accelerator.prepare` returned; optimizer and model may be wrapped or plain.

    Args:
        optimizer: an optimizer, prepared or not.
        model: the model it trains, prepared or not.
        metric: the inner product, or its text.
        settings: direction, layers, backend, control: as in `riesz.attach`.

    Returns:
        The attachment to the inner optimizer.
    """
    inner = unwrapped(optimizer)
    whole = None if model is None else extract_model_from_parallel(model)
    return attach_to_plain(inner, whole, metric=metric, **settings)


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that runs step hooks."""
    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    return optimizer
