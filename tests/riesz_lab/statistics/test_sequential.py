"""The anytime-valid paired t test, by simulation: looks after every pair from 3 to 50.

The long form (`pytest -m slow -s`) prints the table that docs/compare.md shows.
"""

import math

import numpy as np
import pytest
from scipy import stats

from riesz_lab.experiments.experiment import ACCURACY
from riesz_lab.experiments.stopping import look_at_pairs
from riesz_lab.statistics import paired
from riesz_lab.statistics.sequential import (
    PRIOR_VARIANCE,
    first_exclusions,
    half_width,
    pairs_needed,
    pairs_to_decide,
    sequential,
)

LAST = 50
KINDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t, 3 degrees of freedom": lambda rng, shape: rng.standard_t(3, size=shape) / math.sqrt(3),
    "skewed (exponential)": lambda rng, shape: rng.exponential(size=shape) - 1,
    "skewed (log-normal)": lambda rng, shape: (rng.lognormal(size=shape) - math.exp(0.5)) / 2.1612,
}
"""Mean 0, standard deviation 1."""


def running(values):
    """Mean and standard deviation after 1, 2, ... pairs."""
    counts = np.arange(1, values.shape[1] + 1)
    mean = values.cumsum(1) / counts
    return counts, mean, np.sqrt(((values**2).cumsum(1) - counts * mean**2).clip(0) / np.maximum(1, counts - 1))


def log_evidence(values, mean=0.0, g=PRIOR_VARIANCE):
    """log E_n against a true mean, as the module's docstring has it."""
    n = len(values)
    ratio = n * (values.mean() - mean) ** 2 / values.var(ddof=1) / (n - 1)
    r = 1 + n * g
    return 0.5 * (n * (np.log1p(ratio) - np.log1p(ratio / r)) - np.log(r))


def missed(values, truth, alpha=0.05):
    """In which sequences the interval misses the truth, at any look from 3 pairs on."""
    counts, mean, spread = running(values)
    return (np.abs(mean - truth) > half_width(spread, counts, alpha))[:, 2:].any(1)


def t_test_at_every_look(values):
    counts, mean, spread = running(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (np.abs(mean) / spread * np.sqrt(counts) > stats.t.ppf(0.975, counts - 1))[:, 2:].any(1)


def table(sequences):
    """Per kind of difference: false positives of 5%, also shared by 2 and 4 arms; misses; a t test at every look."""
    rows = {}
    for number, (kind, draw) in enumerate(KINDS.items()):
        values = draw(np.random.default_rng(number), (sequences, LAST))
        rows[kind] = {
            "false positives": missed(values, 0.0).mean(),
            "alpha / 2": missed(values, 0.0, 0.025).mean(),
            "alpha / 4": missed(values, 0.0, 0.0125).mean(),
            "coverage at mean 1": 1 - missed(values + 1.0, 1.0).mean(),
            "t test at every look": t_test_at_every_look(values).mean(),
            "t test after 10 pairs": (stats.ttest_1samp(values[:, :10], 0.0, axis=1).pvalue < 0.05).mean(),
        }
    return rows


def power(effect, sequences):
    """Share of sequences that are decided by 50 pairs, their median number of pairs, and a fixed t test's power."""
    stops = first_exclusions(effect, 0.05, LAST, sequences)
    fixed = {n: fixed_power(effect, n) for n in (10, 20, 50)}
    by = {n: float((stops <= n).mean()) for n in (10, 20, 50)}
    enough = next(n for n in range(3, 2000) if fixed_power(effect, n) >= 0.8)
    return {"by": by, "fixed": fixed, "median": float(np.median(stops)), "fixed pairs for 80%": enough}


def fixed_power(effect, n):
    shift, critical = effect * math.sqrt(n), stats.t.ppf(0.975, n - 1)
    # The other tail is below 1e-3 wherever the power is of interest, and not a number far out.
    return float(stats.nct.sf(critical, n - 1, shift))


def test_formula_is_the_bayes_factor_of_the_t_statistic():
    """Against the density of t, integrated numerically over the prior."""
    values = np.array([0.3, -0.1, 0.8, 0.5, 0.2])
    t = values.mean() / values.std(ddof=1) * math.sqrt(5)
    effects = np.linspace(-12, 12, 4001)
    prior = stats.norm.pdf(effects, 0, math.sqrt(PRIOR_VARIANCE))
    wanted = np.trapezoid(stats.nct.pdf(t, 4, effects * math.sqrt(5)) * prior, effects) / stats.t.pdf(t, 4)
    assert math.exp(log_evidence(values)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("n", [4, 7, 50])
def test_interval_ends_where_the_evidence_reaches_its_limit(n):
    values = np.random.default_rng(n).normal(0.4, 2.0, n)
    half = float(half_width(values.std(ddof=1), n))
    for end in (values.mean() - half, values.mean() + half):
        assert log_evidence(values, end) == pytest.approx(math.log(20), rel=1e-9)


def test_looking_after_every_pair_keeps_the_error_rate():
    rows = table(2000)
    normal = rows["normal"]
    assert normal["false positives"] <= 0.05
    assert normal["alpha / 2"] <= 0.025
    assert normal["coverage at mean 1"] >= 0.95
    # The simulation can fail: the usual test, looked at as often, is wrong several times as often.
    assert normal["t test at every look"] > 0.15
    assert rows["t, 3 degrees of freedom"]["false positives"] <= 0.05
    assert power(1.0, 2000)["by"][50] > 0.99


@pytest.mark.slow
def test_looking_after_every_pair_keeps_the_error_rate_in_full():
    rows = table(20_000)
    for kind, row in rows.items():
        print(f"\n{kind:<26}" + "  ".join(f"{name} {100 * value:.2f}%" for name, value in row.items()), end="")
    for effect in (0.3, 0.5, 0.8, 1.0, 1.5, 2.0):
        row = power(effect, 20_000)
        shown = "  ".join(f"by {n}: {100 * row['by'][n]:.1f}% (fixed {100 * row['fixed'][n]:.1f}%)" for n in row["by"])
        print(f"\neffect {effect}: {shown}  median pairs {row['median']:g}", end="")
        print(f"  fixed pairs for 80% {row['fixed pairs for 80%']}, here {pairs_needed(effect)}", end="")
    print()
    normal = rows["normal"]
    assert normal["false positives"] <= 0.05
    assert normal["alpha / 2"] <= 0.025
    assert normal["alpha / 4"] <= 0.0125
    assert normal["coverage at mean 1"] >= 0.95
    assert rows["t, 3 degrees of freedom"]["false positives"] <= 0.05


@pytest.mark.parametrize(
    ("differences", "options", "verdict"),
    [
        ([1.0, 1.1, 0.9, 1.0, 1.05], {}, "better"),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"higher_is_better": False}, "worse"),
        ([-1.0, -1.1, -0.9, -1.0, -1.05], {}, "worse"),
        ([0.01, -0.02, 0.0, 0.01, -0.01], {}, "same"),
        ([0.01, 0.011, 0.009, 0.01, 0.0105], {}, "same"),  # real, and too small to matter
        ([1.0, -1.0, 0.5, 0.2, 0.9], {}, "undecided"),
        ([1.0, 1.1], {}, "undecided"),
        ([1.0, 1.0, 1.0, 1.0], {}, "undecided"),  # no spread
        ([0.0, 0.0, 0.0], {}, "undecided"),  # what was equal so far may differ next time
        ([0.0] * 5000, {}, "undecided"),  # by how much, a score without bounds does not say
        ([0.0] * 14, {"p_ties": 0.8**14}, "same"),
        ([0.0] * 14, {"p_ties": 0.8**14, "arms": 2}, "undecided"),
        ([0.0] * 13, {"p_ties": 0.8**13}, "undecided"),
        ([0.0] * 14, {"p_ties": 0.8**14, "diverged": (1, 0)}, "undecided"),
        ([0.0, 0.0], {}, "undecided"),
        ([1e-12, -1e-12, 0.0], {"rounding": 1e-11, "p_ties": 0.01}, "same"),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"diverged": (0, 1)}, "undecided"),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"diverged": (1, 0)}, "better"),
        ([0.01, -0.02, 0.0, 0.01, -0.01], {"diverged": (1, 0)}, "undecided"),
    ],
)
def test_verdicts(differences, options, verdict):
    assert sequential(differences, margin=0.2, **options).verdict == verdict


SUCCESS = [(1, 0.0, rate) for rate in (0.05, 0.1, 0.2, 0.3)]
"""Images per trial and the rates at which two arms classify one correctly."""


@pytest.mark.parametrize(
    ("images", "baseline", "method", "margin"),
    [(*arms, 0.02) for arms in [*SUCCESS, (1, 1.0, 0.979)]] + [(20, 0.995, 0.98, 0.01)],
)
def test_a_coarse_score_is_called_the_same_in_5_percent_of_sequences_at_most(images, baseline, method, margin):
    """The true difference is beyond the margin, and trials often tie."""
    rng = np.random.default_rng(0)
    before, after = (rng.binomial(images, rate, (200, 160)) / images for rate in (baseline, method))
    wrong = sum(ends_same(*sequence, margin) for sequence in zip(before, after, strict=True))
    assert wrong <= 0.05 * 200


def ends_same(before, after, margin):
    """Whether the first verdict of a sequence is "same"."""
    scores = [list(map(float, each)) for each in (before, after)]
    for n in range(3, len(before) + 1):
        sides = (dict(enumerate(each[:n])) for each in scores)
        verdict = look_at_pairs(*sides, margin, ACCURACY).verdict
        if verdict != "undecided":
            return verdict == "same"
    return False


def test_more_arms_need_more_evidence():
    values = [1.0, 1.3, 0.7, 0.6, 1.4, 1.0]
    widths = [np.subtract(*sequential(values, margin=0.1, arms=arms).interval[::-1]) for arms in (1, 2, 4)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_always_wider_than_the_interval_for_a_fixed_number():
    values = np.random.default_rng(1).normal(size=12)
    fixed = paired(dict.fromkeys(range(12), 0.0), dict(enumerate(values)), margin=1.0).interval
    low, high = sequential(values, margin=1.0).interval
    assert low < fixed[0] < fixed[1] < high


def test_futile_arms_are_named_and_promising_ones_are_not():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=8)
    noise -= noise.mean()
    assert sequential(noise + 0.1, margin=0.05).futile(12)
    assert not sequential(noise + 0.1, margin=0.05).futile(2000)
    assert not sequential(noise + 0.9, margin=0.05).futile(12)
    assert not sequential(noise, margin=1.2).futile(12)  # equivalence is within reach


def test_an_arm_that_failures_forbid_to_conclude_on_is_futile():
    gains = [1.0, 1.1, 0.9, 1.0, 1.05]
    # Better, if not for the pair in which it diverged; only "worse" may be claimed, and that is far away.
    assert sequential(gains, margin=0.2, diverged=(0, 1)).futile(50, 6)
    assert sequential([-each for each in gains], margin=0.2, diverged=(1, 0)).futile(50, 6)
    assert (
        sequential([-each for each in gains], margin=0.2, diverged=(1, 0), higher_is_better=False).verdict == "better"
    )
    # Undecided so far, and what may be claimed is within reach.
    noise = [-2.0, 1.0, -1.0, 0.5, -1.5]
    assert not sequential(noise, margin=0.2, diverged=(0, 1)).futile(50, 6)
    assert sequential([-each for each in noise], margin=0.2, diverged=(0, 1)).futile(8, 6)


@pytest.mark.parametrize(("run", "futile"), [(4, False), (5, True)])
def test_an_arm_that_always_diverges_is_futile(run, futile):
    assert sequential([], margin=0.2, diverged=(0, run)).futile(50, run) is futile


def test_stopping_futile_arms_loses_few_that_would_have_been_decided():
    values = np.random.default_rng(3).normal(0.8, 1.0, (200, 20))
    decided = [v for v in values if any(sequential(v[:n], margin=0.05).verdict == "better" for n in range(3, 21))]
    lost = sum(any(sequential(v[:n], margin=0.05).futile(20) for n in range(5, 20)) for v in decided)
    assert len(decided) > 100
    assert lost <= 0.03 * len(decided)


def test_pairs_needed_falls_with_the_effect():
    needed = [pairs_needed(effect) for effect in (0.3, 0.5, 1.0, 2.0)]
    assert needed == sorted(needed, reverse=True)
    assert pairs_needed(0.001) is None


@pytest.mark.parametrize("arms", [1, 2, 4, 6])
def test_a_large_effect_never_needs_many_pairs(arms):
    """Also where few pairs are enough on average, and not with 80% power."""
    for effect in np.arange(5.0, 20.0, 0.5):
        assert 3 <= pairs_needed(float(effect), 0.05 / arms) <= 8, effect


@pytest.mark.parametrize(("pattern", "margin"), [([1.2, -0.8], 1.0), ([1.6, -0.4], 0.1), ([1.0, -1.0], 0.8)])
def test_pairs_to_decide_are_those_in_which_continued_sequences_are_decided(pattern, margin):
    """Against sequences that are judged one by one; the limits are four standard errors of 400 sequences."""
    begun = pattern * 4
    mean, spread = float(np.mean(begun)), float(np.std(begun, ddof=1))
    assert sequential(begun, margin=margin).verdict == "undecided"
    needed = pairs_to_decide(len(begun), mean / spread, margin / spread)
    rng, decided = np.random.default_rng(1), 0
    for _ in range(400):
        differences = [*begun, *rng.normal(mean, spread, needed - len(begun))]
        looks = (sequential(differences[:n], margin=margin) for n in range(len(begun) + 1, needed + 1))
        decided += any(look.verdict != "undecided" for look in looks)
    assert 0.72 < decided / 400 < 0.88


def test_pairs_to_decide_are_more_than_there_are_or_unknown():
    assert all(pairs_to_decide(n, 0.4, 0.5) > n for n in (3, 20, 100))
    assert pairs_to_decide(20, 0.0, 0.01) is None
