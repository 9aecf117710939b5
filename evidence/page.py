"""docs/evidence.md and its figures, computed from the trials in evidence/trials: no number is typed by hand.

python -m evidence.page            write them
python -m evidence.page --check    exit with 1 if what is written differs from what the trials say
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from evidence import TRIALS, controls, figures, regularity, small_batches, sweeps
from evidence.claims import CLAIMS, NOT_TESTED, REGULARITY, Claim
from evidence.tables import MISSING, is_decided, planned, select, tables, tuned_rates, why_not_tuned
from evidence.wording import count_verdicts, interval, metrics, points
from riesz_lab.errors import ConfigError
from riesz_lab.report.comparison_view import tuning_notes
from riesz_lab.report.figure import Figure
from riesz_lab.report.picture import draw
from riesz_lab.store import Store
from riesz_lab.sweeps import ArmResult, SweepResult, costs, results, sweep
from riesz_lab.sweeps.paper import CHANCE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

PAPER_PROTOCOL = {"Fashion-MNIST": sweeps.lambda_fashion, "MNIST": sweeps.lambda_mnist}


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    by_name = _tables(trials)
    measured = regularity.measure(_at_one_rate(by_name))
    drawn = figures.figures(by_name, measured)
    pictures = {name: draw(figure, "svg") for name, figure in drawn.items()}
    return {"evidence.md": _page(by_name, trials, measured, drawn).encode(), **pictures}


def text(trials: Path = TRIALS) -> str:
    """The page alone."""
    by_name = _tables(trials)
    return _page(by_name, trials, regularity.measure(_at_one_rate(by_name)), {})


def _tables(trials: Path) -> dict[str, SweepResult]:
    """The tables of all sweeps, and of the controls where something differs."""
    by_name, store = tables(trials), Store(trials)
    return by_name | {one.name: results(one, store) for one in controls.all_controls(by_name)}


def _page(
    by_name: dict[str, SweepResult], trials: Path, measured: dict[str, regularity.Arms], drawn: dict[str, Figure]
) -> str:
    store = Store(trials)
    lines = [
        "# Evidence",
        "",
        *_summary(by_name, trials),
        "",
        "Everything on this page is computed from the raw trials in `evidence/trials` by `make evidence`. Questions,"
        " arms, seeds, tests and the stopping rule were fixed before the trials:"
        " [the protocol](../evidence/PROTOCOL.md), which lists what was changed since, when"
        " and why. A verdict counts when all trials of its sweep are complete.",
        "",
        "## Claims",
        "",
        "Differences to SGD in points of test accuracy after the last epoch, with 95% intervals. Verdicts are corrected"
        " for all comparisons of a sweep; intervals, and what one test alone detects with 80% power, are not, so an"
        " interval may exclude zero where the verdict is undecided.",
        "",
        "| claim of the paper, and *what was run here* | trials | verdict |",
        "| --- | --- | --- |",
        *(_claim(claim, by_name, store) for claim in CLAIMS),
        *_controls(by_name),
        _regularity(by_name, regularity.verdict(regularity.compare(measured))),
        "",
        *figures.as_markdown(figures.DIFFERENCES, drawn),
        "## Results",
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


def _summary(by_name: dict[str, SweepResult], trials: Path) -> list[str]:
    """Five sentences."""
    ids, unknown = planned(by_name)
    complete = {t.config.id: t for t in Store(trials).trials if t.result is not None and t.config.id in ids}
    scores = [trial.score() if trial.status == "finished" else None for trial in complete.values()]
    failed = sum(score is None or score <= CHANCE for score in scores)
    hours = sum(_hours(path) for path in trials.glob("*/*/timing.jsonl"))
    run = _at_one_rate(by_name)
    decided = list(filter(is_decided, run))
    rows = [row for table in decided for row in metrics(table)]
    small = "Whether small batches gain most on CIFAR-10 is not decided: its trials are not complete."
    if is_decided(by_name["evidence-regimes"]):
        small = small_batches.in_short(by_name["evidence-regimes"])
    return [
        _lead(by_name),
        small,
        f"In all complete sweeps that compare with SGD at the same rate ({len(decided)} of {len(run)}),"
        f" {count_verdicts(rows)}{_against_longer_steps(by_name['evidence-plain-sgd-matched'])}.",
        f"{len(complete)} of {len(ids) + unknown} planned trials are complete, after {hours:.1f} hours of training;"
        f" {failed} of them diverged or collapsed.",
        "The paper's networks at full scale, its segmentation and its image synthesis were not trained here.",
    ]


def _lead(by_name: dict[str, SweepResult]) -> str:
    """On the one experiment that was run as the paper did, for each of its datasets."""
    run = [(data, by_name[make().name]) for data, make in PAPER_PROTOCOL.items()]
    said = [sentence for data, table in run if (sentence := _on(data, table))]
    return f"By the paper's protocol, {'; '.join(said)}." if said else "No pair of trials is complete yet."


def _on(data: str, table: SweepResult) -> str:
    """Verdicts, or that there are none yet, and the range of the differences; empty without a pair."""
    rows = list(metrics(table))
    seen = [row.comparison for row in rows if row.comparison and row.comparison.n]
    if not seen:
        return ""
    differences, pairs = [c.difference for c in seen], [c.n for c in seen]
    verdicts, look = (count_verdicts(rows), "") if is_decided(table) else ("nothing is decided yet", "a first look: ")
    number = " to ".join(map(str, sorted({min(pairs), max(pairs)})))
    return (
        f"on {data} {verdicts} ({look}mean differences to SGD from {points(min(differences))} to"
        f" {points(max(differences))} points, {number} pairs each)"
    )


def _against_longer_steps(table: SweepResult) -> str:
    """The end of a sentence: what the metrics are worth beside a larger rate, once it is decided."""
    if not is_decided(table):
        return ""
    verdicts = count_verdicts(metrics(table))
    return f"; against plain SGD at a larger rate, whose step along the mean is about as long as theirs, {verdicts}"


def _count(table: SweepResult) -> tuple[int, int]:
    return sum(len(row.scores) for row in table.rows.values()), sum(row.wanted for row in table.rows.values())


def _hours(timing: Path) -> float:
    rows = [json.loads(line) for line in timing.read_text().splitlines()]
    seconds = sum(row["steps"] * (row["step_ms"] or 0.0) / 1000 + (row.get("eval_seconds") or 0.0) for row in rows)
    return float(seconds) / 3600


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
        done, wanted = _count(controlled)
        verdict = f"not decided: {MISSING}"
        if is_decided(controlled):
            verdict = _lines(controls.conclude(table, controlled))
        asked = f"Not in the paper: where {name.removeprefix('evidence-')} differs, is it more than a longer step?"
        tested = "The norm of the gradient kept, against SGD; the channels in random order, against the true one."
        yield f"| {asked} *{tested}* | {done} of {wanted} | {verdict} |"


def _at_one_rate(by_name: dict[str, SweepResult]) -> list[SweepResult]:
    """The sweeps of questions 1 and 3, in which metrics meet SGD at the same rate."""
    return select(by_name, sweeps.lambda_fashion, sweeps.lambda_mnist, sweeps.plain_sgd, sweeps.regimes)


def _regularity(by_name: dict[str, SweepResult], seen: str) -> str:
    run = _at_one_rate(by_name)
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
    lines += ["| arm | trials | mean ± sd, % | difference | 95% interval |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(row) for row in table.rows.values()]
    lines.append("")
    if not table.complete:
        lines += ["Trials are missing: what follows is a first look, not a verdict.", ""]
    compared = zip(table.comparisons.values(), table.sentences, strict=True)
    lines += [f"- {sentence}" for comparison, sentence in compared if comparison.trials]
    return [*lines, ""]


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
    return f"| {row.arm.label} | {len(row.scores)}/{row.wanted}{diverged} | {mean}{spread} | {difference} | {ends} |"


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
