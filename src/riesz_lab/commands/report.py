"""`riesz report DIR... -o report.html`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import ConfigError, printable
from riesz_lab.utils import atomic
from riesz_lab.utils.amounts import file_size

if TYPE_CHECKING:
    from riesz_lab.report.data import ReportData

Format = Literal["html", "md", "csv", "json"]
ENDINGS: dict[Format, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "md": (".md", ".markdown"),
    "csv": (".csv",),
    "json": (".json",),
}


def run(arguments: list[str]) -> int:
    about = "Make one self-contained page of stored trials: verdicts, tables, figures."
    about += " The same trials give the same page."
    parse(_report, arguments, prog="riesz report", description=about)
    return 0


def _report(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = (Path("runs"),),
    output: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    format: Format | None = None,  # noqa: A002 - the option's name
    title: str = "Channel-directed gradients: report",
    margin: float = 0.002,
    sweeps: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...")] = (),
) -> None:
    """Make a report.

    Args:
        folders: folders of trials, and of benchmark results (CSV).
        output: the file to write, or - for the screen; report.html, report.md and so on if not given.
        format: html, md (Markdown), csv or json (one row per arm); by the file's ending if not given.
        title: heading of the page.
        margin: the largest difference that does not matter, for trials of no experiment; experiments have their own.
        sweeps: compare trials as these define, stored with the trials or not; your own: package.module:function.
    """
    from riesz_lab.report.data import read

    chosen = format_of(output, format)
    if chosen == "html" and str(output) == "-" and sys.stdout.isatty():
        raise ConfigError("expected a file for a page: -o report.html; for the screen: --format md -o -")
    target = output or Path(f"report.{chosen}")
    write(target, content(chosen, read(*folders, margin=margin, sweeps=sweeps), target, title))


def content(chosen: Format, data: "ReportData", target: Path, title: str) -> str:
    """The report as text of that format."""
    from riesz_lab.report.page import html, markdown
    from riesz_lab.report.report import build
    from riesz_lab.report.table import to_csv, to_json

    if chosen in ("csv", "json"):
        return to_csv(data.results) if chosen == "csv" else to_json(data.results)
    page = build(data, None if str(target) == "-" else target.resolve().parent, title)
    return html(page) if chosen == "html" else markdown(page)


def write(target: Path, content: str) -> None:
    """Write a file atomically and print its path; - is the screen."""
    if str(target) == "-":
        sys.stdout.write(printable(content, keep="\r\n\t") if sys.stdout.isatty() else content)
        return
    atomic.write_bytes(target, content.encode())
    print(f"Report: {target.resolve()} ({file_size(len(content.encode()))})")


def format_of(output: Path | None, asked: Format | None = None) -> Format:
    """The format asked for, or that of the file's ending; an ending of another format is refused."""
    if output is None or str(output) == "-":
        return asked or "html"
    allowed = ENDINGS if asked is None else {asked: ENDINGS[asked]}
    for name, endings in allowed.items():
        if output.suffix.lower() in endings:
            return name
    names = ", ".join(ending for endings in allowed.values() for ending in endings)
    raise ConfigError(f"expected output as - for the screen, or a name that ends in {names}, got {str(output)!r}")
