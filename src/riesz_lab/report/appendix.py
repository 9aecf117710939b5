"""What stands behind the conclusions: layers, speed, settings, machines, trials."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from riesz_lab.errors import BadFileError
from riesz_lab.report.content import Cell, Section, Table
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.spectra import layers_of, mean_frequency, setting
from riesz_lab.report.figures.speed import speed as draw_speed
from riesz_lab.report.labels import method, scale
from riesz_lab.report.published import published
from riesz_lab.report.summary import number
from riesz_lab.store.files import read_json

MOST_TRIALS = 400
MOST_LAYERS = 400
CLOCK = (
    "Times of these trials were taken on the clock, and depend on what else the machine did meanwhile: compare them"
    " only within one sweep that had the machine to itself. For speed, believe the benchmarks."
)


def layers(evidence: Evidence) -> Section:
    """What the metric did, layer by layer, in the last epoch."""
    chosen = setting(evidence)
    rows: list[list[Cell | str]] = []
    for name, trials in (chosen[1] if chosen else {}).items():
        last = [layers_of(evidence.updates(trial)[-1]) for trial in trials]
        for layer in last[0]:
            found = [row[layer] for row in last if layer in row]
            rows.append(
                [
                    layer,
                    name,
                    Cell(str(found[0].get("n", "")), found[0].get("n")),
                    _mean(found, "moved"),
                    _mean(found, "ratio"),
                    _mean(found, "cosine"),
                    number(statistics.fmean(map(mean_frequency, found)), 3),
                ]
            )
    table = Table(
        caption="The last epoch, layer by layer, mean over trials" + (f": {scale(chosen[0])}" if chosen else ""),
        head=("layer", "method", "n", "moved", "|g| / |f|", "cos(f, g)", "mean frequency"),
        rows=rows[:MOST_LAYERS],
        numbers=frozenset(range(2, 7)),
        note="n: output channels. Moved: the weight's change over the epoch, relative to its norm. |g| / |f| and cos:"
        " length and angle of the directed gradient against the original, at the epoch's last step. Mean frequency: of"
        " the change along the output.",
    )
    return Section(
        name="layers",
        title="Layer by layer",
        blocks=[table] if rows else [],
        missing=() if rows else ("No trial stored what its epochs did to the weights. Run: riesz demo",),
    )


def _mean(found: list[dict[str, Any]], key: str) -> Cell | str:
    values = [row[key] for row in found if isinstance(row.get(key), int | float)]
    return Cell(f"{np.mean(values):.4g}", float(np.mean(values))) if values else ""


def speed(evidence: Evidence) -> Section:
    """What a step costs in these trials, and what the benchmarks say."""
    rows: list[list[Cell | str]] = []
    for base, methods in evidence.settings.items():
        times = {name: _step_times(trials) for name, trials in methods.items()}
        plain = times.get(method(base))
        for name, found in times.items():
            if found:
                ratio = statistics.median(found) / statistics.median(plain) if plain else None
                rows.append(
                    [
                        scale(base),
                        name,
                        Cell(str(len(found)), len(found)),
                        number(statistics.median(found), 2),
                        number(ratio, 2) if ratio is not None else "",
                    ]
                )
    figure = draw_speed(evidence)
    blocks: list[Figure | Table] = [figure] if figure else []
    if rows:
        blocks.append(
            Table(
                caption="Time of a training step in these trials",
                head=("setting", "method", "epochs", "ms a step, median", "relative to the plain optimizer"),
                rows=rows,
                numbers=frozenset((2, 3, 4)),
            )
        )
    if evidence.benchmarks:
        blocks.append(_benchmark_table(evidence))
    paper = published()["speed"]
    return Section(
        name="speed",
        title="Speed",
        text=(
            f"The paper's SobolevTilde added {paper['sobolev-tilde added, ms a step, batch 128']} ms to a step at batch"
            f" size 128, {100 * paper['share of training time']:.0f}% of the training time; ReweightedL2 a negligible"
            " time.",
            *((CLOCK,) if rows else ()),
        ),
        blocks=blocks,
        missing=()
        if evidence.benchmarks
        else ("No benchmark results were given. Measure with make bench, then add the folder: benchmarks/results",),
    )


def _step_times(trials: list[Any]) -> list[float]:
    return [
        float(row["step_ms"])
        for trial in trials
        for row in trial.timing()
        if isinstance(row.get("step_ms"), int | float) and row["step_ms"] > 0
    ]


def _benchmark_table(evidence: Evidence) -> Table:
    where = sorted({one.where for one in evidence.benchmarks})
    return Table(
        caption="Benchmarks",
        head=("claim", "shape", "who", "ms, median", "20% to 80%", "runs"),
        rows=[
            [
                one.claim,
                one.shape,
                one.rival,
                Cell(f"{1e3 * one.median:.4g}", one.median),
                f"{1e3 * one.p20:.4g} to {1e3 * one.p80:.4g}",
                Cell(str(one.runs), one.runs),
            ]
            for one in evidence.benchmarks
        ],
        numbers=frozenset((3, 4, 5)),
        note="; ".join(where),
    )


def environments(evidence: Evidence) -> Section:
    """Where the trials ran, one row per kind of machine and versions."""
    counted: Counter[tuple[str, ...]] = Counter()
    for trial in evidence.store.trials:
        try:
            sessions = read_json(trial.files.environment_file)
        except BadFileError:
            sessions = []
        last = sessions[-1] if isinstance(sessions, list) and sessions and isinstance(sessions[-1], dict) else {}
        packages = last.get("packages") if isinstance(last.get("packages"), dict) else {}
        counted[
            (
                str(last.get("cpu") or "not recorded")[:200],
                str(last.get("accelerator", ""))[:40],
                str(last.get("threads", ""))[:10],
                str(last.get("python", ""))[:40],
                ", ".join(f"{name} {version}" for name, version in packages.items())[:400],
                str(last.get("revision") or "")[:48],
            )
        ] += 1
    table = Table(
        caption="Environments",
        head=("processor", "device", "threads", "python", "packages", "revision", "trials"),
        rows=[[*key, Cell(str(count), count)] for key, count in sorted(counted.items())],
        numbers=frozenset((2, 6)),
    )
    return Section(name="environment", title="Environment", blocks=[table] if counted else [])


def settings(evidence: Evidence) -> Section:
    """The full config of every group of trials, in differences to the first."""
    groups = [trials[0].config for trials in evidence.store.groups().values()]
    values = [config.describe() for config in groups]
    keys = [key for key in (values[0] if values else {}) if key not in ("seed", "init_seed", "data_seed")]
    same = [key for key in keys if all(value[key] == values[0][key] for value in values)]
    varied = [key for key in keys if key not in same]
    blocks = []
    if values:
        blocks.append(
            Table(
                caption="Settings that all trials share",
                head=("setting", "value"),
                rows=[[key, _told(values[0][key])] for key in same],
            )
        )
    if varied:
        blocks.append(
            Table(
                caption="Settings that differ, by group of trials",
                head=("group", *varied),
                rows=[
                    [config.group, *(_told(value[key]) for key in varied)]
                    for config, value in zip(groups, values, strict=True)
                ],
            )
        )
    return Section(name="settings", title="Settings", blocks=blocks, folded=True)


def _told(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def trials(evidence: Evidence, home: Path | None) -> Section:
    """Every trial with a link to its directory, seen from where the page lies."""
    rows: list[list[Cell | str]] = []
    for trial in evidence.store.trials[:MOST_TRIALS]:
        last, best = trial.score("last"), trial.score("best")
        rows.append(
            [
                Cell(trial.path.name, link=_link(trial.path, home)),
                trial.config.recipe,
                method(trial.config),
                Cell(str(trial.config.effective_init_seed), trial.config.effective_init_seed),
                trial.status,
                "" if last is None else Cell(f"{last:.4f}", last),
                "" if best is None else Cell(f"{best:.4f}", best),
            ]
        )
    missing = [f"{path.name} cannot be read and is left out: {why}" for path, why in evidence.store.broken.items()]
    if (more := len(evidence.store.trials) - MOST_TRIALS) > 0:
        missing.append(f"{more:,} more trials are counted in the tables and not listed here; riesz runs lists them.")
    unfinished = sum(trial.result is None for trial in evidence.store.trials)
    if unfinished:
        missing.append(f"{unfinished} trials are not complete, and are in no table.")
    table = Table(
        caption=f"{len(evidence.store.trials):,} trials",
        head=("trial", "recipe", "method", "seed", "status", "last score", "best score"),
        rows=rows,
        numbers=frozenset((3, 5, 6)),
        note="Links lead to the trials' directories as they lay when this page was made.",
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
