"""Content as Markdown."""

from __future__ import annotations

import re

from riesz_lab.report.content import Page, Table
from riesz_lab.report.figure import Figure


def markdown(page: Page) -> str:
    """Everything but the drawings: of a figure, its caption and description."""
    lines = [f"# {escape(page.title)}", "", *(f"{escape(line)}\n" for line in page.lead)]
    for section in page.sections:
        lines += [f"## {escape(section.title)}", "", *(f"{escape(line)}\n" for line in section.text)]
        for group in section.groups():
            if group.title:
                lines += [f"**{escape(group.title)}** {escape(group.about)}".rstrip(), ""]
            for finding in group.findings:
                lines.append(f"- **{escape(finding.verdict)}** - {escape(finding.subject)}: {escape(finding.sentence)}")
            lines.append("")
        for block in section.blocks:
            lines += _figure(block) if isinstance(block, Figure) else _table(block)
        lines += [f"> {escape(line)}\n" for line in section.missing]
    return "\n".join(lines).rstrip() + "\n"


def _figure(figure: Figure) -> list[str]:
    return [f"*{escape(figure.title)}.* {escape(f'{figure.caption} {figure.alt}'.strip())}", ""]


def _table(table: Table) -> list[str]:
    rule = ["---:" if index in table.numbers else "---" for index in range(len(table.head))]
    rows = [[escape(cell.text) for cell in row] for row in table.cells()]
    lines = [f"**{escape(table.caption)}**", ""]
    lines += [f"| {' | '.join(row)} |" for row in ([escape(name) for name in table.head], rule, *rows)]
    return [*lines, "", *([escape(table.note), ""] if table.note else [])]


def escape(text: str) -> str:
    """Text that is read as text alone in Markdown, HTML included."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", flat)
