"""Hugging Face transformers: a callback for its Trainer."""

import copy
from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

from riesz.hook.attachment import Attachment
from riesz.hook.layer_log import LayerLog
from riesz.hook.schedule import Schedule
from riesz.integrations.accelerate import attach
from riesz.metrics import Operator


class ChannelDirected(TrainerCallback):
    """Attaches to the trainer's optimizer when training begins, detaches when it ends.

    The Trainer clips gradients before the step (`max_grad_norm`), so clipping acts on ordinary gradients.

    Args:
        metric: the inner product, or its text.
        schedule: the metric by step, for example `riesz.schedule.warmup(1000)`; as in `Attachment.schedule`.
        log_every: log |g|/|f| and cos(f, g) per layer every so many steps, as `riesz.LayerLog` does, to everything the
            trainer reports to; None for never.
        trainer: the trainer, which a callback does not know by itself; needed for `log_every` alone. Such a callback is
            added to it: `trainer.add_callback(ChannelDirected(metric, log_every=50, trainer=trainer))`.
        settings: direction, layers, backend, control: as in `riesz.attach`.

    Example:
        >>> import riesz
        >>> from riesz.integrations.transformers import ChannelDirected
        >>> callback = ChannelDirected(riesz.SobolevTilde())
        >>> # transformers.Trainer(model, args, train_dataset=data, callbacks=[callback]).train()
    """

    def __init__(
        self,
        metric: Operator | str,
        *,
        schedule: Schedule | None = None,
        log_every: int | None = None,
        trainer: Trainer | None = None,
        **settings: Any,
    ) -> None:
        if log_every is not None and trainer is None:
            raise ValueError("log_every: expected the trainer to log to as trainer=..., got None")
        self.metric = metric
        self.schedule = schedule
        self.log_every = log_every
        self.trainer = trainer
        self.settings = settings
        self.attachment: Attachment | None = None
        self._log: LayerLog | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.on_train_end(args, state, control)  # a run that was interrupted leaves its attachment behind
        self.attachment = attach(kwargs["optimizer"], kwargs["model"], metric=self.metric, **self.settings)
        self.attachment.schedule(self.schedule)
        if self.log_every is not None:
            self._log = LayerLog(self.attachment, self._report, self.log_every)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._log is not None:
            self._log(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.attachment is not None:
            self.attachment.detach()

    def _report(self, values: dict[str, float], step: int) -> None:
        """What `Trainer.log` does, for an earlier step, and not to the terminal: there are two values per layer."""
        assert self.trainer is not None
        state = copy.copy(self.trainer.state)
        state.global_step = step
        self.trainer.state.log_history.append({**values, "step": step})
        for callback in self.trainer.callback_handler.callbacks:
            if not isinstance(callback, (PrinterCallback, ProgressCallback)):
                callback.on_log(self.trainer.args, state, self.trainer.control, logs=dict(values))
