"""The training loop: epochs, steps, evaluations, and when to save or stop.

Requirements it meets:
- a state saved after any step and loaded again continues to the same bits (CPU);
- a step reads nothing from the device; the loss is read every `CHECK_EVERY` steps, and for the progress;
- a signal stops all processes after the same step, with the state saved.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from riesz_lab.errors import StoppedError
from riesz_lab.models.layers import held_spectral_norms
from riesz_lab.store.result import Status
from riesz_lab.tasks.optimizers import rate_factor
from riesz_lab.training import parallel, resume
from riesz_lab.training.epoch_log import EpochLog
from riesz_lab.training.session import Session
from riesz_lab.training.shared_flags import SharedFlags
from riesz_lab.training.signals import Interrupts

CHECK_EVERY = 100
"""Steps between two reads of the loss: at fixed steps, so that a divergent trial always ends at the same one."""


class Loop:
    def __init__(self, session: Session, log: EpochLog, save_every: float, stop: Interrupts):
        self.session, self.log, self.save_every, self.stop = session, log, save_every, stop
        self.saved_at = time.monotonic()
        context = session.context
        self.flags = SharedFlags(context.rank, context.world, context.add_up, context.device)

    def run(self) -> Status:
        """Train all steps that are left. Returns "finished" or "diverged"."""
        session, config = self.session, self.session.config
        if config.eval_first and not session.state.history and not session.state.step:
            self.log.add(0, self._evaluate())
        while session.state.step < session.steps or session.state.batch:
            if not self._train_epoch():
                return "diverged"
            # The epoch is counted before its row is written: a checkpoint from before repeats it.
            last = session.state.step >= session.steps
            scores = self._evaluate() if last or (session.state.epoch + 1) % config.eval_every == 0 else {}
            session.state.epoch += 1
            session.state.batch = 0
            self.log.add(session.state.epoch, scores)
            self._save_if_due()
        return "finished"

    def _train_epoch(self) -> bool:
        """Train the batches left of the current epoch. False if the loss is no longer finite."""
        session, task, state, config = self.session, self.session.task, self.session.state, self.session.config
        for model in task.models.values():
            model.train()
        for attachment in task.attachments.values():
            attachment.enabled = config.smooth_epochs is None or state.epoch < config.smooth_epochs
        batches = task.batches(state.epoch, state.batch)
        if state.batch == 0:
            session.recorder.begin()
        laps: list[float] = []
        for left in range(min(task.steps_per_epoch - state.batch, session.steps - state.step), 0, -1):
            with session.recorder.step(last=left == 1):
                self.step(next(batches))
            state.step += 1
            state.batch += 1
            laps.append(time.perf_counter())
            session.show.step(state.step, f"epoch {state.epoch + 1}/{config.epochs}", task.meters.means)
            if state.step % CHECK_EVERY == 0 and self._diverged():
                return False
            self._save_if_due()
        # The first step of a session is left out: it pays for warming up.
        step_ms = round(1000 * (laps[-1] - laps[0]) / (len(laps) - 1), 3) if len(laps) > 1 else None
        self.log.timing = {"steps": len(laps), "step_ms": step_ms, "peak_memory_mb": 0}
        return not self._diverged()

    def step(self, parts: list[Any]) -> None:
        """One step of every optimizer on a batch, given as the parts it is computed in."""
        session, task = self.session, self.session.task
        factor = rate_factor(session.config, session.state.step, task.steps_per_epoch, session.steps)
        for optimizer in task.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
            optimizer.zero_grad()
        losses = [task.losses(part) for part in parts]
        shares = [task.share(part, parts) for part in parts]
        # Part by part within each optimizer's turn: a loss that is computed after another network's step sees that
        # step in every part, as in an undivided batch.
        for _ in task.optimizers:
            for number, (part_losses, share) in enumerate(zip(losses, shares, strict=True)):
                name = self._add_gradient(part_losses, share, first=number == 0, last=number == len(parts) - 1)
            self._update(name)

    def _add_gradient(self, losses: Iterator[tuple[str, Tensor]], share: float, *, first: bool, last: bool) -> str:
        """Add the gradient of a part's next loss to those before it; returns the name of its optimizer."""
        session, models = self.session, self.session.task.models.values()
        with ExitStack() as stack:
            if not last and session.context.world > 1:
                for model in models:
                    stack.enter_context(session.fabric.no_backward_sync(model))
            if not first:
                stack.enter_context(held_spectral_norms(models))
            name, loss = next(losses)
            session.fabric.backward(loss if share == 1 else loss * share)
        return name

    def _update(self, name: str) -> None:
        session = self.session
        if (norm := session.config.clip_norm) is not None:
            # A NaN must stay visible: it ends the trial as divergent, not as an error.
            model, optimizer = session.task.models[name], session.optimizers[name]
            session.fabric.clip_gradients(model, optimizer, max_norm=norm, error_if_nonfinite=False)
        session.optimizers[name].step()

    def _evaluate(self) -> dict[str, float]:
        session = self.session
        for model in session.task.models.values():
            model.eval()
        result: dict[str, float] = {}
        started = time.monotonic()
        # Processes may have different numbers of batches here, so each holds the whole models.
        with parallel.gathered(session.models):
            for scores in session.task.evaluate():
                if session.context.world == 1 and self.stop.received is not None:
                    self._save_and_stop()
                result = scores or result
        self.log.timing["eval_seconds"] = round(time.monotonic() - started, 3)
        return result

    def _diverged(self) -> bool:
        context = self.session.context
        diverged = not all(math.isfinite(value) for value in self.session.task.meters.means().values())
        if context.world == 1:
            return diverged
        return bool(context.add_up(torch.tensor(float(diverged), device=context.device)) > 0)

    def _save_if_due(self) -> None:
        due = time.monotonic() - self.saved_at >= self.save_every
        stop, due = self.flags.any(self.session.state.step, [self.stop.received is not None, due])
        if stop:
            self._save_and_stop()
        if due or self.save_every == 0:
            self._save()

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        resume.save(self.session)

    def _save_and_stop(self) -> None:
        self._save()
        # The first process to end ends the job: the launcher would not wait until everything is written.
        self.session.fabric.barrier()
        raise StoppedError(
            f"stopped at step {self.session.state.step} of {self.session.steps}; the state is saved in "
            f"{self.session.trial.path}. Run the same command to continue"
        )
