"""Hugging Face transformers: a callback for its Trainer."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from riesz.hook.attachment import Attachment
from riesz.integrations.accelerate import attach
from riesz.metrics import Operator


class ChannelDirected(TrainerCallback):
    """Attaches to the trainer's optimizer when training begins, detaches when it ends.

    The Trainer clips gradients before the step (`max_grad_norm`), so clipping acts on ordinary gradients.

    Args:
        metric: the inner product, or its text.
        settings: direction, layers, backend, control: as in `riesz.attach`.

    Example:
        >>> import riesz
        >>> from riesz.integrations.transformers import ChannelDirected
        >>> callback = ChannelDirected(riesz.SobolevTilde())
        >>> # transformers.Trainer(model, args, train_dataset=data, callbacks=[callback]).train()
    """

    def __init__(self, metric: Operator | str, **settings: Any) -> None:
        self.metric = metric
        self.settings = settings
        self.attachment: Attachment | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_train_end(args, state, control)  # a run that was interrupted leaves its attachment behind
        self.attachment = attach(kwargs["optimizer"], kwargs["model"], metric=self.metric, **self.settings)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.attachment is not None:
            self.attachment.detach()
