"""Does a metric help a small CNN on 1,000 real digits? Train with and without, many seeds each, and answer.

Trials of one seed share their initial weights and the order of their images, so they are compared pair by pair. One
trial per core runs at a time. Stored trials are not trained again.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from riesz_lab.commands.parsing import parse
from riesz_lab.config import Config
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.errors import ConfigError
from riesz_lab.recipes import recipe
from riesz_lab.sweeps import Arm, Sweep, results
from riesz_lab.utils.amounts import count
from riesz_lab.utils.malloc import keep_freed_memory

METRICS = {"ReweightedL2": "reweighted-l2", "SobolevTilde": "sobolev-tilde"}
SETTINGS: dict[str, Any] = {
    "swap_splits": True, "batch_size": 25, "epochs": 6, "drop_every": 2, "drop_factor": 0.3, "eval_every": 2,
}  # fmt: skip
"""What makes the differences between pairs small: a rate that decays, and 4,000 test images; the paper swaps the splits
of MNIST too."""
PAIRS = 8
MARGIN = 0.005
"""Half a point. Differences between pairs spread by 0.1 to 0.2 points, so eight pairs give an interval of less than 0.2
points to either side: it excludes zero or half a point, whatever the difference is."""


def run(arguments: list[str]) -> int:
    keep_freed_memory()
    parse(demo, arguments, prog="riesz demo", description=__doc__)
    return 0


def demo(
    seeds: int = PAIRS,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Literal["auto", "live", "plain", "none"] = "auto",
) -> None:
    """Run the demo.

    Args:
        seeds: how many seeds per method.
        runs: folder of all trials.
        workers: trials at once; one per core if not given.
        progress: live in a terminal, plain lines elsewhere, or none.
    """
    # After the help: importing torch takes seconds.
    from riesz_lab.commands.report import write
    from riesz_lab.report.compare_page import compare_content
    from riesz_lab.report.comparison_view import format_comparisons
    from riesz_lab.report.page import html
    from riesz_lab.store import Store
    from riesz_lab.sweeps.running.display import make_display
    from riesz_lab.sweeps.running.driver import drive
    from riesz_lab.sweeps.running.local import Local
    from riesz_lab.sweeps.running.pending import find_pending
    from riesz_lab.sweeps.running.worker import RunSettings

    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more, got {seeds}")
    sweep = demo_sweep(seeds)
    began = time.monotonic()
    configs = sweep.all_configs()
    pending = find_pending(configs, runs)
    each = f"{count(len(sweep.arms), 'method')}, {count(seeds, 'seed')} each"
    print(f"{count(len(configs), 'trial')}: {each}; {len(pending.done)} stored before")
    if pending.waiting:
        # A thread each: batches this small gain little from a second.
        executor = Local(workers, threads=1)
        settings = RunSettings(runs=runs, data_dir=data_folder(None), sweep=sweep.name, family=sweep.comparisons)
        display = make_display(progress, sweep, pending, runs, executor.slots)
        try:
            drive(pending, executor, settings, watcher=display)
        finally:
            display.close()
    store = Store(runs / sweep.name)
    table = results(sweep, store)
    # Trials of other seeds, or of an earlier demo, may lie there too.
    wanted = {config.id for config in configs}
    store.trials = [trial for trial in store.trials if trial.config.id in wanted]
    print(f"\n{format_comparisons(table)}")
    print(f"\n{time.monotonic() - began:.0f} s. Stored: {(runs / sweep.name).resolve()}")
    target = runs / sweep.name / "report.html"
    title = "Does a metric help a small CNN on 1,000 digits?"
    write(target, html(compare_content(table, store, title, home=target.parent)))


def plain_config() -> Config:
    """The settings of the plain optimizer."""
    return replace(recipe("demo"), **SETTINGS)


def demo_sweep(seeds: int) -> Sweep:
    """The trials of the demo."""
    base = plain_config()
    arms = [Arm(name, replace(base, metric=metric), "SGD") for name, metric in METRICS.items()]
    about = "does a metric help a small CNN on 1,000 digits?"
    return Sweep(
        name=base.recipe, about=about, reproduces="", arms=(Arm("SGD", base), *arms), trials=seeds, margin=MARGIN
    )
