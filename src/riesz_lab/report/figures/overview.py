"""All comparisons at a glance."""

from __future__ import annotations

from collections import Counter

from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.differences import INTERVALS, forest

MOST_PANELS = 8


def overview(evidence: Evidence) -> Figure | None:
    tables = [table for table in evidence.tables if any(found.n for found in table.comparisons.values())]
    if not tables:
        return None
    verdicts = Counter(one.verdict for _, _, one in evidence.comparisons)
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return Figure(
        name="overview",
        title="All comparisons at a glance",
        caption=f"{INTERVALS} Right of zero, the method has the higher score.",
        alt=f"Of {verdicts.total()} comparisons: {told}.",
        panels=[forest(table) for table in tables[:MOST_PANELS]],
    )
