"""How everything here is timed.

Rivals are run in turn, in a new random order each round; a figure is the median over turns with its 20th and 80th
percentile. In its turn a rival runs once untimed, since the threads sleep and the caches are another's; then it is
timed, short ones as often as fill a few milliseconds. On a shared machine a run that waited for a core measures the
neighbours. So the process asks for real-time priority while it is timed, where it may, and rests as long as it ran, to
leave the neighbours their half; and the scheduler is asked how long its threads waited: turns that waited more than 2%
of their time are left out, for all rivals alike, and rounds go on until enough quiet ones of each are there. Only
ratios inside one series are compared with a target.
"""

from __future__ import annotations

import contextlib
import csv
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from glob import glob
from itertools import count
from pathlib import Path

import torch

import riesz
from riesz.backends import native

RESULTS = Path(__file__).parent / "results"
THREADS = 2
PATIENCE = float(os.environ.get("RIESZ_BENCH_PATIENCE", "60"))
"""Seconds after which a series ends, whether enough quiet runs were had or not."""

TURN = 0.004
"""Seconds that a turn of a short rival is filled to."""

QUIET = 0.02
FEWEST = 5
"""Where fewer quiet runs were had, the quietest this many are taken."""


@dataclass(frozen=True)
class Measurement:
    """One rival on one shape: seconds."""

    claim: str
    shape: str
    rival: str
    median: float
    p20: float
    p80: float
    runs: int
    quiet: int


def waited() -> float:
    """Seconds that all threads of this process have waited for a core so far; 0 where the system does not tell."""
    total = 0
    for path in glob("/proc/self/task/*/schedstat"):
        try:
            total += int(Path(path).read_text().split()[1])
        except (OSError, IndexError):
            continue
    return total / 1e9


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Real-time priority for all threads of this process, where the system grants it; then as long a rest."""
    asked = _priority("SCHED_FIFO", 1)
    start = time.perf_counter()
    try:
        yield
    finally:
        if asked:
            _priority("SCHED_OTHER", 0)
            time.sleep(min(time.perf_counter() - start, 0.5))


def _priority(policy: str, level: int) -> bool:
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), getattr(os, policy), os.sched_param(level))
    except (OSError, AttributeError):
        return False
    return True


class Samples:
    """The runs of one rival: seconds taken, and the share of them spent waiting for a core."""

    def __init__(self) -> None:
        self.all: list[tuple[float, float]] = []

    def add(self, seconds: float, wait: float) -> None:
        self.all.append((wait / seconds, seconds))

    @property
    def quiet(self) -> list[float]:
        return [seconds for share, seconds in self.all if share <= QUIET]

    def kept(self) -> list[float]:
        return self.quiet if len(self.quiet) >= FEWEST else [seconds for _, seconds in sorted(self.all)[:FEWEST]]

    def time(self, run: Callable[[], object], times: int = 1) -> None:
        """The time of one run, over several in a row."""
        before = waited()
        start = time.perf_counter()
        for _ in range(times):
            run()
        seconds = time.perf_counter() - start
        self.add(seconds / times, (waited() - before) / times)


def series(
    claim: str, shape: str, rivals: Mapping[str, Callable[[], object]], *, rounds: int, refresh: Callable[[], object]
) -> list[Measurement]:
    """Time all rivals against each other; `refresh` renews what they write to, outside the timer."""
    torch.set_num_threads(THREADS)
    random.seed(0)
    times = {name: _times(run) for name, run in rivals.items()}
    taken = {name: Samples() for name in rivals}
    end = time.monotonic() + PATIENCE
    for round_ in count():
        if round_ % 8 == 0:
            refresh()
        for name in random.sample(list(rivals), len(rivals)):
            with undisturbed():
                rivals[name]()
                taken[name].time(rivals[name], times[name])
        enough = all(len(samples.quiet) >= rounds for samples in taken.values())
        if enough or (time.monotonic() > end and round_ + 1 >= FEWEST):
            break
    return [figure(claim, shape, name, samples) for name, samples in taken.items()]


def _times(run: Callable[[], object]) -> int:
    """How often in a row a rival is run in its turn."""
    run()
    start = time.perf_counter()
    run()
    return max(1, round(TURN / (time.perf_counter() - start)))


def figure(claim: str, shape: str, rival: str, samples: Samples) -> Measurement:
    ordered = sorted(samples.kept())
    fifth = len(ordered) // 5
    median = statistics.median(ordered)
    return Measurement(
        claim, shape, rival, median, ordered[fifth], ordered[-1 - fifth], len(ordered), len(samples.quiet)
    )


def machine() -> dict[str, str]:
    """What the figures depend on."""
    loaded = native.load()
    return {
        "cpu": _cpu_name(),
        "threads": str(THREADS),
        "instructions": loaded if isinstance(loaded, str) else loaded.instructions,
        "torch": torch.__version__,
        "riesz": riesz.__version__,
        "python": platform.python_version(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def save(claim: str, figures: list[Measurement]) -> None:
    """Write the figures of one claim beside the scripts, and print them."""
    RESULTS.mkdir(exist_ok=True)
    rows = [{**asdict(f), **machine()} for f in figures]
    with (RESULTS / f"{claim}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4e}" if isinstance(v, float) else v for k, v in row.items()})
    for f in figures:
        spread = f"({f.p20 * 1e3:.3f}..{f.p80 * 1e3:.3f})"
        print(f"{f.claim:<8} {f.shape:<14} {f.rival:<36} {f.median * 1e3:10.3f} ms {spread:<22} {f.quiet} quiet runs")


def load(claim: str) -> tuple[list[Measurement], dict[str, str]]:
    """The stored figures of one claim, and the machine they were taken on."""
    with (RESULTS / f"{claim}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    texts, numbers, counts = ("claim", "shape", "rival"), ("median", "p20", "p80"), ("runs", "quiet")
    figures = [
        Measurement(*(row[k] for k in texts), *(float(row[k]) for k in numbers), *(int(row[k]) for k in counts))
        for row in rows
    ]
    return figures, {k: v for k, v in rows[0].items() if k not in (*texts, *numbers, *counts)}
