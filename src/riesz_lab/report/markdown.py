"""Content as Markdown."""

import html
import re

from riesz_lab.errors import printable
from riesz_lab.report.content import Page, Table
from riesz_lab.report.figure import Figure


def markdown(page: Page) -> str:
    """Everything but the drawings and links: of a figure, what it shows in words, without how to read it."""
    lines = [f"# {escape(page.title)}", "", *(f"{escape(line)}\n" for line in page.lead)]
    for section in page.sections:
        lines += [f"## {escape(section.title)}", "", *(f"{escape(line)}\n" for line in section.text)]
        for (title, about), findings in section.groups().items():
            if title:
                lines += [f"**{escape(title)}** {escape(about)}".rstrip(), ""]
            for finding in findings:
                lines.append(f"- **{escape(finding.verdict)}** - {escape(finding.subject)}: {escape(finding.sentence)}")
            lines.append("")
        for block in section.blocks:
            if isinstance(block, str):
                lines += [escape(block), ""]
            elif isinstance(block, Figure):
                lines += [f"*{escape(block.title)}* (drawn on the HTML page): {escape(block.alt)}", ""]
            else:
                lines += _table(block)
        lines += [f"> {escape(line)}\n" for line in section.missing]
    return "\n".join(lines).rstrip() + "\n"


def _table(table: Table) -> list[str]:
    rule = ["---:" if index in table.numbers else "---" for index in range(len(table.head))]
    rows = [[escape(cell.text) for cell in row] for row in table.cells()]
    lines = [f"**{escape(table.caption)}**", ""]
    lines += [f"| {' | '.join(row)} |" for row in ([escape(name) for name in table.head], rule, *rows)]
    return [*lines, "", *([escape(table.note), ""] if table.note else [])]


def escape(text: str) -> str:
    """Text that is read as text alone in Markdown, HTML included."""
    flat = html.escape(printable(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", flat)
