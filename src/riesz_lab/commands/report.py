"""`riesz report DIR... -o report.html`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from riesz_lab import atomic

Format = Literal["html", "md", "csv"]


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
) -> None:
    """Make a report.

    Args:
        folders: folders of trials, and of benchmark results (CSV).
        output: the file to write, or - for the screen; report.html, report.md or report.csv if not given.
        format: html, md (Markdown), or csv (one row per comparison); told by the file's name if not given.
        title: heading of the page.
    """
    from riesz_lab.report import page, report, text

    kind = format or _kind(output)
    target = output or Path(f"report.{kind}")
    evidence = report.read(*folders)
    if kind == "csv":
        content = text.comparisons_csv(evidence)
    else:
        made = report.build(evidence, None if str(target) == "-" else target.resolve().parent, title)
        content = page.html(made) if kind == "html" else text.markdown(made)
    write(target, content)


def write(target: Path, content: str) -> None:
    """Write a file as a whole and say where it is; - is the screen."""
    if str(target) == "-":
        sys.stdout.write(content)
        return
    atomic.write_bytes(target, content.encode())
    print(f"Report: {target.resolve()} ({len(content.encode()) / 1e6:.1f} MB)")


def _kind(output: Path | None) -> Format:
    suffix = "" if output is None else output.suffix.lower()
    return "md" if suffix in (".md", ".markdown") else "csv" if suffix == ".csv" else "html"
