"""Lightning: a callback that attaches to the trainer's optimizers."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from riesz.hook.attach import attach
from riesz.hook.attachment import Attachment
from riesz.hook.layer_log import LayerLog
from riesz.hook.plan import SCHEDULED_KEY, STEP_KEY, NothingToDirectError
from riesz.hook.schedule import Schedule
from riesz.metrics import Operator


class ChannelDirected(Callback):
    """Attaches when fitting starts to every optimizer that has something to direct, and detaches when it ends.

    If none has, it raises. Works in every precision. Lightning clips gradients before the step, so clipping acts on
    ordinary gradients.

    Args:
        metric: the inner product, or its text.
        schedule: the metric by step, for example `riesz.schedule.warmup(1000)`; as in `Attachment.schedule`.
        log_every: log |g|/|f| and cos(f, g) per layer to the trainer's loggers every so many steps, as `riesz.LayerLog`
            does; None for never.
        settings: direction, layers, backend, control: as in `riesz.attach`.

    Example:
        >>> import riesz
        >>> from riesz.integrations.lightning import ChannelDirected
        >>> callback = ChannelDirected(riesz.SobolevTilde())
        >>> # lightning.Trainer(callbacks=[callback]).fit(module, data); then callback.attachments[0].report()
    """

    def __init__(
        self, metric: Operator | str, *, schedule: Schedule | None = None, log_every: int | None = None, **settings: Any
    ) -> None:
        self.metric = metric
        self.schedule = schedule
        self.log_every = log_every
        self.settings = settings
        self.attachments: list[Attachment] = []
        self._logs: list[LayerLog] = []
        self._step = 0
        self._schedule_state: dict[int, dict[str, Any]] = {}
        """By optimizer, once fitting has ended: what its attachment kept in the first param group."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._detach()  # a run that was interrupted may have left some behind
        self.attachments, self._schedule_state = [], {}
        nothing = None
        for optimizer in trainer.optimizers:
            try:
                self.attachments.append(attach(optimizer, pl_module, metric=self.metric, **self.settings))
            except NothingToDirectError as error:
                nothing = error
        if not self.attachments and nothing is not None:
            raise nothing
        for attachment in self.attachments:
            # Before Lightning restores a checkpoint, which then sets the step that the schedule continues from.
            attachment.schedule(self.schedule)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step
        if self.log_every is not None and trainer.loggers:

            def log(values: Mapping[str, float], step: int) -> None:
                for logger in trainer.loggers:
                    logger.log_metrics(dict(values), step)

            self._logs = [LayerLog(attachment, log, self.log_every) for attachment in self.attachments]

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        # While gradients accumulate, no step is taken. Lightning counts from 1, its loggers from 0.
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            for log in self._logs:
                log(self._step - 1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for log in self._logs:
            log.close()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._detach()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._detach()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # `trainer.save_checkpoint` after fitting: a schedule must resume from there too. Some strategies gather the
        # states on one rank, and have none on the others; other callbacks may have dropped them.
        states = checkpoint.get("optimizer_states", ())
        for optimizer, state in zip(trainer.optimizers, states, strict=False):
            for group in state.get("param_groups", ())[:1]:
                group.update(self._schedule_state.get(id(optimizer), {}))

    def _detach(self) -> None:
        self._logs = []
        for attachment in self.attachments:
            group = attachment.optimizer.param_groups[0]
            if kept := {key: group[key] for key in (STEP_KEY, SCHEDULED_KEY) if key in group}:
                self._schedule_state[id(attachment.optimizer)] = kept
            attachment.detach()
