"""Between a session and its checkpoints: what a checkpoint holds, and which one a trial continues from."""

from pathlib import Path
from typing import Any

from torch import Tensor

from riesz_lab.errors import BadFileError, LabError
from riesz_lab.training import checkpoint, parallel
from riesz_lab.training.session import Session, State
from riesz_lab.utils import randomness


def save(session: Session) -> None:
    """Write a checkpoint. Every process calls this at the same step; the main one writes."""
    state, task, main = session.state, session.task, session.is_main
    meters = task.meters.state(session.context.add_up)
    # Dropout of every process draws from its own generators.
    randomness_of_ranks = parallel.gather_objects(randomness.state(), session.context.world)
    if not main and not session.sharded:
        return
    saved = {
        "config": session.config.id,
        **vars(state),
        "meters": meters,
        "optimizers": {n: parallel.full_tensors(o.state_dict(), main) for n, o in task.optimizers.items()},
        "precision": session.fabric.strategy.precision.state_dict(),
        "randomness": randomness_of_ranks[0],
        "randomness_of_others": randomness_of_ranks[1:],
        "watch": session.recorder.state(),
    }
    checkpoint.save(session.trial.checkpoints, state.step, session.models, saved, write=main)


def resume(session: Session) -> None:
    """Continue from the newest readable checkpoint; without one, start from the beginning."""
    newest = _newest(session) if session.is_main else None
    # The main process chooses for all: two that disagree would train from different steps.
    path = session.fabric.broadcast(None if newest is None else newest[0])
    if path is not None:
        _restore(session, path, *(newest[1:] if newest is not None else checkpoint.load(path)))
        session.show.note(f"continued from step {session.state.step}")
    if session.is_main:
        # Rows written after the checkpoint are computed again.
        session.trial.write_history(session.state.history)
        session.trial.keep_updates(session.state.epoch)


def _newest(session: Session) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    for path in checkpoint.newest_first(session.trial.checkpoints):
        try:
            weights, state = checkpoint.load(path)
            if state.get("config") != session.config.id:
                raise BadFileError(f"{path} belongs to another trial")
        except BadFileError as error:
            session.show.note(f"{error}; the checkpoint before it is used")
            checkpoint.set_aside(path)
            continue
        return path, weights, state
    return None


def _restore(session: Session, path: Path, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
    task = session.task
    try:
        checkpoint.unpack(session.models, weights)
        for name, optimizer in task.optimizers.items():
            optimizer.load_state_dict(parallel.shard_optimizer_state(optimizer, state["optimizers"][name]))
        session.fabric.strategy.precision.load_state_dict(state["precision"])
        task.meters.restore(state["meters"], first=session.is_main)
        session.recorder.restore(state.get("watch", {}))
        saved = [state["randomness"], *state.get("randomness_of_others", [])]
        if session.context.rank < len(saved):  # a trial may continue on more processes than it was saved by
            randomness.restore(saved[session.context.rank])
        session.state = State(int(state["step"]), int(state["epoch"]), int(state["batch"]), list(state["history"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, BadFileError) as error:
        raise LabError(
            f"{path} is no state of this trial ({error}). Remove it, and the same command starts from what is left"
        ) from None
