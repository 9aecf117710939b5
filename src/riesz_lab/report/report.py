"""A report is a pure function of stored files: the same trials give the same page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from riesz_lab.errors import ConfigError, LabError
from riesz_lab.report import appendix as behind
from riesz_lab.report import benchmarks
from riesz_lab.report.content import Finding, Page, Section
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.figures.spectra import coarse_to_fine
from riesz_lab.report.published import paper_tables
from riesz_lab.report.summary import comparisons, summary
from riesz_lab.store import Store


def read(*folders: Path | str, margin: float = 0.002) -> Evidence:
    """Everything below some folders: trials, and the CSV files of benchmarks."""
    if not 0 < margin < float("inf"):
        raise ConfigError(f"margin={margin!r} cannot be; allowed: above 0, in the unit of the scores")
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise LabError(f"{path} is not a folder of trials or benchmark results")
    measured = [one for path in paths for one in benchmarks.read(path)]
    evidence = Evidence(Store(*paths), measured, margin)
    if not evidence.store.trials and not evidence.store.broken and not measured:
        told = ", ".join(str(path) for path in paths)
        raise LabError(f"no trial is stored below {told}; trials are made by riesz demo, riesz train, riesz sweep")
    return evidence


def build(evidence: Evidence, home: Path | None = None, title: str = "Channel-directed gradients: report") -> Page:
    """The report.

    Args:
        evidence: what is stored.
        home: the folder the page will lie in; links to trials start there.
        title: of the page.
    """
    return Page(
        title=title,
        lead=_lead(evidence),
        sections=[
            summary(evidence),
            comparisons(evidence),
            paper_tables(evidence),
            *_figure_sections(evidence),
            _spectra(evidence),
            behind.layers(evidence),
            behind.speed(evidence),
            behind.environments(evidence),
            behind.settings(evidence),
            behind.trials(evidence, home),
        ],
    )


def _lead(evidence: Evidence) -> list[str]:
    store = evidence.store
    states = Counter(trial.status for trial in store.trials)
    told = ", ".join(f"{count} {status}" for status, count in sorted(states.items()))
    counts = Counter(found.verdict for _, _, found in evidence.comparisons)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    lines = [f"{len(store.trials):,} trials ({told})." if store.trials else "No trial could be read."]
    if counts:
        lines.append(f"{counts.total()} comparisons of a method with its baseline: {verdicts}.")
    if store.broken:
        lines.append(f"{len(store.broken)} directories look like trials and cannot be read; they are named below.")
    return lines


def _figure_sections(evidence: Evidence) -> list[Section]:
    """One per figure that has data, then the list of those that have none."""
    sections, missing = [], []
    for name, entry in FIGURES.items():
        if name in ("overview", "spectra", "speed"):
            continue  # shown where they are spoken of
        title = f"{f'Figure {entry.number}: ' if entry.number else ''}{entry.about[0].upper()}{entry.about[1:]}"
        if (figure := entry.make(evidence)) is None:
            missing.append(f"{title}. It needs {entry.needs}")
        else:
            sections.append(Section(name=name, title=title, blocks=[figure]))
    if missing:
        sections.append(Section(name="without", title="Figures without data", missing=missing))
    return sections


def _spectra(evidence: Evidence) -> Section:
    figure = FIGURES["spectra"].make(evidence)
    names = {"better": "coarse to fine", "worse": "fine to coarse", "no difference": "no change"}
    findings = [
        Finding(
            names.get(found.verdict, found.verdict),
            name,
            found.sentence.replace("better by", "higher by").replace("worse by", "lower by") + ".",
            "Mean frequency of the last epoch's update against the first's",
        )
        for name, found in coarse_to_fine(evidence).items()
    ]
    return Section(
        name="spectra",
        title="Update spectra over epochs: from coarse to fine?",
        text=(
            "The paper says that Sobolev gradient flows move in coarse scales first and in fine ones later. If so, the"
            " mean frequency of the updates along the output rises over the epochs, and more so than with the plain"
            " optimizer.",
        )
        if figure
        else (),
        findings=findings,
        blocks=[figure] if figure else [],
        missing=() if figure else (f"No data for this figure. It needs {FIGURES['spectra'].needs}",),
    )
