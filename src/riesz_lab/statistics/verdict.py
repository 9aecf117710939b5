"""What may be said of a comparison, and how. A null result is said as plainly as a positive one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from riesz_lab.statistics.comparison import Comparison

Verdict = Literal["better", "worse", "no difference", "no evidence", "identical", "no claim"]

LEAST_PAIRS = 3
ALPHA = 0.05


def verdict(found: Comparison) -> Verdict:
    """The claim that the primary statistic allows."""
    p = found.p if found.p_holm is None else found.p_holm
    only_baseline, only_method = found.diverged
    if found.n < LEAST_PAIRS:
        return "no claim"
    if found.p is None or p is None:
        identical = found.ties == found.n and not any(found.diverged)
        return "identical" if identical else "no claim"
    if p < ALPHA:
        gains = (found.difference > 0) == found.higher_is_better
        # The pairs that are left flatter the side whose failures were left out.
        if only_method if gains else only_baseline:
            return "no claim"
        return "better" if gains else "worse"
    if found.equivalent:
        return "no claim" if any(found.diverged) else "no difference"
    return "no evidence"


def sentence(found: Comparison) -> str:
    """The verdict in plain words, with the figures it rests on."""
    return _claim(found) + "".join(f"; {remark}" for remark in _remarks(found))


def _claim(found: Comparison) -> str:
    kind = found.verdict
    if kind in ("better", "worse"):
        claim = f"{kind} by {_size(abs(found.difference), found)} ({_told(found)})"
        return claim + (f", yet no more than {_size(found.margin, found)}" if found.equivalent else "")
    if kind == "no difference":
        return f"no difference larger than {_size(found.margin, found)}: {_observed(found)}"
    if kind == "no evidence":
        lead = "no evidence of a difference"
        if found.p is not None and found.p < ALPHA:
            lead = f"no evidence that survives the correction for {found.family} comparisons"
        least = _size(found.detectable or 0.0, found)
        return f"{lead}: {_observed(found)}; the least that one such comparison shows with 80% power is {least}"
    if kind == "identical":
        return f"identical in all {found.n} pairs"
    return "no claim: " + _why_not(found)


def _why_not(found: Comparison) -> str:
    if found.n < LEAST_PAIRS:
        pairs = {0: "no pair of scores is there", 1: "1 pair is too few"}.get(found.n, f"{found.n} pairs are too few")
        return f"{pairs}, {LEAST_PAIRS} are the least"
    if found.p is None:
        if found.crossed:
            return "pairs that share seeds need a full grid of initialisations and data orders, and some spread"
        if found.ties == found.n:
            return f"identical in the {found.n} pairs that are left, but some trials diverged"
        return f"the difference is the same in all {found.n} pairs, so its spread cannot be told"
    return f"the difference leaves out trials that diverged: {_observed(found)}"


def _observed(found: Comparison) -> str:
    unit = " points" if found.percent else ""
    return f"{_signed(found.difference, found)}{unit} ({_told(found)})"


def _told(found: Comparison) -> str:
    assert found.interval is not None
    assert found.p is not None
    low, high = (_signed(end, found) for end in found.interval)
    p = _p_equals(found.p)
    if found.p_holm is not None and found.family > 1:
        p += f", {format_p(found.p_holm)} after Holm for {found.family}"
    return f"95% interval {low} to {high}, {p}, {found.n} pairs"


def _remarks(found: Comparison) -> list[str]:
    remarks = []
    if any(found.collapsed):
        base, mine = found.collapsed
        remarks.append(
            f"collapsed or diverged: {mine} of {found.trials} trials, baseline {base} of {found.trials}"
            + ("" if found.p_collapsed is None else f" (Fisher {_p_equals(found.p_collapsed)})")
        )
    if found.unpaired:
        remarks.append(f"{found.unpaired} trials without a partner are left out")
    return remarks


def _size(value: float, found: Comparison) -> str:
    return f"{_digits(100 * value)} points" if found.percent else _digits(value)


def _signed(value: float, found: Comparison) -> str:
    scaled = 100 * value if found.percent else value
    return ("-" if scaled < 0 else "+") + _digits(abs(scaled))


def _digits(value: float) -> str:
    """Two decimals, or two significant digits where those would hide the value."""
    if value == 0 or value >= 0.01:
        return f"{value:.2f}"
    return f"{value:.{1 - math.floor(math.log10(value))}f}"


def _p_equals(p: float) -> str:
    return f"p {format_p(p)}" if p < 1e-4 else f"p = {format_p(p)}"


def format_p(p: float) -> str:
    """A p-value as it is printed everywhere."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
