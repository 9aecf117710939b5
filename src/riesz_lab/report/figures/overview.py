"""All comparisons at a glance."""

from __future__ import annotations

from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.figures.differences import INTERVALS, forest

MOST_PANELS = 8


def overview(evidence: Evidence) -> Figure | None:
    tables = [table for table in evidence.tables if any(found.n for found in table.comparisons.values())]
    if not tables:
        return None
    found = [one for table in tables for one in table.comparisons.values() if one.n]
    verdicts = {kind: sum(one.verdict == kind for one in found) for kind in dict.fromkeys(one.verdict for one in found)}
    return Figure(
        name="overview",
        title="All comparisons at a glance",
        caption=f"{INTERVALS} Right of zero, the method has the higher score.",
        alt=f"Of {len(found)} comparisons: " + ", ".join(f"{count} {kind}" for kind, count in verdicts.items()) + ".",
        panels=[forest(table) for table in tables[:MOST_PANELS]],
    )
