"""Progress of a running trial: a live bar in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import Any, Literal

from riesz_lab.errors import printable
from riesz_lab.store.result import is_percent
from riesz_lab.utils.terminal import can_redraw

Kind = Literal["auto", "live", "plain", "none"]
Means = Callable[[], dict[str, float]]


class Progress:
    """Shows nothing; base of the others."""

    every = float("inf")
    """Seconds between two reads of the running means: a read waits for the device."""

    score, percent = "", False
    """The score that trials are compared by, and whether it is printed in percent."""

    def __init__(self, title: str = ""):
        self.title = title
        self._read_at = time.monotonic()

    def start(self, *, step: int, total: int, images_per_step: float) -> None:
        self.total, self.images_per_step, self._first = total, images_per_step, step
        self._began = self._read_at = time.monotonic()

    def step(self, step: int, epoch: str, means: Means) -> None:
        """Called after every step; cheap unless a read is due."""
        now = time.monotonic()
        if now - self._read_at >= self.every:
            self._read_at = now
            self.show(step, epoch, means())

    def pace(self, step: int) -> str:
        """The speed of this session, and the time left at it."""
        done, seconds = step - self._first, time.monotonic() - self._began
        left = clock(seconds / done * (self.total - step)) if done else "?"
        return f"{done * self.images_per_step / max(seconds, 1e-9):.0f} images/s  {left} left"

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        pass

    def row(self, row: dict[str, Any], step: int) -> None:
        """Called at the end of an epoch."""

    def format(self, values: dict[str, Any]) -> str:
        return format_scores(values, self.score, self.percent)

    def note(self, text: str) -> None:
        """Called with a message for the user."""

    def close(self) -> None:
        pass


class Plain(Progress):
    """A line per epoch, and every half minute of a long one."""

    every = 30.0

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        self.note(f"{epoch} step {step}/{self.total}  {self.format(means)}  {self.pace(step)}")

    def row(self, row: dict[str, Any], step: int) -> None:
        self.note(f"epoch {row['epoch']} step {step}/{self.total}  {self.format(row)}  {self.pace(step)}")

    def note(self, text: str) -> None:
        print(f"{self.title}: {text}" if self.title else text, flush=True)


class Live(Progress):
    """A bar, redrawn four times a second, with a line per epoch above it."""

    every = 0.25

    def __init__(self, title: str = ""):
        super().__init__(title)
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        title_column, text_column = TextColumn("{task.fields[title]}"), TextColumn("{task.fields[text]}")
        self._bar = Bar(title_column, BarColumn(bar_width=24), text_column, transient=True)

    def start(self, *, step: int, total: int, images_per_step: float) -> None:
        super().start(step=step, total=total, images_per_step=images_per_step)
        self._task = self._bar.add_task("", total=total, completed=step, title=self.title, text="starting")
        self._bar.start()

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        self._bar.update(self._task, completed=step, text=f"{epoch}  {self.format(means)}  {self.pace(step)}")

    def row(self, row: dict[str, Any], step: int) -> None:
        self.note(f"{self.title} epoch {row['epoch']}  {self.format(row)}")

    def note(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._bar.stop()


def make(kind: Kind, title: str = "") -> Progress:
    return {"none": Progress, "live": Live, "plain": Plain}[resolved(kind)](title)


def resolved(kind: Kind) -> Literal["live", "plain", "none"]:
    """What "auto" stands for here."""
    return kind if kind != "auto" else "live" if can_redraw() else "plain"


def format_scores(values: dict[str, Any], score: str, percent: bool) -> str:
    """Losses and scores by name; see `is_percent` for what is printed in percent."""
    shown = []
    for name, value in values.items():
        if name in ("epoch", "step", "lr") or value is None:
            continue
        text = f"{100 * value:.2f}%" if is_percent(name, score, percent) else f"{value:.4f}"
        shown.append(f"{printable(name).replace('_', ' ')} {text}")
    return "  ".join(shown)


def clock(seconds: float) -> str:
    """3725 is 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
