"""What is shown while a comparison runs: a line per trial and, in a terminal, a table of narrowing intervals."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from riesz_lab.errors import printable
from riesz_lab.statistics.sequential import Sequential
from riesz_lab.statistics.verdict import format_signed
from riesz_lab.utils.amounts import count
from riesz_lab.utils.terminal import can_redraw

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR = 31
"""Characters of an interval's drawing; odd, so that zero has one in the middle."""


@dataclass(frozen=True)
class Look:
    """The result of a comparison so far, after a pair."""

    judged: Mapping[str, Sequential]  # the judgement of every arm, at its last look
    active: Sequence[str]  # the arms that had this pair
    futile: Container[str]  # arms that get no more pairs, since no conclusion is in reach
    percent: bool  # whether scores are printed in percent
    note: str  # how far it is
    stored: bool = False  # whether nothing was trained for this pair, and no arm ended with it: no line is printed


class Display:
    """Lines alone, for a file or for a function of the caller's."""

    def __init__(self, say: Callable[[str], None]):
        self._say = say

    def say(self, text: str) -> None:
        self._say(text)

    def running(self, titles: list[str]) -> None:
        """The trials that run now."""

    def look(self, look: Look) -> None:
        """The judgement of every arm after a pair."""
        if look.stored:
            return
        for label in look.active:
            futile = "; no conclusion is in reach, so it is stopped" if label in look.futile else ""
            self.say(f"  {label}: {describe_look(look.judged[label], look.percent)}{futile}")
        self.say(f"  {look.note}")

    def close(self) -> None:
        """The comparison is over."""


class LiveDisplay(Display):
    """Lines scroll above a table with a row per arm: its interval, drawn about zero and the margin."""

    def __init__(self) -> None:
        from rich.live import Live

        self.now: list[str] = []
        self.last: Look | None = None
        self.screen = Live(get_renderable=self.table, refresh_per_second=4, transient=True)
        self.screen.start()
        super().__init__(lambda text: self.screen.console.print(printable(text), highlight=False, markup=False))

    def running(self, titles: list[str]) -> None:
        self.now = titles

    def look(self, look: Look) -> None:
        self.last = look

    def close(self) -> None:
        self.screen.stop()
        # The table is gone from the screen: its last state stays as lines.
        if self.last is not None:
            super().look(replace(self.last, active=list(self.last.judged)))

    def table(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        now = f"now: {'; '.join(self.now)}" if self.now else ""
        if self.last is None:
            return Text(now)
        table = Table(title=self.last.note, caption=now)
        for head in ("arm", "pairs", "difference", "interval", "", "conclusion"):
            table.add_column(head, justify="right" if head in ("pairs", "difference", "interval") else "left")
        reach = _reach(self.last.judged)
        for label, each in self.last.judged.items():
            difference = format_signed(each.difference, self.last.percent) if each.n else ""
            conclusion = "out of reach" if label in self.last.futile else each.conclusion
            cells = (difference, _ends(each, self.last.percent), draw(each, reach), conclusion)
            table.add_row(Text(label), str(each.n), *map(Text, cells))
        return table


def make_display(live: bool, say: Callable[[str], None]) -> Display:
    return LiveDisplay() if live and can_redraw() else Display(say)


def describe_look(judged: Sequential, percent: bool) -> str:
    """For example "undecided after 4 pairs, -0.31 to +1.02"."""
    ends = _ends(judged, percent)
    return f"{judged.conclusion} after {count(judged.n, 'pair')}" + (f", {ends}" if ends else "")


def draw(judged: Sequential, reach: float) -> str:
    """An interval as characters, about zero in the middle; dots mark the margin on either side.

    Example:
        >>> from riesz_lab.statistics.sequential import sequential
        >>> draw(sequential([0.9, 1.2, 1.0, 1.1, 0.8, 1.0], margin=0.5), 2.0)
        '           .   |   .---+--     '
    """
    middle = BAR // 2

    def place(value: float) -> int:
        return max(0, min(BAR - 1, middle + round(middle * value / reach)))

    cells = [" "] * BAR
    for value in (-judged.margin, judged.margin):
        if abs(value) <= reach:
            cells[place(value)] = "."
    low, high = judged.interval or (-math.inf, math.inf)
    if math.isfinite(low):
        first, last = place(low), place(high)
        cells[first : last + 1] = "-" * (last - first + 1)
    cells[middle] = "|"
    if judged.n:
        cells[place(judged.difference)] = "+"
    return "".join(cells)


def _reach(judged: Mapping[str, Sequential]) -> float:
    """The largest value of the drawing: twice the margin, or the narrowest interval in full."""
    ends = [max(map(abs, each.interval)) for each in judged.values() if each.interval]
    finite = [end for end in ends if math.isfinite(end)]
    return max([2 * max(each.margin for each in judged.values()), *([min(finite)] if finite else [])])


def _ends(judged: Sequential, percent: bool) -> str:
    if judged.interval is None or not math.isfinite(judged.interval[0]):
        return ""
    return " to ".join(format_signed(end, percent) for end in judged.interval)
