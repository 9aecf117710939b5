"""`riesz sweep NAME [options]`: run a named experiment."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import ConfigError, printable
from riesz_lab.experiments import EXPERIMENTS, Experiment, Pilot, Tuning, UntilSure, experiment, result
from riesz_lab.store import export, open_store
from riesz_lab.training.progress import Kind as ProgressKind
from riesz_lab.utils.terminal import table

if TYPE_CHECKING:
    from riesz_lab.experiments.driver import Execution, Run

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
    output: Path | None = None  # Also write the table to this file (.csv, .json or .parquet).

    # First choose each arm's learning rate on held-out training images: one grid, equally often for every arm.
    tune_lr: bool = False
    # The grid, as multiples of the recipe's rate; extended for all arms on a side where a best rate lies at its edge.
    lr_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    tune_trials: int = 2  # Seeds per arm and rate of the grid; other seeds than the final trials have.
    hold_out: int | None = None  # Training images to tune on; a tenth of them if not given.

    until_sure: bool = False  # Add seeds until every arm has a verdict, up to the budget.
    budget: int = 50  # The most seeds of --until-sure.
    plan: bool = False  # Run three seeds, or take all that are stored, and say how many a verdict would take.
    fresh: bool = False  # Train stored trials anew.

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
    chosen = experiment(name)
    options = parse(Options, arguments[1:], prog=f"riesz sweep {name}", description=chosen.description)
    return _run(asked(chosen, options), options)


def _list() -> str:
    rows = [
        (name, str(len(each.arms)), str(len(each.all_configs())), each.question) for name, each in EXPERIMENTS.items()
    ]
    return table(("sweep", "arms", "trials", "question"), rows, right=(1, 2))


def asked(chosen: Experiment, options: Options) -> Experiment:
    """The experiment with what the options ask for."""
    if options.until_sure and options.plan:
        raise ConfigError("expected --until-sure or --plan, got both: a plan runs three seeds and stops")
    if options.tune_lr:
        tuning = Tuning(factors=options.lr_factors, seeds=options.tune_trials, hold_out=options.hold_out)
        chosen = replace(chosen, tuning=tuning)
    if options.until_sure:
        chosen = replace(chosen, stopping=UntilSure(options.budget))
    if options.plan:
        chosen = replace(chosen, stopping=Pilot())
    return chosen.with_seeds(options.trials).only(options.only)


def _run(chosen: Experiment, options: Options) -> int:
    # After the help: importing torch takes seconds.
    from riesz_lab.experiments.driver import Execution
    from riesz_lab.experiments.dry_run import dry_run
    from riesz_lab.experiments.planning import make_plan, plan_lines
    from riesz_lab.experiments.running.executor import available_cores
    from riesz_lab.report.table import format_result, records

    execution = Execution(
        **{name: getattr(options, name) for name in vars(options) if name in Execution.__dataclass_fields__}
    )
    if options.dry_run:
        slots = options.workers or available_cores()
        print(printable(dry_run(chosen, options.runs, slots, retry_failed=options.retry_failed), keep="\n"))
        return 0
    output = options.output and options.output.absolute()  # a trial's code may change the working directory
    if output is not None:
        export.check(output)
    failed = 0
    if options.table:
        now = result(chosen, open_store(options.runs), options.which)
        if now.tuned is not None and now.tuned.why_not:
            raise ConfigError(now.tuned.why_not)
    else:
        done = run_here(chosen, execution, options.progress, options.which)
        now, failed = done.result, len(done.failed)
        if now.tuned is not None and now.tuned.why_not:
            if not failed:
                raise ConfigError(now.tuned.why_not)
            return 1
    print(f"\n{format_result(now)}")
    if options.plan:
        print("\n" + "\n".join(plan_lines(now, make_plan(now, options.workers or available_cores()))))
    if output is not None:
        export.write(records(now), output)
        print(f"Written: {options.output}")
    return int(failed > 0)


def run_here(
    chosen: Experiment,
    execution: "Execution",
    progress: ProgressKind,
    which: Literal["last", "best"] = "last",
    again: str = "--retry-failed",
) -> "Run":
    """Train what is not complete, and list what failed; `again` is what tries those again."""
    from riesz_lab.experiments.driver import run as drive
    from riesz_lab.experiments.running.display import make_display
    from riesz_lab.experiments.trainable import RecipeTrainable

    display = make_display(progress, execution.runs)
    try:
        done = drive(chosen, RecipeTrainable(), execution, display, which)
    finally:
        display.close()
    if done.failed:
        print(f"{len(done.failed)} failed; try them again with {again}:")
    for id_, (_, title, reason) in done.failed.items():
        print(printable(f"  {title} ({id_}): {reason}"))
    return done
