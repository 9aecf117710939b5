"""`riesz sweep NAME [options]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from riesz_lab.commands.parsing import parse
from riesz_lab.data.images.builtin import data_folder
from riesz_lab.errors import ConfigError, printable
from riesz_lab.report.comparison_view import format_comparisons, records, tuning_notes
from riesz_lab.store import Store, export, open_store
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import SWEEPS, Sweep, results, sweep, tuning
from riesz_lab.sweeps.dry_run import print_dry_run
from riesz_lab.sweeps.running.display import make_display
from riesz_lab.sweeps.running.driver import RunSettings, drive
from riesz_lab.sweeps.running.executor import Executor
from riesz_lab.sweeps.running.pending import find_pending
from riesz_lab.tasks import task_class
from riesz_lab.training import progress
from riesz_lab.training.hardware import Hardware
from riesz_lab.utils.tables import table

USAGE = """usage: riesz sweep NAME [options]

Run a named set of trials, compare them pair by pair, and print the conclusions. Run the same command again to
continue: complete trials are not trained again. NAME is one of these, or your own as package.module:function:

{sweeps}

All options: riesz sweep NAME --help
Its trials and their cost, without running any: riesz sweep NAME --dry-run"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is run."""

    trials: int | None = None
    """Seeds per arm; the sweep's own number if not given."""
    only: tuple[str, ...] = ()
    """Only arms whose label, recipe or metric contains one of these texts, and the baselines they need."""
    dry_run: bool = False
    """Print the trials and what they would cost, and stop."""
    table: bool = False
    """Print the table of the complete trials, and stop."""
    which: Literal["last", "best"] = "last"
    """Compare scores of the last epoch, or of the best one (chosen by looking at the test set: flattering)."""
    output: Path | None = None
    """Also write the table to this file (.csv or .parquet)."""

    tune_lr: bool = False
    """First choose each arm's learning rate on held-out training images: one grid, equally often for every arm."""
    lr_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """The grid, as multiples of the recipe's rate."""
    tune_trials: int = 2
    """Seeds per arm and rate of the grid; other seeds than the final trials have."""
    hold_out: int | None = None
    """Training images to tune on; a tenth of them if not given."""

    workers: int | None = None
    """Trials at once; one per core (or GPU) if not given. The cores are divided among them."""
    threads: int | None = None
    """Threads of each worker; its share of the cores if not given."""
    executor: Literal["local", "ray"] = "local"
    """local: processes on this machine. ray: a Ray cluster, for several machines that share the folders."""
    address: str | None = None
    """Address of the Ray cluster; one is started on this machine if not given."""
    retries: int = 5
    """How often a trial is continued after its worker was killed."""
    retry_failed: bool = False
    """Train failed trials again."""
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto takes a GPU if there is one."""
    save_every: float = 60.0
    """Seconds between two checkpoints."""

    runs: Path = Path("runs")
    """Folder of all trials."""
    data_dir: Path | None = None
    """Folder of the datasets; RIESZ_DATA, or the user's cache, if not given."""
    progress: progress.Kind = "auto"
    """live in a terminal, plain lines elsewhere, or none."""


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE.format(sweeps=_list()))
        return 0
    name = arguments[0]
    if name.startswith("-"):
        raise ConfigError(f"the sweep comes first: riesz sweep NAME {name} ...; `riesz sweep` lists them")
    chosen = sweep(name)
    about = f"{chosen.about}. In the paper: {chosen.reproduces}."
    options = parse(Options, arguments[1:], prog=f"riesz sweep {name}", description=about)
    return _run(chosen.with_trials(options.trials).only(options.only), options)


def _list() -> str:
    rows = []
    for name, make in SWEEPS.items():
        made = make()
        rows.append((name, str(len(made.arms)), str(len(made.all_configs())), made.about))
    return table(("sweep", "arms", "trials", "question"), rows, right=(1, 2))


def _run(chosen: Sweep, options: Options) -> int:
    tune = None
    if options.tune_lr:
        tune = tuning.Tuning(factors=options.lr_factors, trials=options.tune_trials, hold_out=options.hold_out)
    search = tuning.search(chosen, tune) if tune else None
    if options.dry_run:
        for stage in (search, chosen) if search else (chosen,):
            print_dry_run(stage, options.runs, retry_failed=options.retry_failed)
        return 0
    failed = 0
    if not options.table:
        if search and _train(search, options):
            return 1
        final = tuning.tuned(chosen, tuning.choices(chosen, tune, Store(options.runs))) if tune else chosen
        failed = _train(final, options)
    _report(chosen, tune, options)
    return int(failed > 0)


def _train(stage: Sweep, options: Options) -> int:
    """Train what is not complete; returns how many trials failed."""
    configs = stage.all_configs()
    folder = data_folder(options.data_dir)
    for config in {config.group: config for config in configs}.values():
        task_class(config.task).check(config, folder, None)
        Hardware(accelerator=options.accelerator).check(config)
    pending = find_pending(configs, options.runs, retry_failed=options.retry_failed)
    for config in configs:
        if config.id in pending.done:  # trained for another sweep, or before
            Trial(options.runs, config).add_sweep(stage.name, stage.comparisons)
    for path, reason in pending.aside.items():
        print(printable(f"set aside: {path} ({reason}); its trial is trained anew"))
    print(
        f"{stage.name}: {len(configs)} trials, {len(pending.done)} complete, {pending.interrupted} to be continued, "
        f"{len(pending.waiting) - pending.interrupted} new, {len(pending.failed)} failed before"
    )
    if pending.waiting:
        executor = _executor(options)
        print(f"On {executor.description}.")
        display = make_display(options.progress, stage, pending, options.runs, executor.slots)
        settings = RunSettings(
            runs=options.runs,
            data_dir=folder,
            accelerator=options.accelerator,
            save_every=options.save_every,
            sweep=stage.name,
            family=stage.comparisons,
        )
        try:
            drive(pending, executor, settings, retries=options.retries, watcher=display)
        finally:
            display.close()
    if pending.failed:
        print(f"{len(pending.failed)} failed; try them again with --retry-failed:")
    for arm in stage.arms:
        for config in stage.configs(arm):
            if config.id in pending.failed:
                print(f"  {arm.label}, seed {config.seed} ({config.id}): {printable(pending.failed[config.id])}")
    return len(pending.failed)


def _executor(options: Options) -> Executor:
    if options.executor == "ray":
        from riesz_lab.sweeps.running.ray_executor import OnRay

        return OnRay(options.workers, options.threads, address=options.address, retries=options.retries)
    from riesz_lab.sweeps.running.local import Local

    on_gpu = Hardware(accelerator=options.accelerator).resolved() == "cuda"
    return Local(options.workers, options.threads, torch.cuda.device_count() if on_gpu else 0)


def _report(chosen: Sweep, tune: tuning.Tuning | None, options: Options) -> None:
    store = open_store(options.runs)
    rates = None
    if tune:
        rates = tuning.choices(chosen, tune, store)
        chosen = tuning.tuned(chosen, rates)
    comparisons = results(chosen, store, options.which)
    print(f"\n{format_comparisons(comparisons, rates, tuning_notes(rates))}")
    if options.output is not None:
        export.write(records(comparisons, rates), options.output)
        print(f"Written: {options.output}")
