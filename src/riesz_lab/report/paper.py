"""The paper's tables beside ours."""

import json
import statistics
from functools import cache
from importlib.resources import files
from typing import Any

from riesz_lab.config import Config
from riesz_lab.experiments import ArmResult, Result
from riesz_lab.experiments.arm import OPTIMIZERS, setting
from riesz_lab.report.content import Cell, Section, Table, number
from riesz_lab.report.data import Methods, ReportData, count_collapsed, score_of
from riesz_lab.report.labels import REST, metric_kind, network, rank, scale
from riesz_lab.utils.amounts import count

COLUMNS = {"baseline": "baseline", "sobolev-tilde": "+ SobolevTilde", "reweighted-l2": "+ ReweightedL2"}
METHODS = ("sobolev-tilde", "reweighted-l2")
STAND_INS = {"ResNet-20": "ResNet-56", "VGG-11": "VGG-16"}
"""The paper's network that a small one stands for."""

CifarKey = tuple[str, str, int]
"""Network, optimizer and batch size: a row of the paper's table."""


@cache
def published() -> Any:
    """The numbers that the paper prints."""
    return json.loads(files("riesz_lab.report").joinpath("paper.json").read_text(encoding="utf-8"))


def paper_tables(data: ReportData) -> Section:
    missing = []
    ours = _cifar_rows(data)
    if not any(ours.values()):
        command = "riesz sweep table-cifar-mini, or table-cifar; or name a sweep of your own with --sweeps"
        missing.append(f"Test accuracy on CIFAR-10: no trial of ours. Run: {command}")
    blocks = [_cifar_table(ours)]
    for title, task, command, make in (
        ("Segmentation of PascalVOC: generalisation gap", "segmentation", "voc-mini", _gap_table),
        ("Image synthesis on Cityscapes: final FID", "generation", "spade-mini", _fid_table),
    ):
        settings = data.settings_of(task)
        blocks.append(make(title, settings))
        if not settings:
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


def _cifar_rows(data: ReportData) -> dict[CifarKey, list[dict[str, ArmResult]]]:
    """Our rows, by column, for each row of the paper's table: one for each setting that was run."""
    by_setting: dict[Config, dict[str, ArmResult]] = {}
    for found in (*data.named("table-cifar", "curves"), *data.parts(setting)):
        for base, columns in _cifar_columns(found).items():
            if _trials(columns) > _trials(by_setting.get(base, {})):  # experiments share settings
                by_setting[base] = columns
    ours: dict[CifarKey, list[dict[str, ArmResult]]] = {_cifar_key(entry): [] for entry in published()["cifar10"]}
    for base, columns in by_setting.items():
        name = network(base.model)
        key = (STAND_INS.get(name, name), OPTIMIZERS.get(base.optimizer, ""), base.batch_size)
        if key in ours:
            ours[key].append(columns)
    return ours


def _cifar_columns(found: Result) -> dict[Config, dict[str, ArmResult]]:
    """The arms on CIFAR-10 that the paper's table has, by setting and column: SGD, and both metrics at lam = 1."""
    by_setting: dict[Config, dict[str, ArmResult]] = {}
    for row in found.arms.values():
        config = row.arm.config
        in_paper = config.dataset == "cifar10" and rank(config) < REST
        if row.trials and in_paper and (column := _column(config)):
            by_setting.setdefault(setting(config), {})[column] = row
    return by_setting


def _trials(columns: dict[str, ArmResult]) -> int:
    return sum(len(row.trials) for row in columns.values())


def _cifar_key(entry: dict[str, Any]) -> CifarKey:
    return entry["network"], entry["optimizer"], entry["batch"]


def _column(config: Config) -> str:
    """The column of the paper's tables that a method belongs to; empty for none."""
    kind = metric_kind(config)
    column = "baseline" if kind == "identity" else kind
    return column if column in COLUMNS and config.control == "none" else ""


def _cifar_table(ours: dict[CifarKey, list[dict[str, ArmResult]]]) -> Table:
    rows: list[list[Cell | str]] = []
    for entry in published()["cifar10"]:
        key = _cifar_key(entry)
        rows.append(_cifar_row(key, "paper, 10 trials", entry))
        for columns in ours[key]:
            means = {
                column: 100 * statistics.fmean(scores) for column, row in columns.items() if (scores := row.finite)
            }
            config = next(iter(columns.values())).arm.config
            trials = min(len(row.trials) for row in columns.values())
            rows.append(_cifar_row(key, f"ours, {count(trials, 'trial')}: {scale(config)}", means))
    return Table(
        caption="Test accuracy on CIFAR-10, in %",
        head=("network", "optimizer", "batch", "who", *COLUMNS.values()),
        rows=rows,
        numbers=frozenset((2, *range(4, 7))),
        note="In brackets, the error reduced in %: 100 (1 - error / error of the baseline), of the means.",
    )


def _cifar_row(key: CifarKey, who: str, means: dict[str, float]) -> list[Cell | str]:
    cells = {column: number(means.get(column), ".2f") for column in COLUMNS}
    for column in METHODS:
        if {column, "baseline"} <= set(means):
            reduced = 100 * (1 - (100 - means[column]) / (100 - means["baseline"]))
            cells[column] = Cell(f"{means[column]:.2f} ({reduced:+.1f})", means[column])
    return [key[0], key[1], number(key[2]), who, *cells.values()]


def _gap_table(title: str, settings: list[tuple[Config, Methods]]) -> Table:
    gap = published()["voc"]["gap"]
    rows: list[list[Cell | str]] = [["paper, 3 trials", *(number(gap[column], ".3f") for column in COLUMNS)]]
    rows += [[f"ours: {scale(base)}", *_means(methods, "accuracy_gap")] for base, methods in settings]
    return Table(
        caption=title,
        head=("who", *COLUMNS.values()),
        rows=rows,
        numbers=frozenset((1, 2, 3)),
        note="Training accuracy less test accuracy. The paper also reports segmentation accuracy up by 8.5%"
        " (SobolevTilde) and 7.8% (ReweightedL2), relative.",
    )


def _fid_table(title: str, settings: list[tuple[Config, Methods]]) -> Table:
    fid, collapsed = published()["spade"]["fid"], published()["spade"]["collapsed"]
    of = collapsed["of"]
    cells = (Cell(f"{fid[c][0]:.2f} ± {fid[c][1]:.2f}; {collapsed[c]} of {of} collapsed", fid[c][0]) for c in COLUMNS)
    rows: list[list[Cell | str]] = [["paper, 6 trials", *cells]]
    for base, methods in settings:
        score, _ = score_of(methods)
        rows.append([f"ours, {score}: {scale(base)}", *_means(methods, score, collapsed=True)])
    return Table(caption=title, head=("who", *COLUMNS.values()), rows=rows, numbers=frozenset((1, 2, 3)))


def _means(methods: Methods, key: str, collapsed: bool = False) -> list[Cell | str]:
    """Mean and spread of a value of the last rows, for the plain optimizer and the paper's two metrics."""
    cells: dict[str, Cell | str] = {}
    for trials in methods.values():
        if cells.get(column := _column(trials[0].config)):
            continue
        values = [float(v) for trial in trials if isinstance(v := trial.last().get(key), int | float)]
        remark = f"{count_collapsed(trials)} of {len(trials)} collapsed" if collapsed else ""
        cells[column] = remark
        if values:
            mean = statistics.fmean(values)
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells[column] = Cell(f"{mean:.3f}{spread}{remark and f'; {remark}'}", mean)
    return [cells.get(column, "") for column in COLUMNS]
