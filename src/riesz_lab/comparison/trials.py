"""Run the trials of a comparison, or read what is stored of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from riesz_lab.comparison.arms import settings_of
from riesz_lab.comparison.function import UserFunction, with_settings
from riesz_lab.comparison.own_loop import HELD_OUT, run_own_loop
from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.store import Result
from riesz_lab.store.files import Row, read_rows
from riesz_lab.store.trial import Trial
from riesz_lab.training import progress
from riesz_lab.training.trainer import train as train_trial
from riesz_lab.utils import atomic


@dataclass
class Trials:
    """Runs trials one after another and keeps count of them.

    Attributes:
        function: the user's.
        runs: the folder of all trials.
        score, higher_is_better: of a user's loop.
        fresh: train anew what is stored.
        say: called with a line per trial.
        seconds: per trial, by id; of a stored one as it was measured then.
        stored: the dates of stored trials, by id.
    """

    function: UserFunction
    runs: Path
    score: str
    higher_is_better: bool
    fresh: bool
    say: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    _results: dict[str, Result] = field(default_factory=dict)
    _first: dict[str, tuple[int, object]] = field(default_factory=dict)

    def run(self, config: Config, title: str, *, tuning: bool = False, left: int = 0) -> Result:
        """The result of a trial; `left` trials are still to be run after it."""
        if config.id in self._results:
            return self._results[config.id]
        trial = Trial(self.runs, config)
        if self.fresh and trial.path.exists():
            atomic.remove_directory(trial.path)
        result, remark = trial.result(), ""
        if result is not None:
            self.stored[config.id] = datetime.fromtimestamp(trial.result_file.stat().st_mtime).strftime("%Y-%m-%d")
            self.seconds[config.id] = sum(map(_seconds, read_rows(trial.timing_file)))
            remark = f"stored {self.stored[config.id]}"
        else:
            began = time.monotonic()
            result = self._train(trial, tuning)
            self.seconds[config.id] = time.monotonic() - began
            trained = [value for id_, value in self.seconds.items() if id_ not in self.stored]
            remark = progress.clock(self.seconds[config.id])
            if left:
                remark += f", {progress.clock(left * sum(trained) / len(trained))} left"
        self._results[config.id] = result
        row = result.last
        if tuning and row is not None and HELD_OUT in row:
            row = {HELD_OUT: row[HELD_OUT]}  # the choice is made by this alone; the test score is not shown
        scores = "diverged" if row is None else progress.format_scores(row)
        self.say(f"{title}: {scores}  ({remark})")
        self._check_chance(config, result)
        return result

    def is_stored(self, config: Config) -> bool:
        return config.id in self._results or (not self.fresh and Trial(self.runs, config).result_file.exists())

    def _train(self, trial: Trial, tuning: bool) -> Result:
        call = with_settings(self.function, settings_of(trial.config))
        if self.function.trains:
            return run_own_loop(trial, call, self.function.name, self.score, self.higher_is_better, tuning)
        return train_trial(trial.config, data=call, runs=self.runs).result

    def _check_chance(self, config: Config, result: Result) -> None:
        """Two seeds with the same weights and scores: the function sets a seed itself, and n trials are one."""
        if not self.function.trains or result.last is None:
            return
        weights = hashlib.sha256(Trial(self.runs, config).weights_file.read_bytes()).hexdigest()
        seed, first = self._first.setdefault(config.group, (config.seed, (result.last, weights)))
        if seed != config.seed and first == (result.last, weights):
            where = f" ({self.function.seeding})" if self.function.seeding else ""
            raise LabError(
                f"seeds {seed} and {config.seed} of {self.function.name!r} give the same weights and scores: more "
                f"trials would say nothing. Chance is seeded before each call; remove what seeds it in the "
                f"function{where}, or use its argument `seed` there"
            )


def _seconds(row: Row) -> float:
    """Of a user's loop as a whole, of the lab's loop by epoch."""
    steps = float(row.get("steps") or 0) * float(row.get("step_ms") or 0) / 1000
    return float(row.get("seconds") or steps + float(row.get("eval_seconds") or 0))
