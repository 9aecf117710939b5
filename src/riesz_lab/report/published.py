"""The paper's figures beside ours."""

from __future__ import annotations

import json
import statistics
from functools import lru_cache
from importlib.resources import files
from typing import Any

from riesz_lab.config import Config
from riesz_lab.report.content import Cell, Section, Table
from riesz_lab.report.evidence import Evidence, Methods
from riesz_lab.report.labels import OPTIMIZERS, network, scale, setting
from riesz_lab.sweeps import Row

COLUMNS = {"baseline": "baseline", "sobolev-tilde": "+ SobolevTilde", "reweighted-l2": "+ ReweightedL2"}
NAMES = ("SobolevTilde", "ReweightedL2")
STAND_INS = {"ResNet-20": "ResNet-56", "VGG-11": "VGG-16"}
"""Which of the paper's networks a small form stands for."""


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """What the paper prints."""
    found = json.loads(files("riesz_lab.report").joinpath("paper.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def paper_tables(evidence: Evidence) -> Section:
    missing = []
    ours = _cifar(evidence)
    if not any(ours.values()):
        missing.append("Test accuracy on CIFAR-10: no trial of ours. Run: riesz sweep table-cifar-mini, or table-cifar")
    blocks = [_cifar_table(ours)]
    for title, task, command, make in (
        ("Segmentation of PascalVOC: generalisation gap", "segmentation", "voc-mini", _gaps),
        ("Image synthesis on Cityscapes: final FID", "generation", "spade-mini", _fids),
    ):
        mine = [(base, methods) for base, methods in evidence.settings.items() if base.task == task]
        blocks.append(make(title, mine))
        if not mine:
            missing.append(f"{title}: no trial of ours. Run: riesz sweep {command}")
    return Section(
        name="paper",
        title="The paper's tables, and ours beside them",
        text=(
            "Published figures are copied from the paper. Ours stand beside them at the scale that was run, which is"
            " named in each row: a small network trained for a few epochs cannot reproduce a figure, only show whether"
            " methods differ in the same direction.",
        ),
        blocks=blocks,
        missing=missing,
    )


def _cifar(evidence: Evidence) -> dict[tuple[str, str, int], list[dict[str, Row]]]:
    """Our rows by the cell of the paper's table that they stand beside."""
    cells: dict[tuple[str, str, int], list[dict[str, Row]]] = {}
    for entry in published()["cifar10"]:
        cells[entry["network"], entry["optimizer"], entry["batch"]] = []
    for table in evidence.tables_of("table-cifar", "curves"):
        found: dict[Config, dict[str, Row]] = {}
        for row in table.rows.values():
            config, kind = row.arm.config, row.arm.config.metric.partition("(")[0]
            column = "baseline" if kind == "identity" else kind
            if row.trials and column in COLUMNS and config.control == "none":
                found.setdefault(setting(config), {})[column] = row
        for base, columns in found.items():
            key = (_stands_for(network(base.model)), OPTIMIZERS.get(base.optimizer, ""), base.batch_size)
            if key in cells and columns not in cells[key]:
                cells[key].append(columns)
    return cells


def _stands_for(network: str) -> str:
    return STAND_INS.get(network, network)


def _cifar_table(ours: dict[tuple[str, str, int], list[dict[str, Row]]]) -> Table:
    rows: list[list[Cell | str]] = []
    for entry in published()["cifar10"]:
        key = (entry["network"], entry["optimizer"], entry["batch"])
        base = entry["baseline"]
        rows.append(
            [
                *_cell(key),
                "paper, 10 trials",
                *(Cell(f"{entry[column]:.2f}", entry[column]) for column in COLUMNS),
                *(_reduced(entry[column], base) for column in list(COLUMNS)[1:]),
            ]
        )
        for columns in ours[key]:
            means = {
                column: 100 * statistics.fmean(scores)
                for column, row in columns.items()
                if (scores := [score for score in row.scores.values() if score is not None])
            }
            config = next(iter(columns.values())).arm.config
            trials = min(len(row.trials) for row in columns.values())
            rows.append(
                [
                    *_cell(key),
                    f"ours, {trials} trials: {scale(config)}",
                    *(Cell(f"{means[column]:.2f}", means[column]) if column in means else "" for column in COLUMNS),
                    *(
                        _reduced(means[column], means["baseline"]) if {column, "baseline"} <= set(means) else ""
                        for column in list(COLUMNS)[1:]
                    ),
                ]
            )
    return Table(
        caption="Test accuracy on CIFAR-10, in %",
        head=("network", "optimizer", "batch", "who", *COLUMNS.values(), *(f"error reduced %, {one}" for one in NAMES)),
        rows=rows,
        numbers=frozenset((2, *range(4, 9))),
        note="Error reduced %: 100 (1 - error / error of the baseline), of the means.",
    )


def _cell(key: tuple[str, str, int]) -> list[Cell | str]:
    return [key[0], key[1], Cell(str(key[2]), key[2])]


def _reduced(score: float, baseline: float) -> Cell:
    value = 100 * (1 - (100 - score) / (100 - baseline))
    return Cell(f"{value:+.1f}", value)


def _gaps(title: str, ours: list[tuple[Config, Methods]]) -> Table:
    gap = published()["voc"]["gap"]
    rows: list[list[Cell | str]] = [
        ["paper, 3 trials", *(Cell(f"{gap[column]:.3f}", gap[column]) for column in COLUMNS)]
    ]
    for base, methods in ours:
        rows.append([f"ours: {scale(base)}", *_means(methods, "accuracy_gap", 3)])
    return Table(
        caption=title,
        head=("who", *COLUMNS.values()),
        rows=rows,
        numbers=frozenset((1, 2, 3)),
        note="Training accuracy less test accuracy. The paper also reports segmentation accuracy up by 8.5%"
        " (SobolevTilde) and 7.8% (ReweightedL2), relative.",
    )


def _fids(title: str, ours: list[tuple[Config, Methods]]) -> Table:
    fid, fallen = published()["spade"]["fid"], published()["spade"]["collapsed"]
    rows: list[list[Cell | str]] = [
        [
            "paper, 6 trials",
            *(
                Cell(f"{fid[c][0]:.2f} ± {fid[c][1]:.2f}; {fallen[c]} of {fallen['of']} collapsed", fid[c][0])
                for c in COLUMNS
            ),
        ]
    ]
    for base, methods in ours:
        score = str(next(iter(methods.values()))[0].result.score)  # type: ignore[index]
        rows.append([f"ours, {score}: {scale(base)}", *_means(methods, score, 3, collapsed=True)])
    return Table(caption=title, head=("who", *COLUMNS.values()), rows=rows, numbers=frozenset((1, 2, 3)))


def _means(methods: Methods, key: str, digits: int, collapsed: bool = False) -> list[Cell | str]:
    """Mean and spread of a value of the last rows, for the plain optimizer and the paper's two metrics."""
    by_column: dict[str, Cell | str] = dict.fromkeys(COLUMNS, "")
    for trials in methods.values():
        config = trials[0].config
        kind = config.metric.partition("(")[0]
        column = "baseline" if kind == "identity" else kind
        if column not in COLUMNS or config.control != "none" or by_column[column]:
            continue
        values = [trial.last().get(key) for trial in trials]
        known = [float(value) for value in values if isinstance(value, int | float)]
        fallen = sum(trial.status in ("collapsed", "diverged") for trial in trials)
        remark = f"; {fallen} of {len(trials)} collapsed" if collapsed else ""
        if known:
            mean = statistics.fmean(known)
            spread = f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else ""
            by_column[column] = Cell(f"{mean:.{digits}f}{spread}{remark}", mean)
        elif remark:
            by_column[column] = remark.removeprefix("; ")
    return list(by_column.values())
