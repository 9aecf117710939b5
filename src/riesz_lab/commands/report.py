"""`riesz report DIR... -o report.html`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from riesz_lab.errors import ConfigError
from riesz_lab.utils import atomic

if TYPE_CHECKING:
    from riesz_lab.report.evidence import Evidence

Format = Literal["html", "md", "csv"]
ENDINGS: dict[Format, tuple[str, ...]] = {"html": (".html", ".htm"), "md": (".md", ".markdown"), "csv": (".csv",)}


def run(arguments: list[str]) -> int:
    tyro.cli(
        _report,
        prog="riesz report",
        description="Make one page of stored trials: conclusions, tables, figures. It needs nothing but itself to be"
        " read, and the same trials give the same page.",
        args=arguments,
    )
    return 0


def _report(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = (Path("runs"),),
    output: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    format: Format | None = None,  # noqa: A002 - the option's name
    title: str = "Channel-directed gradients: report",
    margin: float = 0.002,
) -> None:
    """Make a report.

    Args:
        folders: folders of trials, and of benchmark results (CSV).
        output: the file to write, or - for the screen; report.html, report.md or report.csv if not given.
        format: html, md (Markdown), or csv (one row per comparison); told by the file's name if not given.
        title: heading of the page.
        margin: the largest difference that does not matter, for trials of no sweep; sweeps have their own.
    """
    from riesz_lab.report import report

    kind = kind_of(output, format)
    target = output or Path(f"report.{kind}")
    write(target, content(kind, report.read(*folders, margin=margin), target, title))


def content(kind: Format, evidence: Evidence, target: Path, title: str) -> str:
    """The report as text of that format."""
    from riesz_lab.report import page, report, text

    if kind == "csv":
        return text.comparisons_csv(evidence)
    made = report.build(evidence, None if str(target) == "-" else target.resolve().parent, title)
    return page.html(made) if kind == "html" else text.markdown(made)


def write(target: Path, content: str) -> None:
    """Write a file as a whole and say where it is; - is the screen."""
    if str(target) == "-":
        sys.stdout.write(content)
        return
    atomic.write_bytes(target, content.encode())
    print(f"Report: {target.resolve()} ({len(content.encode()) / 1e6:.1f} MB)")


def kind_of(output: Path | None, asked: Format | None = None) -> Format:
    """The format asked for, or told by the file's name; a name that says another is refused."""
    if output is None or str(output) == "-":
        return asked or "html"
    allowed = ENDINGS if asked is None else {asked: ENDINGS[asked]}
    for kind, endings in allowed.items():
        if output.suffix.lower() in endings:
            return kind
    told = ", ".join(ending for endings in allowed.values() for ending in endings)
    raise ConfigError(f"output {str(output)!r} cannot be; allowed: - for the screen, or a name that ends in {told}")
