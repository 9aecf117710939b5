"""The stages of `riesz sweep`: tune, train, report."""

from typing import TYPE_CHECKING

from riesz_lab.data.images.builtin import data_folder
from riesz_lab.errors import ConfigError, printable
from riesz_lab.report.comparison_view import format_comparisons, records, tuning_notes
from riesz_lab.store import Store, export, open_store
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import Sweep, results, tuning
from riesz_lab.sweeps.dry_run import print_dry_run
from riesz_lab.sweeps.running.display import make_display
from riesz_lab.sweeps.running.driver import drive
from riesz_lab.sweeps.running.executors import make_executor
from riesz_lab.sweeps.running.pending import find_pending
from riesz_lab.sweeps.running.worker import RunSettings
from riesz_lab.tasks import task_class
from riesz_lab.training.hardware import Hardware
from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.commands.sweep import Options


def run_stages(whole: Sweep, options: "Options") -> int:
    """Tune if asked, train, print the conclusions; returns the exit status."""
    chosen = whole.only(options.only)
    tune = None
    if options.tune_lr:
        tune = tuning.Tuning(factors=options.lr_factors, trials=options.tune_trials, hold_out=options.hold_out)
    if options.dry_run:
        if tune:
            store = Store(options.runs)
            grid = tuning.extended(whole, tune, store)
            print_dry_run(tuning.search(chosen, grid), options.runs, retry_failed=options.retry_failed)
            try:
                chosen = tuning.tuned(chosen, tuning.choices(chosen, grid, store))
            except ConfigError:
                print("More if a best rate lies at the edge of the grid, which is then extended.")
                print("\nThe rates are chosen after that; at those of the recipe, until then:")
        print_dry_run(chosen, options.runs, retry_failed=options.retry_failed)
        return 0
    if tune and not options.table and _tune(whole, chosen, tune, options):
        return 1
    rates = None
    if tune:
        store = open_store(options.runs)
        rates = tuning.choices(chosen, tuning.extended(whole, tune, store), store)
    final = tuning.tuned(chosen, rates) if rates else chosen
    failed = 0 if options.table else train_sweep(final, options)
    comparisons = results(final, open_store(options.runs), options.which)
    # A control answers for its metric at the metric's own rate; advice to tune it would lead away from that.
    advised = rates or all(arm.config.control == "none" for arm in final.arms)
    notes = tuning_notes(rates) if advised else []
    print(f"\n{format_comparisons(comparisons, rates, notes)}")
    if options.output is not None:
        export.write(records(comparisons, rates), options.output)
        print(f"Written: {options.output}")
    return int(failed > 0)


def _tune(whole: Sweep, chosen: Sweep, tune: tuning.Tuning, options: "Options") -> int:
    """Train the trials that tune, also those by which the grid is extended; returns how many failed."""
    grid = None
    while (wider := tuning.extended(whole, tune, Store(options.runs))) != grid:
        grid = wider
        if failed := train_sweep(tuning.search(chosen, grid), options):
            return failed
    return 0


def train_sweep(stage: Sweep, options: "Options", again: str = "--retry-failed") -> int:
    """Train what is not complete; returns how many trials failed. `again` is what tries those again."""
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
        f"{stage.name}: {count(len(configs), 'trial')}, {len(pending.done)} complete, {pending.interrupted} to be "
        f"continued, {len(pending.waiting) - pending.interrupted} new, {len(pending.failed)} failed before"
    )
    if pending.waiting:
        executor = make_executor(
            options.executor,
            options.workers,
            options.threads,
            accelerator=options.accelerator,
            address=options.address,
            retries=options.retries,
        )
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
        print(f"{len(pending.failed)} failed; try them again with {again}:")
    for arm in stage.arms:
        for config in stage.configs(arm):
            if config.id in pending.failed:
                print(f"  {arm.label}, seed {config.seed} ({config.id}): {printable(pending.failed[config.id])}")
    return len(pending.failed)
