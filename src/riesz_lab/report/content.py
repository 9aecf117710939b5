"""The content of a page; HTML and Markdown are written from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from riesz_lab.report.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: as shown.
        sort: the number it is sorted by; the text if None.
        link: a relative path it leads to; empty for none.
    """

    text: str
    sort: float | None = None
    link: str = ""


def number(value: float | None, spec: str = "") -> Cell:
    """A number as a cell, formatted by a format specification; blank for None."""
    return Cell("") if value is None else Cell(f"{value:{spec}}", value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a head.

    Attributes:
        caption: the content in a few words.
        head: names of the columns.
        rows: cells, or plain text.
        numbers: indices of the columns that hold numbers.
        note: printed below.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    numbers: frozenset[int] = frozenset()
    note: str = ""

    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Finding:
    """A conclusion in one sentence.

    Attributes:
        verdict: in two words, such as "better" or "no evidence".
        subject: the methods compared.
        sentence: the conclusion, with its numbers.
        group: heading that it shares with other findings.
        scale: the setting of the group.
    """

    verdict: str
    subject: str
    sentence: str
    group: str = ""
    scale: str = ""


@dataclass(frozen=True)
class Group:
    """Findings under one heading."""

    title: str
    about: str
    findings: Sequence[Finding]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        name: anchor.
        title: heading.
        text: paragraphs at the top.
        findings: conclusions.
        blocks: figures and tables in order.
        missing: what cannot be shown, why, and the command that would change that.
        folded: whether it is closed at first.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    blocks: Sequence[Figure | Table] = ()
    missing: Sequence[str] = ()
    folded: bool = False

    def groups(self) -> list[Group]:
        """The findings, group by group."""
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.group, finding.scale), []).append(finding)
        return [Group(*head, findings) for head, findings in groups.items()]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report."""

    title: str
    lead: Sequence[str] = ()
    sections: Sequence[Section] = ()

    def figures(self) -> list[Figure]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]
