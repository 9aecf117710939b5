"""Stored comparisons of users' functions, tuned or judged at every look, as `riesz compare` answered them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from riesz_lab.report.compare_page import rate_figures
from riesz_lab.report.content import Finding, Section
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figure import Figure
from riesz_lab.store.comparison import ComparisonRecord

TEXT = (
    "Each arm has its own best settings if they were tuned; intervals of a comparison that ran until it was sure hold"
    " at every look. The trials of these comparisons are in no other table."
)


def user_functions(evidence: ReportData) -> list[Section]:
    """A conclusion per arm, and the rate curves; no section if there is no such comparison."""
    shown = {path: record for path, record in evidence.records.items() if not record.has_table}
    missing = [f"{path.name} is left out: {why}" for path, why in evidence.broken_records.items()]
    if not shown and not missing:
        return []
    return [
        Section(
            name="own",
            title="Your own functions",
            text=(TEXT,) if shown else (),
            findings=[finding for record in shown.values() for finding in _findings(record)],
            blocks=[figure for path, record in shown.items() for figure in _figures(path, record)],
            missing=missing,
        )
    ]


def _findings(record: ComparisonRecord) -> Iterator[Finding]:
    compared = [arm for arm in record.arms if arm.baseline is not None]
    about = " ".join(record.warnings + record.notes)
    for arm, answer in zip(compared, record.answers, strict=False):
        yield Finding(arm.verdict or "no claim", arm.label, answer, record.function, about)


def _figures(path: Path, record: ComparisonRecord) -> Iterator[Figure]:
    for figure in rate_figures(record, {label: index for index, label in enumerate(record.best)}):
        name = f"{figure.name}-{path.stem.removeprefix('comparison-')}"
        yield replace(figure, name=name, title=f"{record.function}: {figure.title}")
