"""docs/evidence.md and its figures, computed from the trials in evidence/trials: no number is typed by hand.

python -m evidence.page            write them
python -m evidence.page --check    exit with 1 if what is written differs from what the trials say
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from evidence import TRIALS, regularity, sweeps
from evidence.claims import CLAIMS, NOT_TESTED, REGULARITY, Claim
from evidence.conclusions import metrics, small_batches_in_short
from evidence.controls import all_controls
from evidence.tables import is_decided, planned, tables, tuned_rates
from riesz_lab.report.comparison_view import tuning_notes
from riesz_lab.report.figures.lambda_sweep import lambda_figure
from riesz_lab.report.figures.regimes import regime_figure
from riesz_lab.report.picture import draw
from riesz_lab.statistics import Comparison
from riesz_lab.store import Store
from riesz_lab.sweeps import ArmResult, SweepResult, costs, results, sweep
from riesz_lab.sweeps.tuning import Choice

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

PICTURES = {"evidence-lambda-fashion": "evidence-lambda.svg", "evidence-regimes": "evidence-regimes.svg"}
"""The figure of a sweep's section; that of lam has a panel for each dataset."""


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    by_name, store = tables(trials), Store(trials)
    by_name |= {one.name: results(one, store) for one in all_controls(by_name)}
    lambdas = [by_name["evidence-lambda-fashion"], by_name["evidence-lambda-mnist"]]
    figures = {
        "evidence-lambda.svg": lambda_figure(lambdas),
        "evidence-regimes.svg": regime_figure([by_name["evidence-regimes"]]),
    }
    pictures = {name: draw(figure, "svg") for name, figure in figures.items() if figure and figure.panels}
    return {"evidence.md": _page(by_name, trials, set(pictures)).encode(), **pictures}


def _page(by_name: dict[str, SweepResult], trials: Path, pictures: set[str]) -> str:
    measured = regularity.measure(_weighed(by_name))
    lines = [
        "# Evidence",
        "",
        *_summary(by_name, trials),
        "",
        "Everything on this page is computed from the raw trials in `evidence/trials` by `make evidence`. Questions,"
        " arms, seeds, tests and the stopping rule were fixed before the trials:"
        " [the protocol](../evidence/PROTOCOL.md). A verdict counts when all trials of its sweep are complete.",
        "",
        "## Claims",
        "",
        "Differences to SGD in points of test accuracy after the last epoch, with 95% intervals.",
        "",
        "| claim of the paper | what was run here | trials | verdict |",
        "| --- | --- | --- | --- |",
        *(_claim(claim, by_name) for claim in CLAIMS),
        _regularity(by_name, regularity.verdict(measured)),
        "",
        "## Results",
        "",
    ]
    rates = tuned_rates(Store(trials))
    for name, table in by_name.items():
        lines += _section(name, table, pictures)
        if name == sweeps.tuned_fashion().name and rates is not None:
            lines += [f"- {note}" for note in tuning_notes(rates)] + [f"- {_rates(rates)}", ""]
    lines += [
        *regularity.section(measured),
        "## Not tested here",
        "",
        "| experiment | sweep | trials | on two cores | on one GPU |",
        "| --- | --- | --- | --- | --- |",
        *(_cost(what, name) for what, name in NOT_TESTED),
        "",
        f"Estimates: {costs.MEASURED_ON}; GPU {costs.GPU_ASSUMED}.",
        "",
        "## Repeat it",
        "",
        "`make reproduce ID=a570b30e31c1` trains a trial again and compares it with the stored one: bit for bit on a"
        " machine of the same kind, else within the spread of seeds. `make evidence` rewrites this page and the full"
        " report from the stored trials; it needs no data and trains nothing.",
        "",
    ]
    return "\n".join(lines)


def _summary(by_name: dict[str, SweepResult], trials: Path) -> list[str]:
    """Five sentences."""
    ids, unknown = planned(by_name)
    complete = {trial.config.id for trial in Store(trials).trials if trial.result is not None} & ids
    hours = sum(_hours(path) for path in trials.glob("*/*/timing.jsonl"))
    decided = [table for table in by_name.values() if is_decided(table)]
    counted = _counts(row for table in decided for row in metrics(table))
    small = "Whether small batches gain most on CIFAR-10 is not decided: its trials are not complete."
    if is_decided(by_name["evidence-regimes"]):
        small = small_batches_in_short(by_name["evidence-regimes"])
    return [
        f"{len(complete)} of {len(ids) + unknown} planned trials are complete, after {hours:.1f} hours of training.",
        f"{len(decided)} of {len(by_name)} sweeps are complete; verdicts on the metrics in them: {counted}.",
        _lead(by_name["evidence-lambda-fashion"]),
        small,
        "The paper's networks at full scale, its segmentation and its image synthesis were not trained here.",
    ]


def _lead(table: SweepResult) -> str:
    """On the one experiment that was run as the paper did."""
    compared = [row.comparison for row in metrics(table) if row.comparison and row.comparison.n]
    if not compared:
        return "No pair of trials is complete yet."
    differences, pairs = [100 * c.difference for c in compared], [c.n for c in compared]
    on, verdicts = "A first look, not a verdict: on", ""
    if is_decided(table):
        on, verdicts = "On", f"of {len(compared)} settings {_counts(metrics(table))}; "
    return (
        f"{on} Fashion-MNIST by the paper's protocol, {verdicts}the mean differences to SGD lie between"
        f" {min(differences):+.2f} and {max(differences):+.2f} points"
        f" ({' to '.join(map(str, sorted({min(pairs), max(pairs)})))} pairs for each setting)."
    )


def _counts(rows: Iterable[ArmResult]) -> str:
    verdicts = [row.comparison.verdict for row in rows if row.comparison]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)) or "none yet"


def _count(table: SweepResult) -> tuple[int, int]:
    return sum(len(row.scores) for row in table.rows.values()), sum(row.wanted for row in table.rows.values())


def _hours(timing: Path) -> float:
    rows = [json.loads(line) for line in timing.read_text().splitlines()]
    seconds = sum(row["steps"] * (row["step_ms"] or 0.0) / 1000 + (row.get("eval_seconds") or 0.0) for row in rows)
    return float(seconds) / 3600


def _claim(claim: Claim, by_name: dict[str, SweepResult]) -> str:
    table = by_name[claim.sweep().name]
    done, wanted = _count(table)
    verdict = "<br>".join(claim.conclude(by_name)) if is_decided(table) else "not decided: trials are missing"
    return f"| {claim.claim} | {claim.tested} | {done} of {wanted} | {verdict} |"


def _weighed(by_name: dict[str, SweepResult]) -> list[SweepResult]:
    """The sweeps whose weights are measured: those of questions 1 and 3."""
    weighed = (sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd, sweeps.regimes)
    return [by_name[make().name] for make in weighed]


def _regularity(by_name: dict[str, SweepResult], seen: str) -> str:
    run = _weighed(by_name)
    done, wanted = map(sum, zip(*map(_count, run), strict=True))
    look = "" if all(map(is_decided, run)) else "not decided: trials are missing. A first look:<br>"
    tested = f"The trained weights of {len(run)} sweeps above, against those of SGD with the same seed."
    return f"| {REGULARITY} | {tested} | {done} of {wanted} | {look}{seen} |"


def _section(name: str, table: SweepResult, pictures: set[str]) -> list[str]:
    about = table.sweep.about
    lines = [f"### {name.removeprefix('evidence-')}", "", f"{about[0].upper()}{about[1:]}.", ""]
    if not _count(table)[0]:
        return [*lines, "No trial is complete yet.", ""]
    if (picture := PICTURES.get(name)) in pictures:
        lines += [f"![{about}]({picture})", ""]
    lines += ["| arm | trials | mean ± sd, % | difference | 95% interval |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(row) for row in table.rows.values()]
    lines.append("")
    if not is_decided(table):
        lines += ["Trials are missing: what follows is a first look, not a verdict.", ""]
    compared = zip(table.comparisons.values(), table.sentences, strict=True)
    lines += [f"- {sentence}" for comparison, sentence in compared if comparison.trials]
    return [*lines, ""]


def _rates(rates: dict[str, Choice]) -> str:
    tried = ", ".join(f"{rate:g}" for rate in sorted(next(iter(rates.values())).scores))
    return f"Rates tried: {tried}. Best: {', '.join(f'{label} {choice.rate:g}' for label, choice in rates.items())}."


def _row(row: ArmResult) -> str:
    scores = [100 * score for score in row.scores.values() if score is not None]
    mean = f"{statistics.fmean(scores):.2f}" if scores else "-"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    difference = _difference(row.comparison) if row.comparison else ""
    interval = _interval(row.comparison) if row.comparison else ""
    return f"| {row.arm.label} | {len(row.scores)}/{row.wanted} | {mean}{spread} | {difference} | {interval} |"


def _difference(comparison: Comparison) -> str:
    return f"{100 * comparison.difference:+.2f}" if comparison.n else ""


def _interval(comparison: Comparison) -> str:
    if comparison.interval is None:
        return ""
    return f"{100 * comparison.interval[0]:+.2f} to {100 * comparison.interval[1]:+.2f}"


def _cost(what: str, name: str) -> str:
    configs = sweep(name).all_configs()
    cpu, gpu = (costs.format_sum([hours(c) for c in configs]) for hours in (costs.cpu_hours, costs.gpu_hours))
    return f"| {what} | `{name}` | {len(configs)} | {cpu} | {gpu} |"


def main(arguments: list[str]) -> int:
    wanted = files()
    if arguments == ["--check"]:
        stale = [name for name, content in wanted.items() if (DOCS / name).read_bytes() != content]
        print(f"docs/{', docs/'.join(stale)}: not what the trials say; run `make evidence`" if stale else "up to date")
        return int(bool(stale))
    for name, content in wanted.items():
        (DOCS / name).write_bytes(content)
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
