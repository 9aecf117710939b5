"""What a page is made of, whoever writes it: HTML, Markdown and CSV are written from the same content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from riesz_lab.report.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what is shown.
        sort: what it is sorted by; the text if None.
        link: a relative path it leads to; empty for none.
    """

    text: str
    sort: float | None = None
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under a head.

    Attributes:
        caption: what the table shows.
        head: names of the columns.
        rows: cells, or plain text.
        numbers: which columns hold numbers.
        note: below it.
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
        subject: what was compared.
        sentence: the conclusion, with its figures.
        group: what it belongs to; findings of one group stand together.
        scale: at what scale the group was run.
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
        name: its anchor.
        title: its heading.
        text: paragraphs before everything else.
        findings: conclusions.
        blocks: figures and tables in order.
        missing: what it could show and why it does not, with the command that would change that.
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
        heads = dict.fromkeys((finding.group, finding.scale) for finding in self.findings)
        return [
            Group(*head, [finding for finding in self.findings if (finding.group, finding.scale) == head])
            for head in heads
        ]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report."""

    title: str
    lead: Sequence[str] = ()
    sections: Sequence[Section] = field(default_factory=tuple)

    def figures(self) -> list[Figure]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]
