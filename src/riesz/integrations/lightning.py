"""Lightning: a callback that attaches to the trainer's optimizers."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from riesz.hook.attach import attach
from riesz.hook.attachment import Attachment
from riesz.hook.plan import NothingToDirectError
from riesz.metrics import Operator


class ChannelDirected(Callback):
    """Attaches when fitting starts to every optimizer that has something to direct, and detaches when it ends.

    If none has, it raises. Works in every precision. Lightning clips gradients before the step, so clipping acts on
    ordinary gradients.

    Args:
        metric: the inner product, or its text.
        settings: direction, layers, backend, control: as in `riesz.attach`.

    Example:
        >>> import riesz
        >>> from riesz.integrations.lightning import ChannelDirected
        >>> callback = ChannelDirected(riesz.SobolevTilde())
        >>> # lightning.Trainer(callbacks=[callback]).fit(module, data); then callback.attachments[0].report()
    """

    def __init__(self, metric: Operator | str, **settings: Any) -> None:
        self.metric = metric
        self.settings = settings
        self.attachments: list[Attachment] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._detach()  # a run that was interrupted may have left some behind
        self.attachments = []
        nothing = None
        for optimizer in trainer.optimizers:
            try:
                self.attachments.append(attach(optimizer, pl_module, metric=self.metric, **self.settings))
            except NothingToDirectError as error:
                nothing = error
        if not self.attachments and nothing is not None:
            raise nothing

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._detach()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._detach()

    def _detach(self) -> None:
        for attachment in self.attachments:
            attachment.detach()
