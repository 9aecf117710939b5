"""The report of a store, a pure function of stored files: the same trials give the same page.

Results come first: a table per experiment, with its picture for a user's own function. The paper's tables and figures
follow where recipes of the lab were trained; a page about somebody's own functions has none of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from riesz_lab.experiments import EXPERIMENTS, Result
from riesz_lab.experiments.arm import method
from riesz_lab.report import sections
from riesz_lab.report.benchmarks import benchmark_table
from riesz_lab.report.content import Cell, Finding, Page, Section, Table, number
from riesz_lab.report.data import ReportData
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.figures.comparison import arm_colors, pairs, verdicts
from riesz_lab.report.figures.spectra import rises, rises_beyond_plain, setting_with_updates
from riesz_lab.report.figures.tuning import tuning_figures
from riesz_lab.report.labels import differing_scale, scale
from riesz_lab.report.paper import paper_tables, published
from riesz_lab.report.result_page import NO_PAIRS, by_arm, curve_figure
from riesz_lab.report.table import STATISTICS, reasons, result_table, statistics_table
from riesz_lab.statistics import Comparison
from riesz_lab.statistics.verdict import Verdict, format_difference
from riesz_lab.utils.amounts import count

Blocks = list[Figure | Table | str]

MAX_ARMS = 8
RISES = {Verdict.BETTER: "coarse to fine", Verdict.WORSE: "fine to coarse", Verdict.SAME: "no change"}
RISES_BEYOND_PLAIN = {Verdict.BETTER: "rises more", Verdict.WORSE: "rises less", Verdict.SAME: "rises as much"}
IN_OTHER_SECTIONS = ("overview", "spectra", "speed")


def build(data: ReportData, home: Path | None = None, title: str = "Channel-directed gradients: report") -> Page:
    """The report. Links to trials start at `home`, the folder of the page; there are none if it is None."""
    recipes = bool(data.of_recipes or data.settings or not data.results)
    return Page(
        title=title,
        lead=_lead(data),
        sections=[
            _summary(data),
            *(_own(data, found, number) for number, found in enumerate(data.of_functions, 1)),
            *([_comparisons(data)] if data.of_recipes else []),
            *([paper_tables(data), *_figure_sections(data), _spectra(data), _layers(data)] if recipes else []),
            *([_speed(data)] if recipes or data.benchmarks else []),
            sections.environments(data.store.trials),
            sections.settings(data.store.trials),
            sections.trials(data.store, home),
        ],
    )


def _lead(data: ReportData) -> list[str]:
    store = data.store
    counts = Counter(trial.status for trial in store.trials)
    states = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    lines = [f"{count(len(store.trials), 'trial')} ({states})." if store.trials else "No trial could be read."]
    if any(found.verdicts for found in data.results):
        lines.append(verdicts(data.results))
    if store.broken:
        broken = count(len(store.broken), "directory", "directories")
        lines.append(f"{broken} with the files of a trial cannot be read; see below.")
    return lines


def _summary(data: ReportData) -> Section:
    """How many arms have each verdict, per experiment."""
    rows: list[list[Cell | str]] = []
    for found in data.results:
        counts = Counter(found.verdicts.values())
        counted = [number(counts[verdict] or None) for verdict in Verdict]
        rows.append([found.experiment.name, found.experiment.question, *counted, number(len(found.missing) or None)])
    table = Table(
        caption="Arms against their baselines, by verdict",
        head=("experiment", "question", *map(str, Verdict), "trials missing"),
        rows=rows,
        numbers=frozenset(range(2, 7)),
        cards=True,
    )
    overview = FIGURES["overview"].make(data)
    text = (
        "Scores are those after the last epoch. Trials are paired by seed: the same initial weights, the same order of"
        " the data. Same: no difference larger than the margin. Undecided: neither a difference nor its absence is"
        " shown.",
    )
    missing = [f"{path.name} is left out: {why}" for path, why in data.broken.items()]
    if not any(each.judgement and each.judgement.judged.n for found in data.results for each in found.arms.values()):
        missing.append(NO_PAIRS)
    blocks: Blocks = [*([table] if rows else []), *([overview] if overview else [])]
    return Section(name="summary", title="Summary", text=text if rows else (), blocks=blocks, missing=missing)


def _own(data: ReportData, found: Result, place: int) -> Section:
    """A user's function: the table, the pairs, and what is behind them."""
    colors = arm_colors(found)
    layers = sections.layer_table(by_arm(found), data.files, "")
    figures = [pairs(found, colors), *tuning_figures(found, colors), curve_figure(found, data.files, colors)]
    # Experiments have figures of equal names.
    drawn = [replace(figure, name=f"{figure.name}-{place}") for figure in figures if figure]
    # The section's title says it.
    table = replace(result_table(found), quiet=True)
    blocks: Blocks = [table, *reasons(found), *drawn, *([layers] if layers else [])]
    first, *others = (next(iter(each.arms.values())).arm.config for each in (found, *data.of_functions))
    apart = differing_scale(first, others)
    title = f"{found.experiment.name}{apart and f' ({apart})'}: {found.experiment.question}"
    return Section(name=f"own-{place}", title=title, blocks=blocks)


def _comparisons(data: ReportData) -> Section:
    """The tables of every experiment with recipes of the lab."""
    blocks: Blocks = []
    for found in data.of_recipes:
        behind = statistics_table(found)
        blocks += [result_table(found), *reasons(found)]
        blocks += [replace(behind, note="", folded=True)] if len(behind.head) > 2 else []
    commands = {each.id: name for name, each in EXPERIMENTS.items()} | dict(data.commands)
    missing = [line for found in data.asked if (line := _incomplete(found, commands.get(found.experiment.id, "")))]
    text = (f"Statistics of each experiment fold out below its table. {STATISTICS}",)
    return Section(name="comparisons", title="Comparisons in full", text=text, blocks=blocks, missing=missing)


def _incomplete(found: Result, command: str) -> str:
    """What is missing, and what `riesz sweep` calls it if that is known; empty if nothing is missing."""
    lacking = [(label, n) for label, each in found.arms.items() if (n := each.wanted - len(each.trials)) > 0]
    if not lacking:
        return ""
    arms = ", ".join(f"{label} ({n})" for label, n in lacking[:MAX_ARMS])
    more = f" and {len(lacking) - MAX_ARMS} more" if len(lacking) > MAX_ARMS else ""
    missing = f"{found.experiment.name}: {count(sum(n for _, n in lacking), 'trial')} to be completed: {arms}{more}."
    return f"{missing} Run: riesz sweep {command}" if command else missing


def _figure_sections(data: ReportData) -> list[Section]:
    """A section per figure that has data, then the list of the others."""
    drawn, missing = [], []
    for name, entry in FIGURES.items():
        if name in IN_OTHER_SECTIONS:
            continue
        title = f"{f'Figure {entry.number}: ' if entry.number else ''}{entry.about[0].upper()}{entry.about[1:]}"
        if (figure := entry.make(data)) is None:
            missing.append(f"{title}. It needs {entry.needs}")
        else:
            drawn.append(Section(name=name, title=title, blocks=[figure]))
    if missing:
        drawn.append(Section(name="without", title="Figures without data", missing=missing))
    return drawn


def _spectra(data: ReportData) -> Section:
    entry = FIGURES["spectra"]
    name, title = "spectra", "Update spectra over epochs: from coarse to fine?"
    if (figure := entry.make(data)) is None:
        return Section(name=name, title=title, missing=(f"No data for this figure. It needs {entry.needs}",))
    groups = {
        "Mean frequency of the last epoch's updates against the first's": (rises(data), RISES),
        "Its rise against that of the plain optimizer": (rises_beyond_plain(data), RISES_BEYOND_PLAIN),
    }
    findings = [
        Finding(words.get(one.verdict, str(one.verdict)), method, _measured(one), group)
        for group, (comparisons, words) in groups.items()
        for method, one in comparisons.items()
    ]
    text = (
        "The paper says that Sobolev gradient flows move in coarse scales first and in fine ones later. If so, the"
        " mean frequency of the updates along the output rises over the epochs, and more so than with the plain"
        " optimizer. Verdicts are corrected for the number of methods (Holm)."
    )
    return Section(name=name, title=title, text=(text,), findings=findings, blocks=[figure])


def _measured(one: Comparison) -> str:
    return f"{format_difference(one.difference, one.interval)}, {count(one.n, 'pair')}." if one.n else "no pair."


def _layers(data: ReportData) -> Section:
    base, methods = setting_with_updates(data) or (None, {})
    table = sections.layer_table(methods, data.files, scale(base) if base else "")
    missing = () if table else ("No trial stored what its epochs did to the weights. Run: riesz demo",)
    return Section(name="layers", title="Layer by layer", blocks=[table] if table else [], missing=missing)


def _speed(data: ReportData) -> Section:
    """The time of a step in these trials, and the benchmarks."""
    rows: list[Sequence[Cell | str]] = []
    for base, methods in data.settings.items():
        plain = dict.fromkeys(methods, method(base))
        rows += [[scale(base), *row] for row in sections.step_times(methods, plain, data.files)]
    figure = FIGURES["speed"].make(data)
    blocks: Blocks = [figure] if figure else []
    if rows:
        head = ("setting", "method", "epochs", "ms a step, median", "relative to the plain optimizer")
        caption = "Time of a training step in these trials"
        blocks.append(Table(caption=caption, head=head, rows=rows, numbers=frozenset((2, 3, 4)), note=sections.CLOCK))
    if data.benchmarks:
        blocks.append(benchmark_table(data.benchmarks))
    missing = "No benchmark results were given. Measure with make bench, then add the folder: benchmarks/results"
    paper = published()["speed"]
    text = (
        f"The paper's SobolevTilde added {paper['sobolev-tilde added, ms a step, batch 128']} ms to a step at batch"
        f" size 128, {100 * paper['share of training time']:.0f}% of the training time; ReweightedL2 a negligible time."
    )
    return Section(
        name="speed", title="Speed", text=(text,), blocks=blocks, missing=() if data.benchmarks else (missing,)
    )
