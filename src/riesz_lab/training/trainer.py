"""Train one trial of any task: from its config, or from where it was interrupted, to its result."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from riesz_lab import models, tasks
from riesz_lab.config import Config
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.errors import LabError
from riesz_lab.store import Result, environment
from riesz_lab.store.result import Status
from riesz_lab.store.trial import Trial
from riesz_lab.tasks import Context
from riesz_lab.training import checkpoint, parallel, progress
from riesz_lab.training.epoch_log import EpochLog
from riesz_lab.training.hardware import Hardware, is_main_process
from riesz_lab.training.loop import Loop
from riesz_lab.training.resume import resume
from riesz_lab.training.session import Session
from riesz_lab.training.signals import Interrupts


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


@contextmanager
def _exits_as_errors() -> Iterator[None]:
    """A user's model or dataset that ends the process would end a sweep or a command in silence."""
    try:
        yield
    except SystemExit as error:
        raise LabError(f"code of the model or the dataset ended the process: SystemExit({error.code!r})") from error


@_exits_as_errors()
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
        data_dir: the folder of the datasets.
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
    # Code of the model or the dataset may change the working directory.
    trial = Trial(Path(runs).absolute(), config)
    if (result := trial.result()) is not None:
        trial.tidy_complete()
        return Outcome(trial.path, result, trained=False)
    hardware.check(config)
    with ExitStack() as stack:
        if is_main_process():
            stack.enter_context(trial.open())
            # Another process may have completed it during the checks.
            result = trial.result()
        stack.enter_context(parallel.translate_peer_errors())
        stop = stack.enter_context(Interrupts())
        fabric = hardware.fabric(config)
        fabric.launch()
        if (result := fabric.broadcast(result)) is not None:
            return Outcome(trial.path, result, trained=False)
        context = Context(fabric.device, fabric.global_rank, fabric.world_size, workers=hardware.decoders)
        if context.world > 1:
            context = replace(context, add_up=partial(fabric.all_reduce, reduce_op="sum"))
        session = Session(config, task_class(config, folder, data, context), context, fabric, trial, show)
        log = EpochLog(session, tensorboard=tensorboard)
        stack.callback(log.close)
        stack.callback(show.close)
        resume(session)
        if session.is_main:
            trial.add_session(environment.describe(fabric.device.type, context.world))
        show.score, show.percent = session.task.score, session.task.percent
        images_per_step = len(session.task.train) / session.task.steps_per_epoch
        show.start(step=session.state.step, total=session.steps, images_per_step=images_per_step)
        result = _finish(session, log, Loop(session, log, save_every, stop).run())
    return Outcome(trial.path, result, trained=True)


def _finish(session: Session, log: EpochLog, status: Status) -> Result:
    task, state = session.task, session.state
    weights = checkpoint.pack(session.models, session.is_main) if session.is_main or session.sharded else b""
    key, sign = task.score, 1 if task.higher_is_better else -1
    # The evaluation before the first step says nothing about the training.
    scored = [row for row in state.history if row.get(key) is not None and row["step"]]
    collapse = task.collapsed(state.history) if status == "finished" else None
    status = status if collapse is None else "collapsed"
    result = Result(
        status=status,
        collapse=collapse,
        step=state.step,
        parameters=sum(models.parameters(module) for module in session.models.values()),
        score=key,
        higher_is_better=task.higher_is_better,
        percent=task.percent,
        last=scored[-1] if scored and status == "finished" else None,
        best=max(scored, key=lambda row: sign * row[key]) if scored else None,
    )
    if status == "diverged":
        state.history.append(log.row(state.epoch + 1, {}))
    if session.is_main:
        session.trial.write_history(state.history)
        session.trial.finish(weights, result)
    session.fabric.barrier()
    return result
