"""What each epoch leaves behind: a row of the history, pictures, timing, weight updates, TensorBoard scalars."""

import math
from typing import Any

from riesz_lab.errors import LabError
from riesz_lab.store import environment
from riesz_lab.store.files import append_row
from riesz_lab.training.session import Session
from riesz_lab.utils import atomic


class EpochLog:
    """Writes the rows of a session."""

    def __init__(self, session: Session, *, tensorboard: bool = False):
        self.session = session
        self.timing: dict[str, Any] = {}  # of the current epoch
        self.writer = _summary_writer(session) if tensorboard and session.is_main else None

    def add(self, epoch: int, scores: dict[str, float]) -> None:
        """Close an epoch with the means of its meters and, if it was evaluated, its scores."""
        session, row = self.session, self.row(epoch, scores)
        session.state.history.append(row)
        session.task.meters.reset()
        if session.is_main:
            for name, png in session.task.pictures().items() if scores else ():
                atomic.make_directory(session.trial.pictures)
                atomic.write_bytes(session.trial.pictures / f"{name}-epoch-{epoch:04d}.png", png)
            session.trial.write_history(session.state.history)
            self.timing["peak_memory_mb"] = environment.peak_memory_mb()
            append_row(session.trial.timing_file, {"epoch": epoch, **self.timing})
            if (updates := session.recorder.end()) is not None:
                append_row(session.trial.updates_file, {"epoch": epoch, "layers": updates})
        if self.writer is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, row["step"])
        session.show.row(row, session.state.step)

    def row(self, epoch: int, scores: dict[str, float]) -> dict[str, Any]:
        session = self.session
        means = session.task.meters.means(session.context.add_up)
        rate = next(iter(session.task.optimizers.values())).param_groups[0]["lr"]
        row = {"epoch": epoch, "step": session.state.step, "lr": rate, **means, **scores}
        # JSON has no NaN: a value that is not finite becomes null.
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _summary_writer(session: Session) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise LabError("TensorBoard is not installed: pip install 'riesz[tensorboard]'") from None
    return SummaryWriter(str(session.trial.path / "tensorboard"))
