"""What one sees of a running sweep: a live table in a terminal, a line per trial elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from riesz_lab.config import Config
from riesz_lab.store import StoredTrial
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps.definition import Sweep
from riesz_lab.sweeps.running.driver import Watcher
from riesz_lab.sweeps.running.pending import Plan
from riesz_lab.training import progress

if TYPE_CHECKING:
    from rich.table import Table


class Lines(Watcher):
    """A line per trial that ended, with the time left."""

    def __init__(self, sweep: Sweep, plan: Plan, runs: Path, slots: int):
        self.sweep, self.plan, self.runs, self.slots = sweep, plan, runs, slots
        self.labels: dict[str, str] = {}
        for arm in sweep.arms:
            for config in sweep.configs(arm):
                self.labels.setdefault(config.id, arm.label)
        self.total = len(self.labels)
        self.times: list[float] = []

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None:
        if trial is not None and trial.result is not None:
            self.times.append(seconds)
        self.say(
            f"{len(self.plan.done):>{len(str(self.total))}}/{self.total} {self._told(config, trial, seconds, remark)}"
        )

    def say(self, text: str) -> None:
        print(text, flush=True)

    def left(self) -> str:
        """Time left, from the trials that ended in this session."""
        if not self.times:
            return "?"
        return progress.clock(len(self.plan.waiting) * sum(self.times) / len(self.times) / self.slots)

    def close(self) -> None:
        """The sweep is over."""

    def _told(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> str:
        name = f"{self.labels[config.id]}, {_seeds(config)}"
        if remark:
            return f"{name}: {remark}"
        assert trial is not None
        assert trial.result is not None
        row = trial.result.last
        scores = trial.status if row is None else progress.format_scores({trial.result.score: row[trial.result.score]})
        return f"{name}: {scores}  ({progress.clock(seconds)}, {self.left()} left)"


class Live(Lines):
    """A table with a row per arm, redrawn twice a second; remarks scroll above it."""

    def __init__(self, sweep: Sweep, plan: Plan, runs: Path, slots: int):
        super().__init__(sweep, plan, runs, slots)
        from rich.live import Live as Screen

        self.arms = {arm.label: [config.id for config in sweep.configs(arm)] for arm in sweep.arms}
        self.running: list[Config] = []
        self.began_at: dict[str, float] = {}
        self.screen = Screen(get_renderable=self._table, refresh_per_second=2, transient=True)
        self.screen.start()

    def began(self, config: Config) -> None:
        self.began_at[config.id] = time.monotonic()

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None:
        if trial is not None and trial.result is not None:
            self.times.append(seconds)
        if remark:
            self.say(self._told(config, trial, seconds, remark))

    def tick(self, running: list[Config]) -> None:
        self.running = running

    def say(self, text: str) -> None:
        self.screen.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self.screen.stop()

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.sweep.name}: {len(self.plan.done)}/{self.total} trials, {self.left()} left")
        for head in ("arm", "complete", "failed", "running now"):
            table.add_column(head, justify="left" if head in ("arm", "running now") else "right")
        for label, ids in self.arms.items():
            counts = Counter(
                "done" if one in self.plan.done else "failed" if one in self.plan.failed else "" for one in ids
            )
            now = ", ".join(self._at(config) for config in self.running if self.labels[config.id] == label)
            table.add_row(Text(label), f"{counts['done']}/{len(ids)}", str(counts["failed"] or ""), Text(now))
        return table

    def _at(self, config: Config) -> str:
        """The epoch a running trial is at, as its history tells."""
        try:
            with open(Trial(self.runs, config).history_file, "rb") as file:
                epochs = sum(1 for _ in file)
        except OSError:
            epochs = 0
        since = progress.clock(time.monotonic() - self.began_at.get(config.id, time.monotonic()))
        return f"{_seeds(config)} epoch {min(epochs + 1, config.epochs)}/{config.epochs} ({since})"


def make(kind: progress.Kind, sweep: Sweep, plan: Plan, runs: Path, slots: int) -> Lines:
    """The watcher for this terminal."""
    if kind == "none":
        return _Silent(sweep, plan, runs, slots)
    if kind == "live" or (kind == "auto" and sys.stdout.isatty()):
        return Live(sweep, plan, runs, slots)
    return Lines(sweep, plan, runs, slots)


class _Silent(Lines):
    def say(self, text: str) -> None:
        pass


def _seeds(config: Config) -> str:
    if config.effective_init_seed == config.effective_data_seed:
        return f"seed {config.effective_data_seed}"
    return f"init seed {config.effective_init_seed}, data seed {config.effective_data_seed}"
