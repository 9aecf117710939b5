"""A report is a pure function of stored files: the same trials give the same page."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from riesz_lab.config import parse_metric
from riesz_lab.errors import ConfigError, LabError
from riesz_lab.report import appendix, benchmarks
from riesz_lab.report.content import Finding, Page, Section
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.figures.spectra import rises, rises_beyond_plain
from riesz_lab.report.published import paper_tables
from riesz_lab.report.summary import comparisons, summary
from riesz_lab.report.user_functions import user_functions
from riesz_lab.statistics.verdict import sentence
from riesz_lab.store import MADE_BY, Store
from riesz_lab.store.comparison import read_records
from riesz_lab.sweeps import sweep
from riesz_lab.utils.amounts import count

HIGHER = {"better": "higher", "worse": "lower"}
RISES = {"better": "coarse to fine", "worse": "fine to coarse", "no difference": "no change"}
RISES_BEYOND_PLAIN = {"better": "rises more", "worse": "rises less", "no difference": "rises as much"}


def read(*folders: Path | str, margin: float = 0.002, sweeps: Iterable[str] = ()) -> ReportData:
    """Everything below some folders: trials, and the CSV files of benchmarks.

    Args:
        folders: where to look.
        margin: the largest difference that does not matter, for trials of no sweep.
        sweeps: names of sweeps to compare as they define, built-in or "package.module:function".
    """
    if not 0 < margin < float("inf"):
        raise ConfigError(f"expected margin above 0, in the unit of the scores, got {margin!r}")
    given = {name: sweep(name) for name in sweeps}
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            kind = "which is a file" if path.exists() else f"which does not exist; {MADE_BY}"
            raise LabError(f"expected a folder of trials or benchmark results, got {path}, {kind}")
    measurements = [measurement for path in paths for measurement in benchmarks.read(path)]
    records = read_records(*paths)
    evidence = ReportData(_with_known_metrics(Store(*paths)), measurements, margin, *records, sweeps=given)
    if not evidence.store.trials and not evidence.store.broken and not measurements:
        raise LabError(f"no trial is stored below {', '.join(map(str, paths))}; {MADE_BY}")
    return evidence


def _with_known_metrics(store: Store) -> Store:
    """Trials of a metric that this version does not know are broken: they cannot be named or compared."""
    for trial in store.trials:
        try:
            parse_metric(trial.config.metric)
        except ConfigError as error:
            store.broken[trial.path] = str(error)
    store.trials = [trial for trial in store.trials if trial.path not in store.broken]
    return store


def build(evidence: ReportData, home: Path | None = None, title: str = "Channel-directed gradients: report") -> Page:
    """The report. Links to trials start at `home`, the folder of the page; there are none if it is None."""
    return Page(
        title=title,
        lead=_lead(evidence),
        sections=[
            summary(evidence),
            *user_functions(evidence),
            comparisons(evidence),
            paper_tables(evidence),
            *_figure_sections(evidence),
            _spectra(evidence),
            appendix.layers(evidence),
            appendix.speed(evidence),
            appendix.environments(evidence),
            appendix.settings(evidence),
            appendix.trials(evidence, home),
        ],
    )


def _lead(evidence: ReportData) -> list[str]:
    store = evidence.store
    counts = Counter(trial.status for trial in store.trials)
    states = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    lines = [f"{count(len(store.trials), 'trial')} ({states})." if store.trials else "No trial could be read."]
    if evidence.comparisons:
        compared = count(len(evidence.comparisons), "comparison")
        lines.append(f"{compared} of a method with its baseline: {evidence.verdicts}.")
    if store.broken:
        broken = count(len(store.broken), "directory", "directories")
        lines.append(f"{broken} with the files of a trial cannot be read; see below.")
    return lines


def _figure_sections(evidence: ReportData) -> list[Section]:
    """A section per figure that has data, then the list of the others."""
    sections, missing = [], []
    for name, entry in FIGURES.items():
        if name in ("overview", "spectra", "speed"):
            continue  # part of other sections
        title = f"{f'Figure {entry.number}: ' if entry.number else ''}{entry.about[0].upper()}{entry.about[1:]}"
        if (figure := entry.make(evidence)) is None:
            missing.append(f"{title}. It needs {entry.needs}")
        else:
            sections.append(Section(name=name, title=title, blocks=[figure]))
    if missing:
        sections.append(Section(name="without", title="Figures without data", missing=missing))
    return sections


def _spectra(evidence: ReportData) -> Section:
    entry = FIGURES["spectra"]
    name, title = "spectra", "Update spectra over epochs: from coarse to fine?"
    if (figure := entry.make(evidence)) is None:
        return Section(name=name, title=title, missing=(f"No data for this figure. It needs {entry.needs}",))
    groups = {
        "Mean frequency of the last epoch's updates against the first's": (rises(evidence), RISES),
        "Its rise against that of the plain optimizer": (rises_beyond_plain(evidence), RISES_BEYOND_PLAIN),
    }
    findings = [
        Finding(words.get(comparison.verdict, comparison.verdict), method, f"{sentence(comparison, HIGHER)}.", group)
        for group, (comparisons, words) in groups.items()
        for method, comparison in comparisons.items()
    ]
    text = (
        "The paper says that Sobolev gradient flows move in coarse scales first and in fine ones later. If so, the"
        " mean frequency of the updates along the output rises over the epochs, and more so than with the plain"
        " optimizer."
    )
    return Section(name=name, title=title, text=(text,), findings=findings, blocks=[figure])
