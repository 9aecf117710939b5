"""The verdict of a comparison, and how its numbers are printed. A null result is stated as plainly as a gain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Literal

from riesz_lab.utils.amounts import count

if TYPE_CHECKING:
    from riesz_lab.statistics.comparison import Comparison
    from riesz_lab.statistics.sequential import Sequential

LEAST_PAIRS = 3
ALPHA = 0.05


class Verdict(str, Enum):
    """What a comparison concludes: four words, wherever a person or a file meets them."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"  # no difference larger than the margin
    UNDECIDED = "undecided"

    def __str__(self) -> str:
        return self.value


Interval = tuple[float, float]


def format_difference(difference: float, interval: Interval | None, unit: str = "") -> str:
    """A difference with its interval, in as many digits as the interval deserves.

    Args:
        difference: method - baseline.
        interval: its ends; None if there is none.
        unit: "points" for fractions that are printed in percent, "" for the unit of the scores.

    Example:
        >>> format_difference(0.0102, (0.0079, 0.0126), "points")
        '+1.02 (+0.79 to +1.26) points'
        >>> format_difference(0.00016, (-0.0000091, 0.00033))
        '+0.00016 (-0.00001 to +0.00033)'
    """
    middle, ends = difference_cells(difference, interval, unit)
    return " ".join(filter(None, (middle, f"({ends})" if ends else "", middle and unit)))


def difference_cells(difference: float, interval: Interval | None, unit: str = "") -> tuple[str, str]:
    """The same as two cells of a table: the difference and the ends of its interval, without the unit."""
    times = 100.0 if unit == "points" else 1.0
    if not math.isfinite(difference):
        return "", ""
    finite = interval is not None and all(map(math.isfinite, interval))
    width = (interval[1] - interval[0]) / 2 if interval is not None and finite else abs(difference)
    places = _places(times * width)
    ends = " to ".join(_signed(times * end, places) for end in interval) if interval is not None and finite else ""
    return _signed(times * difference, places), ends


def format_margin(margin: float, unit: str = "") -> str:
    """A margin, or another size without a sign: two significant digits.

    Example:
        >>> format_margin(0.002, "points"), format_margin(0.0312)
        ('0.20 points', '0.031')
    """
    size = 100 * margin if unit == "points" else margin
    return f"{without_noise(size):.{_places(size)}f}{unit and ' '}{unit}"


def _places(width: float) -> int:
    """The decimals that show two significant digits of a width, rounding included: 0.0996 is shown as 0.10."""
    if not (math.isfinite(width) and width > 0):
        return 2
    return max(0, 1 - math.floor(math.log10(float(f"{width:.1e}"))))


def _signed(value: float, places: int) -> str:
    # The sign of a small number stays: it says on which side of zero an end lies.
    return f"{'-' if value < 0 else '+'}{abs(without_noise(value)):.{places}f}"


def decide(judged: Comparison | Sequential) -> Verdict:
    """The verdict of a comparison: of a fixed number of pairs, or valid after each."""
    words = {"better": Verdict.BETTER, "worse": Verdict.WORSE, "no difference": Verdict.SAME, "identical": Verdict.SAME}
    return words.get(_claim_of(judged), Verdict.UNDECIDED)


def reason(judged: Comparison | Sequential) -> str:
    """What a verdict rests on, where that is something else than the interval and the margin; else empty."""
    verdict = decide(judged)
    if judged.n < LEAST_PAIRS and not any(judged.diverged):
        return f"{count(judged.n, 'pair')}; at least {LEAST_PAIRS} are needed" if judged.n else "no pairs of scores yet"
    if verdict == Verdict.UNDECIDED and any(judged.diverged):
        baseline, method = judged.diverged
        return f"trials diverged: the baseline alone in {count(baseline, 'pair')}, the method alone in {method}"
    if judged.interval is None and verdict == Verdict.SAME:
        return f"identical scores in all {judged.n} pairs"
    if hasattr(judged, "conclusion"):
        return "" if judged.interval is not None else "all differences are equal, so no interval can be computed"
    return _why_not(judged) if judged.interval is None else _beyond_interval(judged, verdict)


def _claim_of(judged: Comparison | Sequential) -> str:
    return str(judged.conclusion) if hasattr(judged, "conclusion") else str(judged.verdict)


def _beyond_interval(judged: Comparison, verdict: Verdict) -> str:
    """Corrections and tests whose outcome the 95% interval of one comparison does not show."""
    assert judged.interval is not None
    if verdict == Verdict.UNDECIDED and judged.p is not None and judged.p < ALPHA:
        return f"{describe_p(judged.p_holm or judged.p)} after the correction for {judged.family} comparisons"
    if verdict == Verdict.SAME and max(map(abs, judged.interval)) >= judged.margin:
        p = judged.p_margin if judged.p_margin_holm is None else judged.p_margin_holm
        return f"{describe_p(p or 0.0)} of two one-sided tests"
    if verdict in (Verdict.BETTER, Verdict.WORSE) and judged.equivalent:
        return "by less than the margin"
    return ""


Claim = Literal["better", "worse", "no difference", "no evidence", "identical", "no claim"]


def verdict(comparison: Comparison) -> Claim:
    """The claim that the primary statistic allows."""
    p = comparison.p if comparison.p_holm is None else comparison.p_holm
    if comparison.n < LEAST_PAIRS:
        return "no claim"
    if comparison.p is None or p is None:
        identical = comparison.ties == comparison.n and not any(comparison.diverged)
        return "identical" if identical else "no claim"
    if p < ALPHA:
        gains = (comparison.difference > 0) == comparison.higher_is_better
        # Leaving out failures flatters the side that failed.
        if comparison.diverged[gains]:
            return "no claim"
        return "better" if gains else "worse"
    if comparison.equivalent:
        return "no claim" if any(comparison.diverged) else "no difference"
    return "no evidence"


def sentence(comparison: Comparison, words: Mapping[str, str] | None = None) -> str:
    """The verdict in plain words, with its numbers; `words` for "better" and "worse" where these do not fit."""
    return _claim(comparison, words or {}) + "".join(f"; {remark}" for remark in _remarks(comparison))


def _claim(comparison: Comparison, words: Mapping[str, str]) -> str:
    kind, margin = comparison.verdict, format_size(comparison.margin, comparison.percent)
    if kind in ("better", "worse"):
        size = format_size(abs(comparison.difference), comparison.percent)
        claim = f"{words.get(kind, kind)} by {size} ({_format_evidence(comparison)})"
        return claim + (f", yet no more than {margin}" if comparison.equivalent else "")
    if kind == "no difference":
        return f"no difference larger than {margin}: {_observed(comparison)}"
    if kind == "no evidence":
        lead = "no evidence of a difference"
        if comparison.p is not None and comparison.p < ALPHA:
            lead = f"no evidence that survives the correction for {comparison.family} comparisons"
        least = format_size(comparison.detectable or 0.0, comparison.percent)
        return f"{lead}: {_observed(comparison)}; one such comparison detects {least} or more with 80% power"
    if kind == "identical":
        return f"identical in all {comparison.n} pairs"
    return "no claim: " + _why_not(comparison)


def _why_not(comparison: Comparison) -> str:
    if (n := comparison.n) < LEAST_PAIRS:
        none = "no pair of trials has two scores" if comparison.trials else "there are no pairs of scores yet"
        pairs = (none, "1 pair is too few", f"{n} pairs are too few")[n]
        return f"{pairs}; at least {LEAST_PAIRS} are needed"
    if comparison.p is None:
        if comparison.crossed:
            return "pairs that share seeds need a full grid of initialisations and data orders, and some spread"
        if comparison.ties == comparison.n:
            return f"identical in the {comparison.n} pairs that are left, but some trials diverged"
        return f"the difference is the same in all {comparison.n} pairs, so its spread cannot be estimated"
    return f"the difference leaves out trials that diverged: {_observed(comparison)}"


def _observed(comparison: Comparison) -> str:
    unit = " points" if comparison.percent else ""
    return f"{format_signed(comparison.difference, comparison.percent)}{unit} ({_format_evidence(comparison)})"


def _format_evidence(comparison: Comparison) -> str:
    assert comparison.interval is not None
    assert comparison.p is not None
    low, high = (format_signed(end, comparison.percent) for end in comparison.interval)
    p = describe_p(comparison.p)
    if comparison.p_holm is not None and comparison.family > 1:
        p += f", {format_p(comparison.p_holm)} after Holm for {comparison.family}"
    return f"95% interval {low} to {high}, {p}, {comparison.n} pairs"


def _remarks(comparison: Comparison) -> list[str]:
    remarks = []
    if any(comparison.collapsed):
        baseline, method = comparison.collapsed
        remarks.append(
            f"collapsed or diverged: {method} of {comparison.trials} trials, baseline {baseline} of {comparison.trials}"
            + ("" if comparison.p_collapsed is None else f" (Fisher {describe_p(comparison.p_collapsed)})")
        )
    if comparison.crossed and comparison.p is not None and comparison.n < comparison.trials:
        remarks.append(
            f"{comparison.n} of {comparison.trials} pairs form a full grid of seeds, the others are left out"
        )
    if comparison.unpaired:
        verb = "is" if comparison.unpaired == 1 else "are"
        remarks.append(f"{count(comparison.unpaired, 'trial')} without a partner {verb} left out")
    return remarks


def format_size(value: float, percent: bool) -> str:
    """A difference without its sign; in points if scores are fractions that are printed in percent."""
    return f"{_digits(100 * value)} points" if percent else _digits(value)


def format_signed(value: float, percent: bool) -> str:
    """A difference with its sign, without its unit."""
    scaled = 100 * value if percent else value
    return ("-" if scaled < 0 else "+") + _digits(abs(scaled))


def without_noise(value: float) -> float:
    """To ten significant digits, so that one difference is rounded the same wherever it is printed.

    Example:
        >>> 0.1 + 0.2, without_noise(0.1 + 0.2)
        (0.30000000000000004, 0.3)
    """
    return float(f"{value:.10g}")


def _digits(value: float) -> str:
    """Two decimals, or two significant digits where those would hide the value."""
    value = without_noise(value)
    if value == 0 or value >= 0.01:
        return f"{value:.2f}"
    return f"{value:.{1 - math.floor(math.log10(value))}f}"


def describe_p(p: float) -> str:
    """For example "p = 0.041"."""
    return f"p {format_p(p)}" if p < 1e-4 else f"p = {format_p(p)}"


def format_p(p: float) -> str:
    """A p-value with two significant digits.

    Example:
        >>> [format_p(p) for p in (0.0412, 0.00003)]
        ['0.041', '< 0.0001']
    """
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
