"""Tables for the terminal: plain text, so that they can be pasted and piped."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under a head and a rule."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = (map(str.ljust, row, widths) for row in (head, rule, *rows))
    return "\n".join("  ".join(cells).rstrip() for cells in lines)
