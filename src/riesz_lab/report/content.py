"""The content of a page; `page` writes it as HTML and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from riesz_lab.report.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table, sorted by its number or else its text; `link` is the relative path it leads to."""

    text: str
    sort: float | None = None
    link: str = ""
    kind: str = ""  # the verdict that it states, which gives it a colour


def number(value: float | None, spec: str = "") -> Cell:
    """A number as a cell, formatted by a format specification; blank for None."""
    return Cell("") if value is None else Cell(f"{value:{spec}}", value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a head; `numbers` are the indices of the columns that hold numbers.

    The note is printed below, and the one about links where cells can be links.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: frozenset[int] = frozenset()
    note: str = ""
    link_note: str = ""
    cards: bool = False  # whether a phone shows a card for each row, and not columns
    folded: bool = False  # whether it is closed at first
    quiet: bool = False  # whether the caption is for screen readers alone

    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Finding:
    """A conclusion about a subject, in two words and in one sentence; `group` and its `scale` head it and others."""

    verdict: str
    subject: str
    sentence: str
    group: str = ""
    scale: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page."""

    name: str  # anchor
    title: str
    text: Sequence[str] = ()  # paragraphs at the top
    findings: Sequence[Finding] = ()
    blocks: Sequence[Figure | Table | str] = ()  # strings are paragraphs
    missing: Sequence[str] = ()  # what cannot be shown, why, and the command that would change that
    folded: bool = False  # whether it is closed at first

    def groups(self) -> dict[tuple[str, str], list[Finding]]:
        """The findings by group and scale."""
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.group, finding.scale), []).append(finding)
        return groups


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report."""

    title: str
    lead: Sequence[str] = ()
    sections: Sequence[Section] = ()

    def figures(self) -> list[Figure]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]
