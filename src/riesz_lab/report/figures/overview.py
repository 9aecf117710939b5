"""All comparisons at a glance."""

from __future__ import annotations

from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.differences import INTERVALS, forest

MAX_PANELS = 8


def overview(evidence: Evidence) -> Figure | None:
    tables = [table for table in evidence.tables if any(one.n for one in table.comparisons.values())]
    if not tables:
        return None
    return Figure(
        name="overview",
        title="All comparisons at a glance",
        caption=f"{INTERVALS} Right of zero, the method has the higher score.",
        alt=f"Of {len(evidence.comparisons)} comparisons: {evidence.verdicts}.",
        panels=[forest(table) for table in tables[:MAX_PANELS]],
    )
