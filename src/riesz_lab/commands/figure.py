"""`riesz figure NAME [DIR...] -o figure.svg`."""

from pathlib import Path
from typing import Annotated

import tyro

from riesz_lab.commands.parsing import parse
from riesz_lab.errors import ConfigError, LabError, printable, unknown
from riesz_lab.utils import atomic

USAGE = """usage: riesz figure NAME [DIR...] [-o FILE.svg] [--sweeps NAME...]

Draw one figure of the report for a paper, as SVG, PNG or PDF. DIR are folders of trials (default: runs). NAME is one of

{figures}"""


def run(arguments: list[str]) -> int:
    from riesz_lab.report.figures import FIGURES

    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, FIGURES))
        print(USAGE.format(figures="\n".join(f"  {name:<{width}}  {e.about}" for name, e in FIGURES.items())))
        return 0
    if arguments[0] not in FIGURES:
        raise ConfigError(unknown("figure", arguments[0], FIGURES, listed_by="riesz figure"))
    parse(_draw, arguments, prog="riesz figure", description="Draw one figure of the report.")
    return 0


def _draw(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = (Path("runs"),),
    output: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    sweeps: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...")] = (),
) -> None:
    """Draw a figure.

    Args:
        name: which one; `riesz figure` lists them.
        folders: folders of trials, and of benchmark results (CSV).
        output: the file to write, .svg, .png or .pdf; NAME.svg if not given.
        sweeps: draw these sweeps too; your own: package.module:function.
    """
    from riesz_lab.report import drawing
    from riesz_lab.report.data import ReportData, read
    from riesz_lab.report.figures import FIGURES
    from riesz_lab.store import Store

    target = output or Path(f"{name}.svg")
    kind = target.suffix.removeprefix(".").lower()
    if kind not in drawing.FORMATS:
        raise ConfigError(f"expected output as a name that ends in .svg, .png or .pdf, got {str(target)!r}")
    entry = FIGURES[name]
    figure = entry.make(ReportData(Store()) if entry.needs == "nothing" else read(*folders, sweeps=sweeps))
    if figure is None:
        raise LabError(f"figure {name!r} has no data below {', '.join(map(str, folders))}; it needs {entry.needs}")
    atomic.write_bytes(target, drawing.picture(figure, kind))
    print(printable(f"Figure: {target.resolve()}\n{figure.caption} {figure.alt}".rstrip(), keep="\n"))
