"""What is behind the answers, of any trials: layers, step times, settings, machines, and the trials themselves."""

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from riesz_lab.config import SEEDS, Config
from riesz_lab.errors import BadFileError
from riesz_lab.experiments.arm import method
from riesz_lab.report.content import Cell, Section, Table, number
from riesz_lab.report.data import Files, Methods
from riesz_lab.report.figures.spectra import layers_of, mean_frequency
from riesz_lab.store import Store, StoredTrial
from riesz_lab.store.files import read_json
from riesz_lab.utils.amounts import count

MAX_TRIALS = 400
MAX_LAYERS = 400
CLOCK = (
    "Times were taken on the clock and depend on what else the machine did: compare them only within one experiment"
    " that had the machine to itself."
)


def layer_table(arms: Methods, files: Files, title: str) -> Table | None:
    """The effect of the metric in the last epoch, layer by layer; None if no trial stored it.

    The lab's loop stores how far each layer moved; of a user's loop, the last step alone is known.
    """
    rows: list[list[Cell | str]] = []
    for label, trials in arms.items():
        last = [updates[-1].get("layers") for trial in trials if (updates := files.rows(trial, "updates"))]
        by_trial = [layers for layers in last if isinstance(layers, dict)]
        for layer in dict.fromkeys(name for layers in by_trial for name in layers):
            stored = [layers[layer] for layers in by_trial if isinstance(layers.get(layer), dict)]
            spectra = [valid[layer] for layers in by_trial if layer in (valid := layers_of({"layers": layers}))]
            means = [_mean(entry.get(key) for entry in stored) for key in ("moved", "ratio", "cosine")]
            frequency = statistics.fmean(map(mean_frequency, spectra)) if spectra else None
            channels = _mean([spectra[0]["n"]] if spectra else ())
            rows.append([layer, label, channels, *means, number(frequency, ".3f")])
    if not rows:
        return None
    head = ["layer", "arm", "n", "moved", "|g| / |f|", "cos(f, g)", "mean frequency"]
    return _without_empty_columns(
        Table(
            caption=f"The last epoch, layer by layer, mean over trials{title and ': '}{title}",
            head=head,
            rows=rows[:MAX_LAYERS],
            numbers=frozenset(range(2, len(head))),
            note="n: output channels. Moved: the weight's change over the epoch, relative to its norm. |g| / |f| and"
            " cos: length and angle of the directed gradient g against the original f, at the last step. Mean"
            " frequency: of the change along the output.",
        )
    )


def _mean(values: Iterable[Any]) -> Cell:
    """Of those that are numbers."""
    known = [value for value in values if isinstance(value, int | float)]
    return number(statistics.fmean(known) if known else None, ".4g")


def _without_empty_columns(table: Table) -> Table:
    columns = list(zip(*table.cells(), strict=True))
    kept = [index for index, column in enumerate(columns) if any(cell.text for cell in column)]
    return Table(
        caption=table.caption,
        head=[table.head[index] for index in kept],
        rows=list(zip(*(columns[index] for index in kept), strict=True)),
        numbers=frozenset(kept.index(index) for index in table.numbers if index in kept),
        note=table.note,
    )


def step_times(arms: Methods, baselines: Mapping[str, str | None], files: Files) -> list[list[Cell | str]]:
    """Label, epochs, median time of a step and its ratio to the baseline's, of each arm that has times."""
    times = {label: of_arm for label, trials in arms.items() if (of_arm := files.step_times(trials))}
    medians = {label: statistics.median(of_arm) for label, of_arm in times.items()}
    rows: list[list[Cell | str]] = []
    for label, median in medians.items():
        plain = medians.get(baselines.get(label) or "")
        ratio = number(median / plain if plain else None, ".2f")
        rows.append([label, number(len(times[label])), number(median, ".2f"), ratio])
    return rows


def environments(trials: Iterable[StoredTrial]) -> Section:
    """Where the trials ran, one row per machine and set of versions."""
    counts = Counter(map(_environment, trials))
    table = Table(
        caption="Environments",
        head=("processor", "device", "threads", "python", "packages", "revision", "trials"),
        rows=[[*key, number(count)] for key, count in sorted(counts.items())],
        numbers=frozenset((2, 6)),
    )
    return Section(name="environment", title="Environment", blocks=[table] if counts else [])


def _environment(trial: StoredTrial) -> tuple[str, ...]:
    """The machine of a trial's last session; files may be damaged."""
    try:
        sessions = read_json(trial.files.environment_file)
    except BadFileError:
        sessions = []
    last = sessions[-1] if isinstance(sessions, list) and sessions and isinstance(sessions[-1], dict) else {}
    packages = last["packages"] if isinstance(last.get("packages"), dict) else {}
    return (
        str(last.get("cpu") or "not recorded")[:200],
        str(last.get("accelerator", ""))[:40],
        str(last.get("threads", ""))[:10],
        str(last.get("python", ""))[:40],
        ", ".join(f"{name} {version}" for name, version in packages.items())[:400],
        str(last.get("revision") or "")[:48],
    )


def settings(trials: Iterable[StoredTrial]) -> Section:
    """The full config of every group of trials: what all share, then what differs."""
    groups: dict[str, Config] = {}
    for trial in trials:
        groups.setdefault(trial.config.group, trial.config)
    values = [config.describe() for config in groups.values()]
    keys = [key for key in (values[0] if values else {}) if key not in SEEDS]
    varied = [key for key in keys if any(value[key] != values[0][key] for value in values)]
    blocks = []
    if values:
        # Without those that are not set, such as all that a function of the user's own does not read.
        shared = [[key, text] for key in keys if key not in varied and (text := _format(values[0][key]))]
        blocks.append(Table(caption="Settings that all trials share", head=("setting", "value"), rows=shared))
    if varied:
        rows = [[group, *(_format(value[key]) for key in varied)] for group, value in zip(groups, values, strict=True)]
        blocks.append(Table(caption="Settings that differ, by group of trials", head=("group", *varied), rows=rows))
    return Section(name="settings", title="Settings", blocks=blocks, folded=True)


def _format(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def trials(store: Store, home: Path | None, arms: Mapping[str, str] | None = None) -> Section:
    """Every trial with a link to its directory, relative to the folder of the page, and its arm by id if given."""
    rows: list[list[Cell | str]] = []
    for trial in store.trials[:MAX_TRIALS]:
        name, seed = Cell(trial.path.name, link=_link(trial.path, home)), number(trial.config.effective_init_seed)
        scores = (number(trial.score(which), ".4f") for which in ("last", "best"))
        label = method(trial.config) if arms is None else arms.get(trial.config.id, "")
        rows.append([name, trial.config.recipe, label, seed, trial.status, *scores])
    missing = [f"{path.name} cannot be read and is left out: {why}" for path, why in store.broken.items()]
    if (more := len(store.trials) - MAX_TRIALS) > 0:
        missing.append(f"Counted in the tables, not listed here: {count(more, 'more trial')}; riesz runs lists them.")
    if unfinished := sum(trial.result is None for trial in store.trials):
        missing.append(f"Not complete, and in no table: {count(unfinished, 'trial')}.")
    table = Table(
        caption=count(len(store.trials), "trial"),
        head=("trial", "recipe", "method" if arms is None else "arm", "seed", "status", "last score", "best score"),
        rows=rows,
        numbers=frozenset((3, 5, 6)),
        link_note="" if home is None else "Links lead to the trials' directories as they lay when this page was made.",
    )
    return Section(name="trials", title="Trials", blocks=[table] if rows else [], missing=missing, folded=True)


def _link(path: Path, home: Path | None) -> str:
    if home is None:
        return ""
    try:
        relative = Path(os.path.relpath(path.resolve(), home.resolve())).as_posix()
    except ValueError:  # another drive
        return ""
    # "./" in front: a name such as "javascript:..." stays a path.
    return f"./{relative}/"
