"""The data behind the conclusions: layers, speed, settings, machines, trials."""

import os
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from riesz_lab.config import SEEDS
from riesz_lab.errors import BadFileError
from riesz_lab.report.content import Cell, Section, Table, number
from riesz_lab.report.evidence import Methods, ReportData
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.figures.spectra import layers_of, mean_frequency, setting_with_updates
from riesz_lab.report.labels import scale
from riesz_lab.report.published import published
from riesz_lab.store import StoredTrial
from riesz_lab.store.files import read_json
from riesz_lab.sweeps.methods import method
from riesz_lab.utils.amounts import count

MAX_TRIALS = 400
MAX_LAYERS = 400
CLOCK = (
    "Times of these trials were taken on the clock, and depend on what else the machine did meanwhile: compare them"
    " only within one sweep that had the machine to itself. For speed, see the benchmarks."
)


def layers(evidence: ReportData) -> Section:
    """The effect of the metric, layer by layer, in the last epoch."""
    base, methods = setting_with_updates(evidence) or (None, {})
    rows: list[list[Cell | str]] = []
    for name, trials in methods.items():
        last = [layers_of(evidence.rows(trial, "updates")[-1]) for trial in trials]
        for layer in last[0]:
            stored = [row[layer] for row in last if layer in row]
            means = [mean_cell(row.get(key) for row in stored) for key in ("moved", "ratio", "cosine")]
            frequency = statistics.fmean(map(mean_frequency, stored))
            rows.append([layer, name, number(stored[0]["n"]), *means, number(frequency, ".3f")])
    if base is None or not rows:
        missing = ("No trial stored what its epochs did to the weights. Run: riesz demo",)
        return Section(name="layers", title="Layer by layer", missing=missing)
    table = Table(
        caption=f"The last epoch, layer by layer, mean over trials: {scale(base)}",
        head=("layer", "method", "n", "moved", "|g| / |f|", "cos(f, g)", "mean frequency"),
        rows=rows[:MAX_LAYERS],
        numbers=frozenset(range(2, 7)),
        note="n: output channels. Moved: the weight's change over the epoch, relative to its norm. |g| / |f| and cos:"
        " length and angle of the directed gradient against the original, at the epoch's last step. Mean frequency: of"
        " the change along the output.",
    )
    return Section(name="layers", title="Layer by layer", blocks=[table])


def mean_cell(values: Iterable[Any]) -> Cell:
    """The mean of those that are numbers."""
    known = [value for value in values if isinstance(value, int | float)]
    return number(statistics.fmean(known) if known else None, ".4g")


def speed(evidence: ReportData) -> Section:
    """The time of a step in these trials, and the benchmarks."""
    rows: list[list[Cell | str]] = []
    for base, methods in evidence.settings.items():
        medians = median_times(methods)
        plain = medians.get(method(base))
        for name, median in medians.items():
            epochs = number(len(step_times(methods[name])))
            ratio = number(median / plain if plain else None, ".2f")
            rows.append([scale(base), name, epochs, number(median, ".2f"), ratio])
    figure = FIGURES["speed"].make(evidence)
    blocks: list[Figure | Table] = [figure] if figure else []
    if rows:
        head = ("setting", "method", "epochs", "ms a step, median", "relative to the plain optimizer")
        caption = "Time of a training step in these trials"
        blocks.append(Table(caption=caption, head=head, rows=rows, numbers=frozenset((2, 3, 4))))
    if evidence.benchmarks:
        blocks.append(_benchmark_table(evidence))
    missing = "No benchmark results were given. Measure with make bench, then add the folder: benchmarks/results"
    paper = published()["speed"]
    text = (
        f"The paper's SobolevTilde added {paper['sobolev-tilde added, ms a step, batch 128']} ms to a step at batch"
        f" size 128, {100 * paper['share of training time']:.0f}% of the training time; ReweightedL2 a negligible time."
    )
    return Section(
        name="speed",
        title="Speed",
        text=(text, CLOCK) if rows else (text,),
        blocks=blocks,
        missing=() if evidence.benchmarks else (missing,),
    )


def median_times(methods: Methods) -> dict[str, float]:
    """The median time of a step by method, of those that have one."""
    return {name: statistics.median(times) for name, trials in methods.items() if (times := step_times(trials))}


def step_times(trials: list[StoredTrial]) -> list[float]:
    """Milliseconds of a step, one value per epoch of every trial."""
    times = [row.get("step_ms") for trial in trials for row in trial.timing()]
    return [float(ms) for ms in times if isinstance(ms, int | float) and ms > 0]


def _benchmark_table(evidence: ReportData) -> Table:
    rows: list[list[Cell | str]] = []
    for row in evidence.benchmarks:
        median, span = Cell(f"{1e3 * row.median:.4g}", row.median), f"{1e3 * row.p20:.4g} to {1e3 * row.p80:.4g}"
        rows.append([row.claim, row.shape, row.rival, median, span, number(row.runs)])
    return Table(
        caption="Benchmarks",
        head=("claim", "shape", "who", "ms, median", "20% to 80%", "runs"),
        rows=rows,
        numbers=frozenset((3, 4, 5)),
        note="; ".join(sorted({row.where for row in evidence.benchmarks})),
    )


def environments(evidence: ReportData) -> Section:
    """Where the trials ran, one row per machine and set of versions."""
    counts = Counter(map(_environment, evidence.store.trials))
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


def settings(evidence: ReportData) -> Section:
    """The full config of every group of trials: what all share, then what differs."""
    groups = [trials[0].config for trials in evidence.store.groups().values()]
    values = [config.describe() for config in groups]
    keys = [key for key in (values[0] if values else {}) if key not in SEEDS]
    varied = [key for key in keys if any(value[key] != values[0][key] for value in values)]
    blocks = []
    if values:
        # Without those that are not set, such as all that a function of the user's own does not read.
        shared = [[key, text] for key in keys if key not in varied and (text := _format(values[0][key]))]
        blocks.append(Table(caption="Settings that all trials share", head=("setting", "value"), rows=shared))
    if varied:
        pairs = zip(groups, values, strict=True)
        rows = [[config.group, *(_format(value[key]) for key in varied)] for config, value in pairs]
        blocks.append(Table(caption="Settings that differ, by group of trials", head=("group", *varied), rows=rows))
    return Section(name="settings", title="Settings", blocks=blocks, folded=True)


def _format(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def trials(evidence: ReportData, home: Path | None) -> Section:
    """Every trial with a link to its directory, relative to the folder of the page."""
    store = evidence.store
    rows: list[list[Cell | str]] = []
    for trial in store.trials[:MAX_TRIALS]:
        name, seed = Cell(trial.path.name, link=_link(trial.path, home)), number(trial.config.effective_init_seed)
        scores = (number(trial.score(which), ".4f") for which in ("last", "best"))
        rows.append([name, trial.config.recipe, method(trial.config), seed, trial.status, *scores])
    missing = [f"{path.name} cannot be read and is left out: {why}" for path, why in store.broken.items()]
    if (more := len(store.trials) - MAX_TRIALS) > 0:
        missing.append(f"Counted in the tables, not listed here: {count(more, 'more trial')}; riesz runs lists them.")
    if unfinished := sum(trial.result is None for trial in store.trials):
        missing.append(f"Not complete, and in no table: {count(unfinished, 'trial')}.")
    table = Table(
        caption=count(len(store.trials), "trial"),
        head=("trial", "recipe", "method", "seed", "status", "last score", "best score"),
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
