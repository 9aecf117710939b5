"""What one sees while a trial runs: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Literal

Kind = Literal["auto", "live", "plain", "none"]
Means = Callable[[], dict[str, float]]


class Progress:
    """Says nothing; the others say more."""

    every = float("inf")
    """Seconds between two looks at the running means: looking waits for the device."""

    def __init__(self, title: str = ""):
        self.title = title
        self._looked = time.monotonic()

    def start(self, *, step: int, total: int, images_per_step: float) -> None:
        self.total = total
        self.images_per_step = images_per_step
        self._first = step
        self._began = self._looked = time.monotonic()

    def step(self, step: int, epoch: str, means: Means) -> None:
        """Called after every step; cheap unless it is time to look."""
        now = time.monotonic()
        if now - self._looked >= self.every:
            self._looked = now
            self.show(step, epoch, means())

    def speed(self, step: int) -> float:
        """Images a second since the start of this session."""
        return (step - self._first) * self.images_per_step / max(time.monotonic() - self._began, 1e-9)

    def left(self, step: int) -> str:
        """Time left at the speed of this session."""
        done = step - self._first
        if done == 0:
            return "?"
        return clock((time.monotonic() - self._began) / done * (self.total - step))

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        pass

    def row(self, row: dict[str, Any], step: int) -> None:
        """An epoch is over."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def close(self) -> None:
        pass


class Plain(Progress):
    """A line per epoch, and one every half minute of a long one."""

    every = 30.0

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        self._say(f"{epoch} step {step}/{self.total}  {told(means)}  {self._pace(step)}")

    def row(self, row: dict[str, Any], step: int) -> None:
        self._say(f"epoch {row['epoch']} step {step}/{self.total}  {told(row)}  {self._pace(step)}")

    def note(self, text: str) -> None:
        self._say(text)

    def _pace(self, step: int) -> str:
        return f"{self.speed(step):.0f} images/s  {self.left(step)} left"

    def _say(self, text: str) -> None:
        print(f"{self.title}: {text}" if self.title else text, flush=True)


class Live(Progress):
    """A bar that is redrawn four times a second, with a line per epoch above it where `rows` is on."""

    every = 0.25

    def __init__(self, title: str = "", rows: bool = True):
        super().__init__(title)
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._rows = rows
        self._bar = Bar(
            TextColumn("{task.fields[title]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            transient=True,
        )

    def start(self, *, step: int, total: int, images_per_step: float) -> None:
        super().start(step=step, total=total, images_per_step=images_per_step)
        self._task = self._bar.add_task("", total=total, completed=step, title=self.title, text="starting")
        self._bar.start()

    def show(self, step: int, epoch: str, means: dict[str, float]) -> None:
        text = f"{epoch}  {told(means)}  {self.speed(step):.0f} images/s  {self.left(step)} left"
        self._bar.update(self._task, completed=step, text=text)

    def row(self, row: dict[str, Any], step: int) -> None:
        if self._rows:
            self._bar.console.print(f"{self.title} epoch {row['epoch']}  {told(row)}", highlight=False, markup=False)

    def note(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._bar.stop()


def make(kind: Kind, title: str = "", *, rows: bool = True) -> Progress:
    """The progress for this terminal."""
    if kind == "none":
        return Progress(title)
    if kind == "live" or (kind == "auto" and sys.stdout.isatty()):
        return Live(title, rows)
    return Plain(title)


def told(values: dict[str, Any]) -> str:
    """Losses and scores in words; accuracies and IoU in percent."""
    shown = []
    for name, value in values.items():
        if name in ("epoch", "step", "lr") or value is None:
            continue
        text = f"{100 * value:.2f}%" if name.endswith(("accuracy", "miou")) else f"{value:.4f}"
        shown.append(f"{name.replace('_', ' ')} {text}")
    return "  ".join(shown)


def clock(seconds: float) -> str:
    """3725 is 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
