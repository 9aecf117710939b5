"""`riesz runs [list] | compare | export | remove`."""

import shutil
import statistics
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Annotated

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.config import Config
from riesz_lab.errors import ConfigError, LabError, printable, unknown
from riesz_lab.experiments import read_experiments
from riesz_lab.store import MADE_BY, STATUSES, Store, StoredTrial, export, open_store
from riesz_lab.store.selection import distinguishing, record, select
from riesz_lab.store.store import grouped
from riesz_lab.store.trial import lock
from riesz_lab.training.progress import format_scores
from riesz_lab.utils.amounts import count
from riesz_lab.utils.terminal import print_table

Where = Annotated[
    tuple[str, ...],
    tyro.conf.arg(help="Only trials with these settings: recipe=demo, metric=sobolev*, status=failed, seed=3."),
]
Runs = Annotated[Path, tyro.conf.arg(help="Folder of all trials, or of one recipe.")]
Group = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="GROUP")]]
File = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FILE")]]

STATES = (*STATUSES, "failed", "unfinished")


def run(arguments: list[str]) -> int:
    commands: dict[str, Callable[..., int]] = {"list": _list, "compare": _compare, "export": _export, "remove": _remove}
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["list", *arguments]
    if not arguments[0].startswith("-") and arguments[0] not in commands:
        raise ConfigError(unknown("command of riesz runs", arguments[0], commands))
    about = "List, compare, export and remove stored trials."
    return int(parse(commands, arguments, prog="riesz runs", description=about))


def _list(where: Where = (), each: bool = False, runs: Runs = Path("runs")) -> int:
    """List the stored trials, a line per group: those that differ by their seeds alone.

    Args:
        each: Print a line per trial instead.
    """
    store = open_store(runs)
    trials = select(store.trials, where)
    if not store.trials:
        print(f"no trial is stored below {runs}; {MADE_BY}")
        _print_broken(store)
        return 0
    if each:
        rows = []
        for trial in trials:
            name = (trial.config.id, trial.config.recipe, trial.config.metric, _method(trial.config))
            rows.append((*name, str(trial.config.seed), trial.status, _describe(trial)))
        print_table(("trial", "recipe", "metric", "and", "seed", "status", ""), rows, right=(4,))
    else:
        _list_groups(trials)
    print(f"{count(len(trials), 'trial')} in {runs}")
    _print_experiments(runs)
    _print_broken(store)
    return 0


def _print_experiments(runs: Path) -> None:
    """What was asked; `riesz report` says what the trials answer."""
    experiments, broken = read_experiments(runs)
    rows = [
        (each.name, each.question, str(len(each.arms)), str(each.comparisons), str(path))
        for path, each in experiments.items()
    ]
    if rows:
        print()
        print_table(("experiment", "question", "arms", "comparisons", "stored"), rows, right=(2, 3))
    for path, reason in broken.items():
        print(printable(f"left out: {path} ({reason})"))


def _list_groups(trials: list[StoredTrial]) -> None:
    groups = grouped(trials)
    by_recipe: dict[str, dict[str, Config]] = {}
    for key, group in groups.items():
        by_recipe.setdefault(group[0].config.recipe, {})[key] = group[0].config
    differences = {key: text for configs in by_recipe.values() for key, text in distinguishing(configs).items()}
    rows = []
    for key, group in groups.items():
        scores = [score for trial in group if (score := trial.score("last")) is not None]
        counts = (sum(trial.status == status for trial in group) for status in STATES)
        name, percent = next(((r.score, r.percent) for trial in group if (r := trial.result) is not None), ("", False))
        mean = format_scores({name: statistics.mean(scores)}, name, percent) if scores else ""
        config = group[0].config
        rows.append((key, config.recipe, config.metric, differences[key], *(str(n or "") for n in counts), mean))
    head = ("group", "recipe", "metric", "and", *STATES, "mean of the last epoch")
    print_table(head, rows, right=range(4, 4 + len(STATES)))


def _compare(baseline: Group, method: Group, margin: float = 0.002, runs: Runs = Path("runs")) -> int:
    """Compare two groups of trials pair by pair: those with equal initial weights and order of images.

    Args:
        baseline: The group to compare with, as `riesz runs` lists it.
        method: The group to judge.
        margin: The largest difference in score that does not matter.
    """
    from riesz_lab.statistics import paired  # scipy, on first use

    store = open_store(runs)
    sides = [_group(store, name) for name in (baseline, method)]
    results = [trial.result for side in sides for trial in side if trial.result is not None]
    names = {result.score for result in results}
    if len(names) != 1:
        problem = f"have different scores: {', '.join(sorted(names))}" if names else "have no complete trial"
        raise ConfigError(f"groups {baseline} and {method} {problem}")
    (score,) = names
    if len(kinds := {(result.higher_is_better, result.percent) for result in results}) != 1:
        raise ConfigError(f"groups {baseline} and {method} disagree on what their {score} is")
    ((higher, percent),) = kinds
    scores: list[dict[Hashable, float | None]] = [
        {(t.config.effective_init_seed, t.config.effective_data_seed): t.score("last") for t in side if t.result}
        for side in sides
    ]
    comparison = paired(*scores, margin=margin, higher_is_better=higher, percent=percent)
    for name, side in zip(("baseline", "method"), sides, strict=True):
        print(f"{name}: {side[0].config.recipe}, {side[0].config.metric}, group {side[0].config.group}")
    print(f"{printable(score).replace('_', ' ')} of the last epoch, method against baseline: {comparison.sentence}.")
    return 0


def _export(file: File, where: Where = (), runs: Runs = Path("runs")) -> int:
    """Write the trials to a file, one row each: settings, status, last and best scores.

    Args:
        file: Ends in .csv, .json or .parquet.
    """
    store = open_store(runs)
    trials = select(store.trials, where)
    export.write([record(trial) for trial in trials], file)
    print(f"{count(len(trials), 'trial')} written to {file}")
    _print_broken(store)
    return 0


def _remove(where: Where = (), broken: bool = False, yes: bool = False, runs: Runs = Path("runs")) -> int:
    """Remove trials for good. Without --yes, only list them.

    Args:
        broken: Remove the unreadable ones instead.
        yes: Remove them.
    """
    store = open_store(runs)
    if not where and not broken:
        raise ConfigError("expected --where NAME=VALUE or --broken, got neither")
    paths = list(store.broken) if broken else [trial.path for trial in select(store.trials, where)]
    for path in paths:
        if yes:
            with lock(path):
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    raise LabError(f"cannot remove {path}: {error.strerror or error}") from None
        print(printable(f"{'removed' if yes else 'would be removed'}: {path}"))
    if not paths:
        print("no trial to remove")
    elif not yes:
        print(f"{count(len(paths), 'trial')}. Remove them with --yes")
    return 0


def _group(store: Store, name: str) -> list[StoredTrial]:
    matches = {key: trials for key, trials in store.groups().items() if key.startswith(name)}
    if len(matches) != 1:
        known = ", ".join(store.groups()) or "none"
        problem = "ambiguous" if matches else "not known"
        raise ConfigError(f"group {name!r} is {problem}; `riesz runs` lists them. Known: {known}")
    return next(iter(matches.values()))


def _method(config: Config) -> str:
    """The settings of the method besides the metric, where they differ from the defaults."""
    usual, names = Config(), ("direction", "layers", "control", "smooth_epochs")
    return ", ".join(f"{n}={getattr(config, n)}" for n in names if getattr(config, n) != getattr(usual, n))


def _describe(trial: StoredTrial) -> str:
    if trial.failure is not None:
        return trial.failure
    if (result := trial.result) is None or result.last is None:
        return ""
    return format_scores(result.last, result.score, result.percent)


def _print_broken(store: Store) -> None:
    for path, counted in store.copies.items():
        print(printable(f"counted once: {path} is the same trial as {counted}"))
    for path, reason in store.broken.items():
        print(printable(f"left out, cannot be read: {path} ({reason})"))
    if store.broken:
        print("Remove them with: riesz runs remove --broken --yes")
