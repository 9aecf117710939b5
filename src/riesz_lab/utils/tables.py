"""Tables for the terminal: plain text, so that they can be pasted and piped."""

from collections.abc import Collection, Sequence

from riesz_lab.errors import printable


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Columns under a head and a rule; those in `right` are flushed right. Cells may come from any file."""
    head, rows = [printable(name) for name in head], [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    flush = [str.rjust if index in right else str.ljust for index in range(len(head))]
    rule = ["-" * width for width in widths]
    lines = (
        "  ".join(align(cell, width) for align, cell, width in zip(flush, row, widths, strict=True))
        for row in (head, rule, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    print(table(head, rows, right))
