"""Training one trial, whatever its task: from its config, or from where it was interrupted, to its result.

Requirements it meets:
- the state after any step, saved and loaded, continues to the same bits as if nothing had happened (CPU);
- nothing is read from the device in a step; the loss is looked at every `CHECK_EVERY` steps, and for the progress;
- whatever ends it (a signal, a full disk, a kill), what was saved before is whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from riesz_lab import models, tasks
from riesz_lab.config import Config
from riesz_lab.data import data_folder
from riesz_lab.errors import BadFileError, LabError, StoppedError
from riesz_lab.store import Result, environment
from riesz_lab.store.result import Status
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import Context, Task
from riesz_lab.training import checkpoint, optimizers, parallel, progress
from riesz_lab.training.hardware import Hardware, is_main_process
from riesz_lab.training.rendezvous import Appointments
from riesz_lab.training.signals import Interrupts
from riesz_lab.training.update_recorder import Watch
from riesz_lab.utils import randomness

CHECK_EVERY = 100
"""Steps between two looks at the loss: at fixed steps, so that a divergent trial always ends at the same one."""


@dataclass(frozen=True)
class Outcome:
    """What `train` returns.

    Attributes:
        path: the trial's directory.
        result: how it ended.
        trained: False if the trial was complete already.
    """

    path: Path
    result: Result
    trained: bool


@dataclass
class State:
    """Where a trial is: `batch` of `epoch` is next, `step` steps are done."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def train(
    config: Config,
    *,
    runs: Path | str = "runs",
    data_dir: Path | str | None = None,
    data: Any = None,
    hardware: Hardware | None = None,
    save_every: float = 60.0,
    show: progress.Progress | None = None,
    tensorboard: bool = False,
) -> Outcome:
    """Train a trial to its end, or continue it; if it is complete, return its result.

    Args:
        config: what to train.
        runs: the folder of all trials.
        data_dir: where datasets live.
        data: what the task trains on instead of the dataset named in the config, such as `riesz_lab.Data`.
        hardware: where to run.
        save_every: seconds between two checkpoints; 0 saves after each step.
        show: progress.
        tensorboard: also write TensorBoard logs into the trial's directory.

    Returns:
        The outcome.
    """
    hardware = hardware or Hardware()
    show = show or progress.Progress()
    folder = data_folder(data_dir)
    task_class = tasks.task_class(config.task)
    task_class.check(config, folder, data)
    trial = Trial(runs, config)
    if (result := trial.result()) is not None:
        return Outcome(trial.path, result, trained=False)
    hardware.check(config)
    with ExitStack() as stack:
        if is_main_process():
            stack.enter_context(trial.open())
            # Another process may have completed it while we looked at the data.
            result = trial.result()
        stack.enter_context(parallel.losing_contact())
        stop = stack.enter_context(Interrupts())
        fabric = hardware.fabric(config)
        fabric.launch()
        if (result := fabric.broadcast(result)) is not None:
            return Outcome(trial.path, result, trained=False)
        context = Context(fabric.device, fabric.global_rank, fabric.world_size, _adding_up(fabric), hardware.decoders)
        task = task_class(config, folder, data, context)
        run = _Run(config, task, context, fabric, trial, save_every, show, stop)
        stack.enter_context(run.logging(tensorboard))
        stack.callback(show.close)
        result = run.to_the_end()
    return Outcome(trial.path, result, trained=True)


class _Run:
    """One session of a trial."""

    def __init__(
        self,
        config: Config,
        task: Task,
        context: Context,
        fabric: Any,
        trial: Trial,
        save_every: float,
        show: progress.Progress,
        stop: Interrupts,
    ):
        self.config, self.task, self.context, self.fabric, self.trial = config, task, context, fabric, trial
        self.save_every, self.show, self.stop = save_every, show, stop
        self.main = fabric.is_global_zero
        self.modules = dict(task.models)
        """The models before they are wrapped: what is saved."""
        self.log: Any = None
        self.state = State()
        self.total = config.epochs * task.steps_per_epoch
        if config.max_steps is not None:
            self.total = min(self.total, config.max_steps)
        self.saved_at = time.monotonic()
        self.appointments = Appointments(context.rank, context.world, context.add_up, context.device)
        self.timing: dict[str, Any] = {}
        randomness.seed_all(randomness.derived("training", config.effective_data_seed, fabric.global_rank))
        before = parallel.named(self.modules)
        for name, model in self.modules.items():
            compiled = torch.compile(model) if config.compile else model
            task.models[name] = fabric.setup_module(compiled)
        parallel.reseat(task.optimizers.values(), before, self.modules)
        self.sharded = parallel.is_sharded(self.modules)
        # No process has whole weights to watch where they are dealt out.
        self.watch = Watch({}, {}) if self.sharded else Watch(self.modules, task.attachments)
        self.optimizers = {name: fabric.setup_optimizers(optimizer) for name, optimizer in task.optimizers.items()}

    def to_the_end(self) -> Result:
        self._resume()
        if self.main:
            self.trial.add_session(environment.describe(self.fabric.device.type, self.context.world))
        self.show.start(step=self.state.step, total=self.total, images_per_step=self._images_per_step())
        if self.config.eval_first and not self.state.history and not self.state.step:
            self._add_row(0, self._evaluate())
        while self.state.step < self.total or self.state.batch:
            if not self._train_epoch():
                return self._finish("diverged")
            self._close_epoch(self._evaluate() if self._evaluation_due() else {})
        return self._finish("finished")

    # -- one epoch -------------------------------------------------------------------------------------------------

    def _train_epoch(self) -> bool:
        """The batches that are left of the current epoch. False if the loss is no number any more."""
        task, state = self.task, self.state
        for model in task.models.values():
            model.train()
        for attachment in task.attachments.values():
            attachment.enabled = self.config.smooth_epochs is None or state.epoch < self.config.smooth_epochs
        steps = min(task.steps_per_epoch - state.batch, self.total - state.step)
        batches = task.batches(state.epoch, state.batch)
        if state.batch == 0:
            self.watch.begin()
        watch = _Stopwatch()
        for left in range(steps, 0, -1):
            with self.watch.step(last=left == 1):
                self._step(next(batches))
            state.step += 1
            state.batch += 1
            watch.lap()
            self.show.step(state.step, self._epoch_told(), task.meters.means)
            if state.step % CHECK_EVERY == 0 and self._diverged():
                return False
            self._save_if_due()
        self.timing = {"steps": watch.laps, "step_ms": watch.milliseconds(), "peak_memory_mb": 0}
        return not self._diverged()

    def _step(self, parts: list[Any]) -> None:
        task, config = self.task, self.config
        for optimizer in task.optimizers.values():
            optimizers.set_rate(config, optimizer, self.state.step, task.steps_per_epoch, self.total)
            optimizer.zero_grad()
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            share = task.share(part, parts)
            with self._without_sync(enabled=not last):
                for name, loss in task.losses(part):
                    self.fabric.backward(loss if share == 1 else loss * share)
                    if last:
                        self._update(name)

    def _update(self, name: str) -> None:
        if self.config.clip_norm is not None:
            self.fabric.clip_gradients(
                self.task.models[name],
                self.optimizers[name],
                max_norm=self.config.clip_norm,
                # A NaN must stay visible: it ends the trial as divergent, not as an error.
                error_if_nonfinite=False,
            )
        self.optimizers[name].step()

    def _evaluation_due(self) -> bool:
        return self.state.step >= self.total or (self.state.epoch + 1) % self.config.eval_every == 0

    def _evaluate(self) -> dict[str, float]:
        for model in self.task.models.values():
            model.eval()
        scores: dict[str, float] = {}
        started = time.monotonic()
        # Several processes may have different numbers of batches here, so each has all it needs.
        with parallel.gathered(self.modules):
            for found in self.task.evaluate():
                if self.context.world == 1 and self.stop.received is not None:
                    self._save_and_stop()
                scores = found or scores
        self.timing["eval_seconds"] = round(time.monotonic() - started, 3)
        return scores

    def _close_epoch(self, scores: dict[str, float]) -> None:
        """Write the epoch's line and go to the next; a checkpoint before this repeats it, one after does not."""
        self.state.epoch += 1
        self.state.batch = 0
        self._add_row(self.state.epoch, scores)
        self._save_if_due()

    def _add_row(self, epoch: int, scores: dict[str, float]) -> None:
        """What an epoch brought: its line, its pictures, its timing."""
        row = self._row(epoch, scores)
        self.state.history.append(row)
        self.task.meters.reset()
        if self.main:
            for name, png in self.task.pictures().items() if scores else ():
                self.trial.add_picture(f"{name}-epoch-{epoch:04d}.png", png)
            self.trial.write_history(self.state.history)
            self.timing["peak_memory_mb"] = environment.peak_memory_mb()
            self.trial.add_timing({"epoch": row["epoch"], **self.timing})
            if (updates := self.watch.end()) is not None:
                self.trial.add_updates({"epoch": row["epoch"], "layers": updates})
        if self.log is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self.log.add_scalar(name, value, row["step"])
        self.show.row(row, self.state.step)

    def _row(self, epoch: int, scores: dict[str, float]) -> dict[str, Any]:
        means = self.task.meters.means(self.context.add_up)
        rate = next(iter(self.task.optimizers.values())).param_groups[0]["lr"]
        row = {"epoch": epoch, "step": self.state.step, "lr": rate, **means, **scores}
        # JSON has no NaN: what is no number is null.
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, status: Status) -> Result:
        weights = checkpoint.pack(self.modules, self.main) if self.main or self.sharded else b""
        key, sign = self.task.score, 1 if self.task.higher_is_better else -1
        # What was measured before the first step is no success of the training.
        scored = [row for row in self.state.history if row.get(key) is not None and row["step"]]
        why = self.task.collapsed(self.state.history) if status == "finished" else None
        status = status if why is None else "collapsed"
        result = Result(
            status=status,
            collapse=why,
            step=self.state.step,
            parameters=sum(models.parameters(module) for module in self.modules.values()),
            score=key,
            higher_is_better=self.task.higher_is_better,
            last=scored[-1] if scored and status == "finished" else None,
            best=max(scored, key=lambda row: sign * row[key]) if scored else None,
        )
        if status == "diverged":
            self.state.history.append(self._row(self.state.epoch + 1, {}))
        if self.main:
            self.trial.write_history(self.state.history)
            self.trial.finish(weights, result)
        self.fabric.barrier()
        return result

    # -- state -----------------------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        due = time.monotonic() - self.saved_at >= self.save_every
        stop, due = self.appointments.any(self.state.step, [self.stop.received is not None, due])
        if stop:
            self._save_and_stop()
        if due or self.save_every == 0:
            self._save()

    def _save_and_stop(self) -> None:
        self._save()
        # Who ends first ends the job: the others' launcher would not wait until everything is written.
        self.fabric.barrier()
        raise StoppedError(
            f"stopped at step {self.state.step} of {self.total}; the state is saved in {self.trial.path}. "
            "Run the same command to continue"
        )

    def _save(self) -> None:
        """Every process comes here at the same step; the first one writes."""
        self.saved_at = time.monotonic()
        meters = self.task.meters.state(self.context.add_up)
        if not self.main and not self.sharded:
            return
        state = {
            "config": self.config.id,
            "step": self.state.step,
            "epoch": self.state.epoch,
            "batch": self.state.batch,
            "history": self.state.history,
            "meters": meters,
            "optimizers": {n: parallel.whole(o.state_dict(), self.main) for n, o in self.task.optimizers.items()},
            "precision": self.fabric.strategy.precision.state_dict(),
            "randomness": randomness.state(),
            "watch": self.watch.state(),
        }
        checkpoint.save(self.trial.checkpoints, self.state.step, self.modules, state, write=self.main)

    def _resume(self) -> None:
        """Take up the newest checkpoint that can be read; without one, start from the beginning."""
        newest = self._newest() if self.main else None
        # The first process chooses for all: two that disagree would train from different steps.
        path = self.fabric.broadcast(None if newest is None else newest[0])
        if path is not None:
            self._restore(path, *(newest[1:] if newest is not None else checkpoint.load(path)))
            self.show.note(f"continued from step {self.state.step}")
        if self.main:
            # What was written after the checkpoint is computed again.
            self.trial.write_history(self.state.history)
            self.trial.keep_updates(self.state.epoch)

    def _newest(self) -> tuple[Path, dict[str, torch.Tensor], dict[str, Any]] | None:
        for path in checkpoint.found(self.trial.checkpoints):
            try:
                weights, state = checkpoint.load(path)
                if state.get("config") != self.config.id:
                    raise BadFileError(f"{path} belongs to another trial")
            except BadFileError as error:
                self.show.note(f"{error}; the checkpoint before it is used")
                checkpoint.set_aside(path)
                continue
            return path, weights, state
        return None

    def _restore(self, path: Path, weights: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        try:
            checkpoint.unpack(self.modules, weights)
            for name, optimizer in self.task.optimizers.items():
                optimizer.load_state_dict(parallel.optimizer_state(optimizer, state["optimizers"][name]))
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            self.task.meters.restore(state["meters"], first=self.main)
            self.watch.restore(state.get("watch", {}))
            if self.main:
                randomness.restore(state["randomness"])
            self.state = State(int(state["step"]), int(state["epoch"]), int(state["batch"]), list(state["history"]))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, BadFileError) as error:
            raise LabError(
                f"{path} is no state of this trial ({error}). Remove it, and the same command starts from what is left"
            ) from None

    # -- small things ----------------------------------------------------------------------------------------------

    @contextmanager
    def logging(self, wanted: bool) -> Iterator[None]:
        if not wanted or not self.main:
            yield
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise LabError("TensorBoard is not installed: pip install 'riesz[tensorboard]'") from None
        self.log = SummaryWriter(str(self.trial.path / "tensorboard"))
        try:
            yield
        finally:
            self.log.close()

    def _diverged(self) -> bool:
        return self._any(not all(math.isfinite(value) for value in self.task.meters.means().values()))

    def _any(self, flag: bool) -> bool:
        if self.context.world == 1:
            return flag
        return bool(self.context.add_up(torch.tensor(float(flag), device=self.context.device)) > 0)

    @contextmanager
    def _without_sync(self, enabled: bool) -> Iterator[None]:
        with ExitStack() as stack:
            for model in self.task.models.values() if enabled else ():
                stack.enter_context(self.fabric.no_backward_sync(model) if self.context.world > 1 else nullcontext())
            yield

    def _images_per_step(self) -> float:
        return self.task.images / self.task.steps_per_epoch

    def _epoch_told(self) -> str:
        return f"epoch {self.state.epoch + 1}/{self.config.epochs}"


def _adding_up(fabric: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    if fabric.world_size == 1:
        return lambda local: local
    return lambda local: fabric.all_reduce(local, reduce_op="sum")


class _Stopwatch:
    """Time per step, without the first one of a session: it pays for warming up."""

    def __init__(self) -> None:
        self.laps = 0
        self._from = self._to = time.perf_counter()

    def lap(self) -> None:
        self.laps += 1
        self._to = time.perf_counter()
        if self.laps == 1:
            self._from = self._to

    def milliseconds(self) -> float | None:
        return round(1000 * (self._to - self._from) / (self.laps - 1), 3) if self.laps > 1 else None
