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
from riesz_lab.errors import ConfigError
from riesz_lab.experiments import Arm, Experiment, Margin, Seeds
from riesz_lab.experiments.experiment import ACCURACY
from riesz_lab.recipes import recipe
from riesz_lab.utils.malloc import keep_freed_memory

METRICS = {"ReweightedL2": "reweighted-l2", "SobolevTilde": "sobolev-tilde"}
SETTINGS: dict[str, Any] = {
    "swap_splits": True, "batch_size": 25, "epochs": 6, "drop_every": 2, "drop_factor": 0.3, "eval_every": 2,
}  # fmt: skip
"""What makes the differences between pairs small: a rate that decays, and 4,000 test images; the paper swaps the splits
of MNIST too."""
PAIRS = 8
MARGIN = Margin(0.005)
"""Half a point. Differences between pairs spread by 0.1 to 0.2 points, so eight pairs give an interval of less than 0.2
points to either side: it excludes zero or half a point, whatever the difference is."""


def run(arguments: list[str]) -> int:
    keep_freed_memory()
    return int(parse(demo, arguments, prog="riesz demo", description=__doc__))


def demo(
    seeds: int = PAIRS,
    runs: Path = Path("runs"),
    workers: int | None = None,
    progress: Literal["auto", "live", "plain", "none"] = "auto",
) -> int:
    """Run the demo.

    Args:
        seeds: how many seeds per method.
        runs: folder of all trials.
        workers: trials at once; one per core if not given.
        progress: live in a terminal, plain lines elsewhere, or none.
    """
    # After the help: importing torch takes seconds.
    from riesz_lab.commands.report import write
    from riesz_lab.commands.sweep import run_here
    from riesz_lab.experiments.driver import Execution
    from riesz_lab.report.page import html
    from riesz_lab.report.result_page import result_page
    from riesz_lab.report.table import format_result

    if seeds < 1:
        raise ConfigError(f"seeds: expected 1 or more, got {seeds}")
    asked = demo_experiment(seeds)
    began = time.monotonic()
    # A thread each: batches this small gain little from a second.
    done = run_here(asked, Execution(runs=runs, workers=workers, threads=1), progress, again="the same command")
    print(f"\n{format_result(done.result)}")
    print(f"\n{time.monotonic() - began:.0f} s. Stored: {(runs / asked.name).resolve()}")
    target = runs / asked.name / "report.html"
    write(target, html(result_page(done.result, "Does a metric help a small CNN on 1,000 digits?", home=target.parent)))
    return int(bool(done.failed))


def plain_config() -> Config:
    """The settings of the plain optimizer."""
    return replace(recipe("demo"), **SETTINGS)


def demo_experiment(seeds: int) -> Experiment:
    """What the demo asks."""
    base = plain_config()
    arms = [Arm(name, replace(base, metric=metric), "SGD") for name, metric in METRICS.items()]
    question = "does a metric help a small CNN on 1,000 digits?"
    return Experiment(
        name=base.recipe, question=question, arms=(Arm("SGD", base), *arms), score=ACCURACY, margin=MARGIN,
        seeds=Seeds(count=seeds),
    )  # fmt: skip
