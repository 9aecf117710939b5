"""The display of a running sweep: a live table in a terminal, a line per trial elsewhere."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from riesz_lab.config import Config
from riesz_lab.errors import printable
from riesz_lab.store import StoredTrial
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps.definition import Sweep
from riesz_lab.sweeps.running.driver import Watcher
from riesz_lab.sweeps.running.pending import Pending
from riesz_lab.training import progress

if TYPE_CHECKING:
    from rich.table import Table


class Lines(Watcher):
    """A line per trial that ended, with the time left."""

    def __init__(self, sweep: Sweep, pending: Pending, runs: Path, slots: int):
        self.sweep, self.pending, self.runs, self.slots = sweep, pending, runs, slots
        # Of arms that share a trial, the first names it.
        arms = reversed(sweep.arms)
        self.labels = {config.id: arm.label for arm in arms for config in sweep.configs(arm)}
        self.total = len(self.labels)
        self.times: list[float] = []

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None:
        if trial is not None and trial.result is not None:
            self.times.append(seconds)
        done = f"{len(self.pending.done):>{len(str(self.total))}}/{self.total}"
        self.say(f"{done} {self._describe(config, trial, seconds, remark)}")

    def say(self, text: str) -> None:
        print(printable(text), flush=True)

    def left(self) -> str:
        if not self.times:
            return "?"
        return progress.clock(len(self.pending.waiting) * sum(self.times) / len(self.times) / self.slots)

    def close(self) -> None:
        """The sweep is over."""

    def _describe(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> str:
        name = f"{self.labels[config.id]}, {_seeds(config)}"
        if remark:
            return f"{name}: {remark}"
        assert trial is not None
        assert trial.result is not None
        score, value = trial.result.score, trial.result.value()
        if config.hold_out:  # the test images were not touched
            score = score.replace("test", "held-out", 1)
        shown = progress.format_scores({score: value}, score, trial.result.percent)
        scores = trial.status if value is None else shown
        return f"{name}: {scores}  ({progress.clock(seconds)}, {self.left()} left)"


class Live(Lines):
    """A table with a row per arm, redrawn twice a second; remarks scroll above it."""

    def __init__(self, sweep: Sweep, pending: Pending, runs: Path, slots: int):
        super().__init__(sweep, pending, runs, slots)
        from rich.live import Live as Screen

        self.arms = {arm.label: {config.id for config in sweep.configs(arm)} for arm in sweep.arms}
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
            self.say(self._describe(config, trial, seconds, remark))

    def tick(self, running: list[Config]) -> None:
        self.running = running

    def say(self, text: str) -> None:
        self.screen.console.print(printable(text), highlight=False, markup=False)

    def close(self) -> None:
        self.screen.stop()

    def _table(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.sweep.name}: {len(self.pending.done)}/{self.total} trials, {self.left()} left")
        for head in ("arm", "complete", "failed", "running now"):
            table.add_column(head, justify="left" if head in ("arm", "running now") else "right")
        for label, ids in self.arms.items():
            done, failed = (len(ids & trials.keys()) for trials in (self.pending.done, self.pending.failed))
            running = [config for config in self.running if self.labels[config.id] == label]
            now = ", ".join(map(self._describe_running, running))
            table.add_row(Text(label), f"{done}/{len(ids)}", str(failed or ""), Text(now))
        return table

    def _describe_running(self, config: Config) -> str:
        """The epoch of a running trial, read from its history."""
        try:
            with open(Trial(self.runs, config).history_file, "rb") as file:
                epochs = sum(1 for _ in file)
        except OSError:
            epochs = 0
        since = progress.clock(time.monotonic() - self.began_at.get(config.id, time.monotonic()))
        return f"{_seeds(config)} epoch {min(epochs + 1, config.epochs)}/{config.epochs} ({since})"


def make_display(kind: progress.Kind, sweep: Sweep, pending: Pending, runs: Path, slots: int) -> Lines:
    kinds = {"none": _Silent, "live": Live, "plain": Lines}
    return kinds[progress.resolved(kind)](sweep, pending, runs, slots)


class _Silent(Lines):
    def say(self, text: str) -> None:
        pass


def _seeds(config: Config) -> str:
    if config.effective_init_seed == config.effective_data_seed:
        return f"seed {config.effective_data_seed}"
    return f"init seed {config.effective_init_seed}, data seed {config.effective_data_seed}"
