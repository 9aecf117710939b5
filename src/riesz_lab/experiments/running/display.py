"""What is shown while an experiment runs: a line per trial and look; in a terminal, above a live table of the arms."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from riesz_lab.config import Config
from riesz_lab.errors import printable
from riesz_lab.experiments.result import ArmResult, Result, describe_seeds
from riesz_lab.experiments.running.jobs import Pending, Watcher
from riesz_lab.experiments.tuning import HELD_OUT
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.statistics.verdict import difference_cells, format_difference
from riesz_lab.store import StoredTrial
from riesz_lab.store.trial import Trial
from riesz_lab.training import progress
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR = 31
"""Characters of an interval's drawing; odd, so that zero has one in the middle."""

Say = Callable[[str], None]


class Display(Watcher):
    """Lines alone, for a file or for a function of the caller's."""

    def __init__(self, say: Say, runs: Path):
        self._say, self.runs = say, runs
        self.times: list[float] = []  # of the trials that were trained, in seconds
        self.stored: list[StoredTrial] = []  # trials that no line was printed about

    def say(self, text: str) -> None:
        self._say(printable(text))

    def begin(self, now: Result, pending: Pending, slots: int) -> None:
        """A batch of trials: those that tune, all others, or the next pair."""
        self.now, self.pending, self.slots = now, pending, slots
        self.titles = {config.id: title for config, title in now.missing}
        self.arm_of = now.arm_of
        tunes = bool(now.tuned is not None and now.tuned.why_not)
        before = len(now.tuned.trials) if tunes and now.tuned else len(_compared(now))
        self.total = before + len(now.missing)
        self.done = before + len(pending.done)
        for path, reason in pending.aside.items():
            self.say(f"set aside: {path} ({reason}); its trial is trained anew")
        if now.experiment.stopping.most is not None and not tunes:
            self.prefix = f"pair {max(each.wanted for each in now.arms.values())}"
            self.stored += pending.done.values()
            if pending.waiting:
                self._mention_stored()
            return
        self.prefix = "tuning" if tunes else ""
        name = f"{now.experiment.name} tuning" if tunes else now.experiment.name
        new = len(pending.waiting) - pending.interrupted
        self.say(
            f"{name}: {count(self.total, 'trial')}, {self.done} complete, {pending.interrupted} to be continued, "
            f"{new} new, {len(pending.failed)} failed before"
        )

    def ended(self, config: Config, trial: StoredTrial | None, seconds: float, remark: str) -> None:
        if trial is None or trial.result is None:
            self.say(f"{self.titles[config.id]}: {remark}")
            return
        self.done += 1
        self.times.append(seconds)
        self._show(config, trial, seconds)

    def look(self, now: Result, batch: Pending) -> None:
        """The verdicts after a pair."""
        most = now.experiment.stopping.most
        looked_at = {label: each for label, each in now.compared.items() if each.judgement and each.judgement.pairs}
        if most is None or not looked_at or (now.tuned is not None and now.tuned.why_not):
            return
        pairs = max(each.judgement.pairs for each in looked_at.values() if each.judgement)
        latest = {label: each for label, each in looked_at.items() if each.judgement and each.judgement.pairs == pairs}
        going_on = {config.id for config, _ in now.missing}
        ended = [each for each in latest.values() if each.verdict != "undecided" or each.reason]
        if pairs < 3 or (going_on and not ended and not batch.trained):
            return  # nothing was trained for this pair, and no arm ended with it
        self._mention_stored()
        self._looks(latest)
        self.say(f"  {pairs} of at most {most} pairs{self._time_left(now, pairs)}")

    def close(self) -> None:
        """The experiment is over."""
        self._mention_stored()

    def _looks(self, latest: Mapping[str, ArmResult]) -> None:
        for label, each in latest.items():
            self.say(f"  {label}: {describe(each, self.now.score.unit)}")

    def _time_left(self, now: Result, pairs: int) -> str:
        most = now.experiment.stopping.most
        if not now.missing or most is None:
            return ""
        seconds = [trial.seconds for trial in _compared(now)]
        turns = math.ceil(len(now.missing) / self.slots)
        left = (most - pairs) * turns * sum(seconds) / len(seconds)
        return f", about {progress.clock(left)} if all are needed"

    def _mention_stored(self) -> None:
        if self.stored:
            dates = span([trial.date for trial in self.stored])
            self.say(f"{count(len(self.stored), 'stored trial')} read ({dates})")
            self.stored.clear()

    def _show(self, config: Config, trial: StoredTrial, seconds: float) -> None:
        took, left = progress.clock(seconds), f", {self._left()} left" if self.pending.waiting else ""
        number = f"{self.done:>{len(str(self.total))}}/{self.total}"
        number = self.prefix if self.prefix.startswith("pair") else f"{self.prefix} {number}".lstrip()
        self.say(f"{number} {self.titles[config.id]}: {describe_score(trial)}  ({took}{left})")

    def _left(self) -> str:
        if not self.times:
            return "?"
        return progress.clock(len(self.pending.waiting) * sum(self.times) / len(self.times) / self.slots)


class Live(Display):
    """A table with a row per arm, redrawn twice a second; remarks and looks scroll above it."""

    def __init__(self, runs: Path):
        from rich.live import Live as Screen

        self.running: list[Config] = []
        self.began_at: dict[str, float] = {}
        self.screen = Screen(get_renderable=self.table, refresh_per_second=2, transient=True)
        super().__init__(lambda text: self.screen.console.print(text, highlight=False, markup=False), runs)
        self.screen.start()

    def began(self, config: Config) -> None:
        self.began_at[config.id] = time.monotonic()

    def tick(self, running: list[Config]) -> None:
        self.running = running

    def look(self, now: Result, batch: Pending) -> None:
        self.now = now

    def close(self) -> None:
        self.screen.stop()

    def _show(self, config: Config, trial: StoredTrial, seconds: float) -> None:
        """The table shows it."""

    def table(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        if not hasattr(self, "now"):
            return Text("starting")
        title = f"{self.now.experiment.name}: {self.done}/{self.total} trials, {self._left()} left"
        table = Table(title=Text(title))
        heads = ["arm", "complete", "failed", "running now"]
        looks = {label: each.look for label, each in self.now.arms.items() if each.look is not None}
        if looks:
            heads[1:1] = ["pairs", "difference", "interval", "", "verdict"]
        for head in heads:
            table.add_column(head, justify="left" if head in ("arm", "running now", "", "verdict") else "right")
        reach = _reach(looks)
        for label, each in self.now.arms.items():
            running = [config for config in self.running if self.arm_of[config.id] == label]
            complete = [id_ for id_ in self.pending.done if self.arm_of[id_] == label]
            failed = sum(self.arm_of[id_] == label for id_ in self.pending.failed)
            cells = [label, f"{len(each.trials) + len(complete)}/{each.wanted}", str(failed or "")]
            cells.append(", ".join(map(self._describe_running, running)))
            if looks:
                cells[1:1] = _look_cells(each, self.now.score.unit, reach)
            table.add_row(*map(Text, cells))
        return table

    def _describe_running(self, config: Config) -> str:
        """The epoch of a running trial, read from its history."""
        try:
            with open(Trial(self.runs, config).history_file, "rb") as file:
                epochs = sum(1 for _ in file)
        except OSError:
            epochs = 0
        since = progress.clock(time.monotonic() - self.began_at.get(config.id, time.monotonic()))
        return f"{describe_seeds(config)} epoch {min(epochs + 1, config.epochs)}/{config.epochs} ({since})"


def make_display(kind: progress.Kind, runs: Path, say: Say | None = None) -> Display:
    """In a terminal a live table, else lines; `say` takes the lines if given."""
    resolved = progress.resolved(kind)
    if resolved == "live":
        return Live(runs)
    if resolved == "none":
        return Display(lambda line: None, runs)
    return Display(say or (lambda line: print(line, flush=True)), runs)


def describe(arm: ArmResult, unit: str) -> str:
    """For example "undecided after 4 pairs, +0.4 (-0.3 to +1.0) points"."""
    assert arm.judged is not None
    assert arm.judgement is not None
    size = format_difference(arm.judged.difference, arm.interval, unit) if arm.judged.n else ""
    return ", ".join(filter(None, (f"{arm.verdict} after {count(arm.judged.n, 'pair')}", size, arm.reason)))


def describe_score(trial: StoredTrial) -> str:
    """The score of a trial; of one that tunes the held-out score alone, since the choice is made by that."""
    assert trial.result is not None
    row, score = trial.result.last, trial.result.score
    if row is None:
        return trial.status
    shown = {score: row[score]}
    if HELD_OUT in row:
        name = f"held-out {score}"
        shown = {name: row[HELD_OUT]} if trial.config.hold_out else shown | {name: row[HELD_OUT]}
        score = name if trial.config.hold_out else score
    elif trial.config.hold_out:  # the test images were not touched
        score = score.replace("test", "held-out", 1)
        shown = {score: row[trial.result.score]}
    return progress.format_scores(shown, score, trial.result.percent)


def span(dates: list[str]) -> str:
    """One date, or the first and the last."""
    return min(dates) if min(dates) == max(dates) else f"{min(dates)} to {max(dates)}"


def draw(look: Sequential, reach: float) -> str:
    """An interval as characters, about zero in the middle; dots mark the margin on either side.

    Example:
        >>> from riesz_lab.statistics.sequential import sequential
        >>> draw(sequential([0.9, 1.2, 1.0, 1.1, 0.8, 1.0], margin=0.5), 2.0)
        '           .   |   .---+--     '
    """
    middle = BAR // 2

    def place(value: float) -> int:
        return max(0, min(BAR - 1, middle + round(middle * value / reach)))

    cells = [" "] * BAR
    for value in (-look.margin, look.margin):
        if abs(value) <= reach:
            cells[place(value)] = "."
    low, high = look.interval or (-math.inf, math.inf)
    if math.isfinite(low):
        first, last = place(low), place(high)
        cells[first : last + 1] = "-" * (last - first + 1)
    cells[middle] = "|"
    if look.n:
        cells[place(look.difference)] = "+"
    return "".join(cells)


def _reach(looks: Mapping[str, Sequential]) -> float:
    """The largest value of the drawing: twice the margin, or the narrowest interval in full."""
    ends = [max(map(abs, each.interval)) for each in looks.values() if each.interval]
    finite = [end for end in ends if math.isfinite(end)]
    return max([2 * max((each.margin for each in looks.values()), default=1.0), *([min(finite)] if finite else [])])


def _look_cells(arm: ArmResult, unit: str, reach: float) -> list[str]:
    look = arm.look
    if look is None:
        return [""] * 5
    difference, ends = difference_cells(look.difference, look.interval, unit)
    verdict = "out of reach" if arm.judgement and arm.judgement.stopped else str(arm.verdict)
    return [str(look.n), difference, ends, draw(look, reach), verdict]


def _compared(now: Result) -> list[StoredTrial]:
    """The trials of the arms, each once."""
    trials = [trial for each in now.arms.values() for trial in each.trials.values()]
    return list({trial.config.id: trial for trial in trials}.values())
