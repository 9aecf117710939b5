"""docs/evidence.md and its figures, computed from the trials in evidence/trials: no number is typed by hand.

python -m evidence.page            write them
python -m evidence.page --check    exit with 1 if what is written differs from what the trials say
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evidence import sweeps
from riesz_lab.errors import ConfigError
from riesz_lab.report.figure import Figure, Panel, Series
from riesz_lab.report.picture import draw
from riesz_lab.store import Store
from riesz_lab.sweeps import Row, Sweep, Table, results, tuning

ROOT = Path(__file__).parents[1]
TRIALS = ROOT / "evidence" / "trials"
DOCS = ROOT / "docs"

SWEEPS: tuple[Callable[[], Sweep], ...] = (
    sweeps.lambda_fashion,
    sweeps.lambda_mnist,
    sweeps.plain_sgd,
    sweeps.plain_sgd_matched,
    sweeps.regimes,
)


@dataclass(frozen=True)
class Claim:
    """A claim and the sweep that tests it.

    Attributes:
        claim: in one sentence.
        tested: how the test differs from the paper's experiment.
        sweep: what was run.
    """

    claim: str
    tested: str
    sweep: Callable[[], Sweep]


CLAIMS = (
    Claim(
        "Both metrics improve accuracy over SGD for a wide range of lam, on Fashion-MNIST.",
        "The paper's network, data, epochs and seeds; momentum 0.9 and weight decay 5e-4, which it does not print.",
        sweeps.lambda_fashion,
    ),
    Claim(
        "The same on MNIST.",
        "As above.",
        sweeps.lambda_mnist,
    ),
    Claim(
        "The same on Fashion-MNIST, if the paper used plain SGD.",
        "No momentum, no weight decay; 3 seeds.",
        sweeps.plain_sgd,
    ),
    Claim(
        "The gain comes from the metric and not from a longer step.",
        "The same trials, each method against plain SGD whose step along the mean is as long.",
        sweeps.plain_sgd_matched,
    ),
    Claim(
        "Small batches gain most.",
        "ResNet-20, 10,000 training images (JPEG copies), 12 epochs; the paper: ResNet-56, 50,000 images, 240 epochs.",
        sweeps.regimes,
    ),
)

NOT_TESTED = (
    ("CIFAR-10, ResNet-56 and VGG-16, SGD, Adam and LS, 240 epochs", "table-cifar"),
    ("PascalVOC segmentation", "voc"),
    ("Cityscapes synthesis with SPADE", "spade"),
)


def tables(trials: Path = TRIALS) -> dict[str, Table]:
    """The table of each sweep, by its name; the tuned one only when its rates are chosen."""
    store = Store(trials)
    by_name = {make().name: results(make(), store) for make in SWEEPS}
    sweep = sweeps.tuned_fashion()
    try:
        chosen = tuning.choices(sweep, tuning.Tuning(factors=sweeps.LR_FACTORS), store)
    except ConfigError:
        return by_name
    return by_name | {sweep.name: results(tuning.tuned(sweep, chosen), store)}


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    by_name = tables(trials)
    pictures = {}
    if figure := _lambda_figure([by_name["evidence-lambda-fashion"], by_name["evidence-lambda-mnist"]]):
        pictures["evidence-lambda.svg"] = draw(figure, "svg")
    if figure := _regime_figure(by_name["evidence-regimes"]):
        pictures["evidence-regimes.svg"] = draw(figure, "svg")
    return {"evidence.md": _page(by_name, trials, set(pictures)).encode(), **pictures}


def _page(by_name: dict[str, Table], trials: Path, pictures: set[str]) -> str:
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
        "| claim of the paper | what was run here | trials | verdicts |",
        "| --- | --- | --- | --- |",
    ]
    for claim in CLAIMS:
        table = by_name[claim.sweep().name]
        lines.append(f"| {claim.claim} | {claim.tested} | {_progress(table)} | {_verdicts(table)} |")
    lines += ["", "## Results", ""]
    for table in by_name.values():
        lines += _section(table, pictures)
    lines += _regularity(trials)
    lines += [
        "## Not tested here",
        "",
        "`riesz sweep NAME --dry-run` prints what each would cost on two cores and on a GPU.",
        "",
        *(f"- {what}: `riesz sweep {name}`" for what, name in NOT_TESTED),
        "",
        "## Repeat it",
        "",
        "`make reproduce ID=a570b30e31c1` trains a trial again and compares it with the stored one: bit for bit on a"
        " machine of the same kind, else within the spread of seeds. `make evidence` rewrites this page and the full"
        " report from the stored trials; it needs no data and trains nothing.",
        "",
    ]
    return "\n".join(lines)


def _summary(by_name: dict[str, Table], trials: Path) -> list[str]:
    """Five sentences."""
    planned = {config.id for table in by_name.values() for config in table.sweep.all_configs()}
    complete = {
        trial.config.id for table in by_name.values() for row in table.rows.values() for trial in row.trials.values()
    }
    decided = {name: table for name, table in by_name.items() if _is_complete(table)}
    verdicts = [c.verdict for table in decided.values() for c in table.comparisons.values()]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)) or "none yet"
    fashion = [c for c in by_name["evidence-lambda-fashion"].comparisons.values() if c.n]
    differences = [100 * c.difference for c in fashion]
    lead = "No pair of trials is complete yet."
    if fashion:
        lead = (
            "On Fashion-MNIST by the paper's protocol, the mean differences to SGD lie between"
            f" {min(differences):+.2f} and {max(differences):+.2f} points"
            f" ({min(c.n for c in fashion)} to {max(c.n for c in fashion)} pairs for each setting)."
        )
    hours = sum(_hours(path) for path in trials.glob("*/*/timing.jsonl"))
    return [
        f"{len(complete)} of {len(planned)} planned trials are complete, after {hours:.1f} hours of training.",
        f"{len(decided)} of {len(SWEEPS) + 1} sweeps are complete; their verdicts: {counted}.",
        lead,
        "Whether small batches gain most on CIFAR-10 is "
        + ("answered below." if "evidence-regimes" in decided else "not decided: its trials are not complete."),
        "The paper's networks at full scale, its segmentation and its image synthesis were not trained here.",
    ]


def _count(table: Table) -> tuple[int, int]:
    return sum(len(row.scores) for row in table.rows.values()), sum(row.wanted for row in table.rows.values())


def _is_complete(table: Table) -> bool:
    done, wanted = _count(table)
    return done == wanted


def _progress(table: Table) -> str:
    done, wanted = _count(table)
    return f"{done} of {wanted}"


def _verdicts(table: Table) -> str:
    verdicts = [comparison.verdict for comparison in table.comparisons.values()]
    if not _is_complete(table):
        return "not decided: trials are missing"
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def _hours(timing: Path) -> float:
    rows = [json.loads(line) for line in timing.read_text().splitlines()]
    seconds = sum(row["steps"] * row["step_ms"] / 1000 + (row.get("eval_seconds") or 0.0) for row in rows)
    return float(seconds) / 3600


def _section(table: Table, pictures: set[str]) -> list[str]:
    lines = [
        f"### {table.sweep.name.removeprefix('evidence-')}",
        "",
        f"{table.sweep.about[0].upper()}{table.sweep.about[1:]}.",
        "",
    ]
    picture = {"evidence-lambda-fashion": "evidence-lambda.svg", "evidence-regimes": "evidence-regimes.svg"}
    if (name := picture.get(table.sweep.name)) in pictures:
        lines += [f"![{table.sweep.about}]({name})", ""]
    lines += ["| arm | trials | mean ± sd, % | difference | 95% interval |", "| --- | --- | --- | --- | --- |"]
    lines += [_row(row) for row in table.rows.values()]
    lines.append("")
    if not _is_complete(table):
        lines += ["Trials are missing: what follows is a first look, not a verdict.", ""]
    lines += [f"- {sentence}" for sentence in table.sentences]
    return [*lines, ""]


def _row(row: Row) -> str:
    scores = [100 * score for score in row.scores.values() if score is not None]
    mean = f"{statistics.fmean(scores):.2f}" if scores else "-"
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    comparison = row.comparison
    difference = interval = ""
    if comparison is not None and comparison.n:
        difference = f"{100 * comparison.difference:+.2f}"
        if comparison.interval is not None:
            interval = f"{100 * comparison.interval[0]:+.2f} to {100 * comparison.interval[1]:+.2f}"
    return f"| {row.arm.label} | {len(row.scores)}/{row.wanted} | {mean}{spread} | {difference} | {interval} |"


def _regularity(trials: Path) -> list[str]:
    """Order and level along the output channels, by method."""
    by_method: dict[tuple[str, str], list[dict[str, float]]] = {}
    for file in sorted(trials.glob("*/*/regularity.json")):
        config = json.loads((file.parent / "config.json").read_text())
        for layer in json.loads(file.read_text()):
            if layer["direction"] == "output":
                by_method.setdefault((config["recipe"], config["metric"]), []).append(layer)
    if not by_method:
        return []
    lines = [
        "## Regularity of trained weights",
        "",
        "Along the output channels, over layers and seeds: *order* is the correlation of neighbouring filters beyond"
        " that of all pairs, which a Sobolev metric assumes; *level* is the correlation of all pairs, which re-weighted"
        " L2 assumes. In random order of the channels, order is zero on average; the last column counts layers in which"
        " p < 0.05 against random orders (5% are expected by chance).",
        "",
        "| recipe | metric | layers | mean order | mean level | p < 0.05 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (recipe, metric), layers in by_method.items():
        order, level = (statistics.fmean(layer[key] for layer in layers) for key in ("order", "level"))
        small = sum(layer["p"] < 0.05 for layer in layers)
        lines.append(f"| {recipe} | {metric} | {len(layers)} | {order:+.4f} | {level:+.4f} | {small} |")
    return [*lines, ""]


def _lambda_figure(tables: list[Table]) -> Figure | None:
    panels = []
    for table in tables:
        series = []
        for color, name in ((2, "ReweightedL2"), (1, "SobolevTilde")):
            rows = [(0.0, next(iter(table.rows.values())))]
            rows += [
                (float(row.arm.label.split("lam = ")[1].split(",")[0]), row)
                for row in table.rows.values()
                if row.arm.label.startswith(name)
            ]
            points = [(lam, [100 * s for s in row.scores.values() if s is not None]) for lam, row in rows]
            points = [(lam, scores) for lam, scores in points if scores]
            means = [statistics.fmean(scores) for _, scores in points]
            spreads = [statistics.stdev(scores) if len(scores) > 1 else 0.0 for _, scores in points]
            series.append(
                Series(
                    name=name,
                    x=[lam for lam, _ in points],
                    y=means,
                    low=[mean - spread for mean, spread in zip(means, spreads, strict=True)],
                    high=[mean + spread for mean, spread in zip(means, spreads, strict=True)],
                    color=color,
                )
            )
        if any(len(line.x) for line in series):
            title = table.sweep.name.removeprefix("evidence-lambda-")
            panels.append(Panel(title=title, x="lam (0 is SGD)", y="test accuracy in %", series=series))
    return Figure(name="lambda", title="Test accuracy by lam", panels=panels) if panels else None


def _regime_figure(table: Table) -> Figure | None:
    """Difference to SGD at the same batch size and rate, a panel per batch size."""
    panels = []
    for size in ("b8", "b128"):
        series = []
        for color, name in ((2, "ReweightedL2"), (1, "SobolevTilde")):
            rows = [
                (row.arm.label.split(" lr ")[1].split()[0], row.comparison)
                for row in table.rows.values()
                if row.arm.label.startswith(f"{size} ") and name in row.arm.label
            ]
            known = [(f"lr {rate}", c) for rate, c in rows if c is not None and c.n and c.interval is not None]
            series.append(
                Series(
                    name=name,
                    x=[label for label, _ in known],
                    y=[100 * c.difference for _, c in known],
                    low=[100 * c.interval[0] for _, c in known if c.interval],
                    high=[100 * c.interval[1] for _, c in known if c.interval],
                    kind="points",
                    color=color,
                    dash=color,
                )
            )
        if any(len(points.x) for points in series):
            panels.append(
                Panel(title=f"batch {size[1:]}", x="", y="difference to SGD, points", series=series, zero=True)
            )
    return Figure(name="regimes", title="Difference to SGD", panels=panels) if panels else None


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
