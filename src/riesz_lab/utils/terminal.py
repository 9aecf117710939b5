"""What the terminal can do, and the one table that is printed there."""

import os
import sys
from collections.abc import Collection, Sequence

from riesz_lab.errors import printable


def can_redraw() -> bool:
    """Whether lines of standard output can be drawn over.

    A notebook runs `!command` in a pseudo terminal and appends all that it prints, so that every redrawing of a table
    would stay. JPY_PARENT_PID is set in Jupyter's kernels and in what they start.
    """
    return sys.stdout.isatty() and "JPY_PARENT_PID" not in os.environ and os.environ.get("TERM") != "dumb"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Columns under a head, as plain text that can be pasted and piped; those in `right` are flushed right.

    Cells may come from any file.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, name in enumerate(head):
        drawn.add_column(Text(printable(name)), justify="right" if index in right else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=100_000, color_system=None)  # no cell is ever cut: a terminal breaks long lines itself
    with console.capture() as captured:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    print(table(head, rows, right))
