"""docs/evidence.md and its figures, computed from the trials in evidence/trials: no number is typed by hand.

python -m evidence.page            write them
python -m evidence.page --check    exit with 1 if what is written differs from what the trials say
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from evidence import TRIALS, controls, figures, regularity, sweeps
from evidence.claims import CLAIMS, NOT_TESTED, REGULARITY, Claim
from evidence.rows import train_accuracy
from evidence.summary import summary
from evidence.tables import MISSING, at_one_rate, is_decided, tables, tuned_rates, why_not_tuned
from evidence.wording import interval, points
from riesz_lab.errors import ConfigError
from riesz_lab.report.comparison_view import tuning_notes
from riesz_lab.report.figure import Figure
from riesz_lab.report.picture import draw
from riesz_lab.store import Store
from riesz_lab.sweeps import ArmResult, SweepResult, costs, results, sweep

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    by_name = _tables(trials)
    measured = regularity.measure(at_one_rate(by_name))
    drawn = figures.figures(by_name, measured)
    pictures = {name: draw(figure, "svg") for name, figure in drawn.items()}
    return {"evidence.md": _page(by_name, trials, measured, drawn).encode(), **pictures}


def text(trials: Path = TRIALS) -> str:
    """The page alone."""
    by_name = _tables(trials)
    return _page(by_name, trials, regularity.measure(at_one_rate(by_name)), {})


def _tables(trials: Path) -> dict[str, SweepResult]:
    """The tables of all sweeps, and of the controls where something differs."""
    by_name, store = tables(trials), Store(trials)
    return by_name | {one.name: results(one, store) for one in controls.all_controls(by_name)}


INTRODUCTION = (
    "Everything on this page is computed from the raw trials in `evidence/trials` by `make evidence`. Questions, arms,"
    " seeds, tests and the stopping rule are those of [the protocol](../evidence/PROTOCOL.md). It was written before"
    " all trials but six; what was changed since, among it the tests of controls and of regularity, is listed there"
    " with what had been seen. A verdict counts when all trials of its sweep are complete."
)

HOW_TO_READ = (
    "Differences in points of test accuracy after the last epoch, with 95% intervals. Verdicts on a metric are"
    " corrected for all comparisons of a sweep, those on changes of a difference for all metrics; intervals, and what"
    " one test alone detects with 80% power, are not corrected. So an interval may exclude zero where the verdict is"
    ' undecided, and may reach beyond the margin of 0.2 points where it is "equal". Undecided is "no evidence" in the'
    " sentences of the results."
)

READINGS = (
    'SobolevTilde at "lam, as scale" is `SobolevTilde(lam=1, scale=lam)`, f + lam G f, one of two readings of the'
    " paper; the argument `lam` stays 1. At 1 its smoothing is nearly the mean over channels"
    " ([why](theory.md#facts-worth-knowing-before-choosing-lam)), so it is nearly ReweightedL2 at the same lam: read"
    " the two as one finding. Metrics that smooth between neighbours, at small `lam`, were not run here."
)

RESULTS = 'Means over seeds after the last epoch; "train" is the accuracy on training images as they were trained on.'


def _page(
    by_name: dict[str, SweepResult], trials: Path, measured: dict[str, regularity.Arms], drawn: dict[str, Figure]
) -> str:
    store = Store(trials)
    correlated = [*regularity.verdicts(regularity.compare(measured)), regularity.along_input(measured)]
    lines = ["# Evidence", "", *(f"- {sentence}" for sentence in summary(by_name, trials)), "", INTRODUCTION, ""]
    lines += [
        "## Claims",
        "",
        HOW_TO_READ,
        "",
        READINGS,
        "",
        "| claim of the paper, and *what was run here* | trials | verdict |",
        "| --- | --- | --- |",
        *(_claim(claim, by_name, store) for claim in CLAIMS),
        *_controls(by_name),
        _regularity(by_name, _lines(correlated)),
        "",
        *figures.as_markdown(figures.DIFFERENCES, drawn),
        "## Results",
        "",
        RESULTS,
        "",
    ]
    for name, table in by_name.items():
        lines += _section(name, table, drawn)
        if name == sweeps.tuned_fashion().name and why_not_tuned(store) != MISSING:
            lines += _rates(store)
    lines += [
        "## Regularity of trained weights",
        "",
        *figures.as_markdown(figures.REGULARITY, drawn),
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


def _count(table: SweepResult, beside: SweepResult | None = None) -> tuple[int, int]:
    """Trials that are complete and wanted; not those of arms that another table has too."""
    rows = [row for label, row in table.rows.items() if beside is None or label not in beside.rows]
    return sum(len(row.scores) for row in rows), sum(row.wanted for row in rows)


def _claim(claim: Claim, by_name: dict[str, SweepResult], store: Store) -> str:
    table = by_name[claim.sweep().name]
    done, wanted = _count(table)
    if is_decided(table):
        verdict = _lines(claim.conclude(by_name))
    else:
        why = why_not_tuned(store) if claim.sweep is sweeps.tuned_fashion else MISSING
        verdict = f"not decided: {why or MISSING}"
    return f"| {claim.claim} *{claim.tested}* | {done} of {wanted} | {verdict} |"


def _lines(conclusions: list[str]) -> str:
    """One below the other, with what stands before the colon in bold."""
    parts = (line.partition(": ") for line in conclusions)
    return "<br>".join(f"**{head}**{colon}{rest}" if rest else head for head, colon, rest in parts)


def _controls(by_name: dict[str, SweepResult]) -> Iterator[str]:
    """A row for the controls of each sweep in which a metric differs."""
    for name, table in by_name.items():
        controlled = by_name.get(controls.name_of(name))
        if controlled is None:
            continue
        done, wanted = _count(controlled, table)
        verdict = f"not decided: {MISSING}"
        if is_decided(controlled):
            verdict = _lines(controls.conclude(table, controlled))
        asked = f"Not in the paper: where {name.removeprefix('evidence-')} differs, is it more than a longer step?"
        tested = "The norm of the gradient kept, against SGD; the channels in random order, against the true one."
        yield f"| {asked} *{tested}* | {done} of {wanted} | {verdict} |"


def _regularity(by_name: dict[str, SweepResult], seen: str) -> str:
    run = at_one_rate(by_name)
    done, wanted = map(sum, zip(*map(_count, run), strict=True))
    look = "" if all(map(is_decided, run)) else f"not decided: {MISSING}. A first look:<br>"
    tested = f"The trained weights of {len(run)} sweeps above, against those of SGD with the same seed."
    return f"| {REGULARITY} *{tested}* | {done} of {wanted} | {look}{seen} |"


def _section(name: str, table: SweepResult, drawn: dict[str, Figure]) -> list[str]:
    about = table.sweep.about
    lines = [f"### {name.removeprefix('evidence-')}", "", f"{about[0].upper()}{about[1:]}.", ""]
    if not _count(table)[0]:
        return [*lines, "No trial is complete yet.", ""]
    lines += figures.as_markdown(figures.PICTURES.get(name, ""), drawn)
    lines += ["| arm | trials | train, % | test, %, ± sd | difference | 95% interval |", "| --- " * 6 + "|"]
    lines += [_row(row) for row in table.rows.values()]
    lines.append("")
    sentences = []
    for (label, comparison), sentence in zip(table.comparisons.items(), table.sentences, strict=True):
        if sweeps.repeats_lambda_fashion(table.sweep, table.sweep[label]):
            sentences.append(f"- {label}: the trials of lambda-fashion at lam = 1; see there.")
        elif comparison.trials:
            sentences.append(f"- {sentence}")
    if sentences and not table.complete:
        lines += ["Trials are missing: what follows is a first look, not a verdict.", ""]
    return [*lines, *sentences, ""]


def _rates(store: Store) -> list[str]:
    """The rates that were tried, with the held-out scores that chose among them."""
    try:
        rates = tuned_rates(store)
    except ConfigError as error:
        return [f"- {error}.", ""]
    tried = sorted(next(iter(rates.values())).scores)
    lines = [f"| held-out accuracy, % | {' | '.join(f'rate {rate:g}' for rate in tried)} | best |"]
    lines.append("| --- " * (len(tried) + 2) + "|")
    for label, choice in rates.items():
        cells = ("diverged" if (score := choice.scores[rate]) is None else f"{100 * score:.2f}" for rate in tried)
        lines.append(f"| {label} | {' | '.join(cells)} | {choice.rate:g} |")
    return [*lines, "", *(f"- {note}" for note in tuning_notes(rates)), ""]


def _row(row: ArmResult) -> str:
    scores = [100 * score for score in row.finite]
    diverged = f", {gone} diverged" if (gone := len(row.scores) - len(scores)) else ""
    mean = f"{statistics.fmean(scores):.2f}" if scores else "-"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    difference = points(row.comparison.difference) if row.comparison and row.comparison.n else ""
    ends = interval(row.comparison) if row.comparison else ""
    train = "" if (seen := train_accuracy(row)) is None else f"{100 * seen:.2f}"
    trials = f"{len(row.scores)}/{row.wanted}{diverged}"
    return f"| {row.arm.label} | {trials} | {train} | {mean}{spread} | {difference} | {ends} |"


def _cost(what: str, name: str) -> str:
    configs = sweep(name).all_configs()
    cpu, gpu = (costs.format_sum([hours(c) for c in configs]) for hours in (costs.cpu_hours, costs.gpu_hours))
    return f"| {what} | `{name}` | {len(configs)} | {cpu} | {gpu} |"


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def main(arguments: list[str]) -> int:
    wanted = files()
    if arguments == ["--check"]:
        stale = [name for name, content in wanted.items() if _read(DOCS / name) != content]
        print(f"docs/{', docs/'.join(stale)}: not what the trials say; run `make evidence`" if stale else "up to date")
        return int(bool(stale))
    for name, content in wanted.items():
        (DOCS / name).write_bytes(content)
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
