"""Content as one self-contained HTML file, or as Markdown.

Requirements that the HTML meets:
- it makes no network request: its Content-Security-Policy allows none;
- no text of a file can become script: everything is escaped, and the policy runs only the scripts whose hashes it
  names, those of this package;
- the same content gives the same bytes.
"""

import base64
import hashlib
import re
from html import escape as escape_html
from importlib.resources import files
from urllib.parse import quote

import jinja2
import markupsafe

from riesz._version import __version__
from riesz_lab.errors import printable
from riesz_lab.report.content import Page, Table
from riesz_lab.report.drawing import draw_panel, legend
from riesz_lab.report.figure import Figure, Panel
from riesz_lab.report.shapes import svg_inline


def html(page: Page) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= {
        "slug": lambda text: re.sub(r"[^a-z]+", "-", text.lower()),
        "is_figure": lambda block: isinstance(block, Figure),
        "is_text": lambda block: isinstance(block, str),
        "legend": _legend,
        "plot": _plot,
        "path": lambda link: quote(link, safe="/.-_~"),
    }
    script = _resource("page.js")
    return environment.from_string(_resource("page.html")).render(
        page=page, css=_resource("page.css"), js=script, policy=_policy(script), version=__version__
    )


def _finalize(value: object) -> object:
    # Invisible characters can reverse how a name reads on a page, too.
    if not isinstance(value, str) or isinstance(value, markupsafe.Markup) or value.isprintable():
        return value
    return printable(value, keep="\n\t")


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _legend(figure: Figure) -> dict[str, markupsafe.Markup]:
    """A sample of what is drawn under each name, as it is drawn."""
    return {
        name: markupsafe.Markup(svg_inline(sample, 'aria-hidden="true"')) for name, sample in legend(figure).items()
    }


def _plot(panel: Panel, figure: Figure) -> markupsafe.Markup:
    """The panel with a description for screen readers."""
    kind = "image" if panel.image is not None else f"{len(panel.series)} series"
    axes = f"{panel.y} against {panel.x}" if panel.y and panel.x else panel.y
    shown = ". ".join(filter(None, (figure.title, panel.title, axes, kind)))
    text = f"{shown}. Arrow keys walk along the points." if panel.image is None else f"{shown}."
    label = markupsafe.escape(printable(text))
    attributes = f'class="plot" role="img" aria-roledescription="chart" tabindex="0" aria-label="{label}"'
    return markupsafe.Markup(svg_inline(draw_panel(panel), attributes))


def _resource(name: str) -> str:
    return files("riesz_lab.report").joinpath(name).read_text(encoding="utf-8")


# -- Markdown ----------------------------------------------------------------------------------------------------------


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
    flat = escape_html(printable(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", flat)
