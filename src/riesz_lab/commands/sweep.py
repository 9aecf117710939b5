"""`riesz sweep NAME [options]`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import ConfigError
from riesz_lab.sweeps import SWEEPS, sweep
from riesz_lab.training.progress import Kind as ProgressKind
from riesz_lab.utils.tables import table

USAGE = """usage: riesz sweep NAME [options]

Run a named set of trials, compare them pair by pair, and print the conclusions. Run the same command again to
continue: complete trials are not trained again. NAME is one of these, or your own as package.module:function:

{sweeps}

All options: riesz sweep NAME --help
Its trials and their cost, without running any: riesz sweep NAME --dry-run"""


# The comments are the help of the options: tyro prints them.
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is run."""

    trials: int | None = None  # Seeds per arm; the sweep's own number if not given.
    # Only arms whose label, recipe or metric contains one of these texts, and the baselines they need.
    only: tuple[str, ...] = ()
    dry_run: bool = False  # Print the trials and what they would cost, and stop.
    table: bool = False  # Print the table of the complete trials, and stop.
    # Compare scores of the last epoch, or of the best one (chosen by looking at the test set: flattering).
    which: Literal["last", "best"] = "last"
    output: Path | None = None  # Also write the table to this file (.csv or .parquet).

    # First choose each arm's learning rate on held-out training images: one grid, equally often for every arm.
    tune_lr: bool = False
    # The grid, as multiples of the recipe's rate; extended for all arms on a side where a best rate lies at its edge.
    lr_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    tune_trials: int = 2  # Seeds per arm and rate of the grid; other seeds than the final trials have.
    hold_out: int | None = None  # Training images to tune on; a tenth of them if not given.

    workers: int | None = None  # Trials at once; one per core (or GPU) if not given. The cores are divided among them.
    threads: int | None = None  # Threads of each worker; its share of the cores if not given.
    # local: processes on this machine. ray: a Ray cluster, for several machines that share the folders.
    executor: Literal["local", "ray"] = "local"
    address: str | None = None  # Address of the Ray cluster; one is started on this machine if not given.
    retries: int = 5  # How often a trial is continued after its worker was killed.
    retry_failed: bool = False  # Train failed trials again.
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto takes a GPU if there is one.
    save_every: float = 60.0  # Seconds between two checkpoints.

    runs: Path = Path("runs")  # Folder of all trials.
    data_dir: Path | None = None  # Folder of the datasets; RIESZ_DATA, or the user's cache, if not given.
    progress: ProgressKind = "auto"  # live in a terminal, plain lines elsewhere, or none.


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE.format(sweeps=_list()))
        return 0
    name = arguments[0]
    if name.startswith("-"):
        raise ConfigError(f"the sweep comes first: riesz sweep NAME {name} ...; `riesz sweep` lists them")
    chosen = sweep(name)
    options = parse(Options, arguments[1:], prog=f"riesz sweep {name}", description=chosen.description)
    from riesz_lab.commands.sweep_stages import run_stages  # after the help: importing torch takes seconds

    return run_stages(chosen.with_trials(options.trials), options)


def _list() -> str:
    rows = [(name, str(len(each.arms)), str(len(each.all_configs())), each.about) for name, each in SWEEPS.items()]
    return table(("sweep", "arms", "trials", "question"), rows, right=(1, 2))
