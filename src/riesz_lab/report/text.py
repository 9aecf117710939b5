"""Content as Markdown, and its tables as CSV."""

from __future__ import annotations

import csv
import io
import re

from riesz_lab.report.content import Page, Table
from riesz_lab.report.evidence import Evidence
from riesz_lab.report.figure import Figure
from riesz_lab.report.labels import scale


def markdown(page: Page) -> str:
    """Everything but the drawings: of a figure, its caption and what it says."""
    lines = [f"# {escaped(page.title)}", "", *(f"{escaped(line)}\n" for line in page.lead)]
    for section in page.sections:
        lines += [f"## {escaped(section.title)}", "", *(f"{escaped(line)}\n" for line in section.text)]
        for group in section.groups():
            if group.title:
                lines += [f"**{escaped(group.title)}** {escaped(group.about)}".rstrip(), ""]
            for finding in group.findings:
                told = f"{escaped(finding.subject)}: {escaped(finding.sentence)}"
                lines.append(f"- **{escaped(finding.verdict)}** - {told}")
            lines.append("")
        for block in section.blocks:
            lines += _figure(block) if isinstance(block, Figure) else _table(block)
        lines += [f"> {escaped(line)}\n" for line in section.missing]
    return "\n".join(lines).rstrip() + "\n"


def _figure(figure: Figure) -> list[str]:
    return [f"*{escaped(figure.title)}.* {escaped(f'{figure.caption} {figure.alt}'.strip())}", ""]


def _table(table: Table) -> list[str]:
    rule = ["---:" if index in table.numbers else "---" for index in range(len(table.head))]
    rows = [[escaped(cell.text) for cell in row] for row in table.cells()]
    lines = [f"**{escaped(table.caption)}**", ""]
    lines += [f"| {' | '.join(row)} |" for row in ([escaped(name) for name in table.head], rule, *rows)]
    return [*lines, "", *([escaped(table.note), ""] if table.note else [])]


def escaped(text: str) -> str:
    """Text that is text and nothing else in Markdown, HTML included."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", flat)


COLUMNS = (
    "sweep", "scale", "method", "baseline", "score", "trials", "wanted", "pairs", "mean", "baseline_mean", "difference",
    "low", "high", "p", "p_holm", "wins", "ties", "losses", "error_reduced", "variance_ratio", "collapsed",
    "baseline_collapsed", "verdict", "sentence",
)  # fmt: skip


def comparisons_csv(evidence: Evidence) -> str:
    """One row per comparison, with plain numbers: what a notebook wants."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in evidence.tables:
        for label, found in table.comparisons.items():
            row = table.rows[label]
            low, high = found.interval or (None, None)
            values = (
                table.sweep.name, scale(row.arm.config), label, row.arm.baseline, table.score, len(row.trials),
                row.wanted, found.n, found.method_mean, found.baseline_mean, found.difference, low, high, found.p,
                found.p_holm, found.wins, found.ties, found.losses, found.error_reduced, found.variance_ratio,
                found.collapsed[1], found.collapsed[0], found.verdict, found.sentence,
            )  # fmt: skip
            writer.writerow([_harmless(value) for value in values])
    return buffer.getvalue()


def _harmless(value: object) -> object:
    # A spreadsheet takes text that begins so for a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
