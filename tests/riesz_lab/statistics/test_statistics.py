"""The claims: nominal coverage, agreement with scipy, and what is decided for cases that are no textbook's."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from riesz_lab.statistics import adjusted, components, crossed, holm, independent, paired
from riesz_lab.statistics.verdict import Verdict, format_difference, format_margin


def by_seed(values):
    return dict(enumerate(values))


def draw(seed, n, shift=0.0, spread=0.01):
    """Scores of two methods that share half of their variance, as pairs do."""
    chance = np.random.default_rng(seed)
    shared = chance.normal(0.9, spread, n)
    return shared + chance.normal(0, spread, n), shared + shift + chance.normal(0, spread, n)


def band(share, count):
    """Where a share estimated from so many simulations lies with 99% probability."""
    low, high = stats.binom.ppf((0.005, 0.995), count, share) / count
    return low, high


# -- simulation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_interval_covers_and_test_errs_as_often_as_they_say(n):
    count, true = 40_000, 0.3
    chance = np.random.default_rng(n)

    def differences(shift):
        # Two methods on the same seeds: what a seed does to both is in neither difference.
        seeds = chance.normal(0, 3, (count, n))
        baseline, method = seeds + chance.normal(0, 1, (count, n)), seeds + shift + chance.normal(0, 1.5, (count, n))
        return independent(method - baseline)

    low, high = differences(true).interval()
    covered = np.mean((low <= true) & (true <= high))
    false_positives = np.mean(differences(0.0).p() < 0.05)
    least, most = band(0.95, count)
    print(f"n = {n}: coverage {covered:.4f}, false positives {false_positives:.4f}; 99% band {least:.4f} to {most:.4f}")
    assert least <= covered <= most
    assert 1 - most <= false_positives <= 1 - least


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_equivalence_is_claimed_wrongly_in_at_most_one_of_twenty(n):
    count, margin = 40_000, 0.5
    values = np.random.default_rng(n).normal(margin, 0.3, (count, n))  # the true difference is the margin itself
    claimed = np.mean(independent(values).p_beyond(margin) < 0.05)
    assert claimed <= band(0.05, count)[1]


@pytest.mark.parametrize("n", [3, 5, 20])
def test_the_detectable_difference_is_detected_in_four_of_five(n):
    count = 20_000
    unit = independent(np.array([-1.0, 1.0] * n)[:n])
    # In units of the true standard error, which `detectable` scales with.
    shift = unit.detectable() / unit.error / math.sqrt(n)
    values = np.random.default_rng(n).normal(shift, 1.0, (count, n))
    assert band(0.8, count)[0] - 0.001 <= np.mean(independent(values).p() < 0.05) <= band(0.8, count)[1] + 0.001


@pytest.mark.parametrize("sources", [(1.0, 0.0, 0.3), (0.5, 0.5, 0.5), (0.0, 0.0, 1.0)])
def test_crossed_seeds_do_not_claim_too_much(sources):
    chance, count = np.random.default_rng(1), 10_000
    rows, columns, rest = sources
    grid = (
        chance.normal(0, 1, (count, 5, 1)) * rows
        + chance.normal(0, 1, (count, 1, 5)) * columns
        + chance.normal(0, 1, (count, 5, 5)) * rest
    )
    # Satterthwaite's is an approximation, and where nothing is shared it errs on the safe side.
    assert np.mean(crossed(grid).p() < 0.05) <= 0.06
    if rows:
        assert np.mean(independent(grid.reshape(count, 25)).p() < 0.05) > 0.1, "as if independent, it would"


def test_holm_keeps_the_chance_of_any_false_claim_in_a_table_below_one_in_twenty():
    count, tests, n = 4000, 10, 5
    chance = np.random.default_rng(0)
    p = independent(chance.normal(0, 1, (count, tests, n))).p()
    wrong = np.mean([min(adjusted(list(row))) < 0.05 for row in p])
    assert band(0.05, count)[0] - 0.005 <= wrong <= band(0.05, count)[1]


# -- agreement with scipy ------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(3, 30), st.floats(-0.02, 0.02))
def test_agrees_with_scipy(seed, n, shift):
    baseline, method = draw(seed, n, shift)
    found = paired(by_seed(baseline), by_seed(method), margin=0.005)
    test = stats.ttest_rel(method, baseline)
    assert found.p == pytest.approx(test.pvalue, rel=1e-9)
    assert found.interval == pytest.approx(tuple(test.confidence_interval()), rel=1e-9, abs=1e-12)
    difference = method - baseline
    above = stats.ttest_1samp(difference, -0.005, alternative="greater").pvalue
    below = stats.ttest_1samp(difference, 0.005, alternative="less").pvalue
    assert found.p_margin == pytest.approx(max(above, below), rel=1e-9)
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(difference).pvalue)
    assert found.p_variance == pytest.approx(stats.levene(baseline, method, center="median").pvalue)
    assert found.variance_ratio == pytest.approx(np.var(method) / np.var(baseline))
    boot = stats.bootstrap((difference,), np.mean, method="BCa", rng=0).confidence_interval
    assert found.bootstrap == pytest.approx((boot.low, boot.high))


def test_holm_agrees_with_the_textbook_and_counts_undefined_tests():
    assert adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjusted([0.01, None]) == [0.02, None]
    assert adjusted([]) == []


def test_fisher_agrees_with_scipy():
    found = paired(by_seed([math.nan] * 4 + [0.9] * 4), by_seed([0.9, 0.91, 0.92, 0.9] * 2), margin=0.002)
    assert found.collapsed == (4, 0)
    assert found.p_collapsed == pytest.approx(stats.fisher_exact([[4, 4], [0, 8]]).pvalue)


# -- error reduced -------------------------------------------------------------------------------------------------


def test_a_score_that_is_no_fraction_has_no_error():
    likelihoods = by_seed([-2.1, -2.2, -2.0]), by_seed([-1.9, -1.8, -1.7])
    assert paired(*likelihoods, margin=0.1, percent=False).error_reduced is None


def test_error_reduced_is_the_papers():
    found = paired(by_seed([0.8654] * 2), by_seed([0.8799] * 2), margin=0.002)
    assert found.error_reduced == pytest.approx(100 * (1 - (1 - 0.8799) / (1 - 0.8654)))


@given(st.integers(0, 2**32 - 1), st.integers(3, 12), st.floats(-0.02, 0.02))
def test_error_interval_excludes_zero_exactly_when_the_primary_interval_does(seed, n, shift):
    baseline, method = draw(seed, n, shift, spread=0.005)
    found = paired(by_seed(baseline), by_seed(method), margin=0.002)
    low, high = found.error_interval
    assert low <= found.error_reduced <= high
    assert (low > 0 or high < 0) == (found.interval[0] > 0 or found.interval[1] < 0)


def test_error_interval_covers():
    chance, n, covered, count = np.random.default_rng(3), 5, 0, 2000
    from riesz_lab.statistics.secondary import error_reduced

    for _ in range(count):
        shared = chance.normal(0, 0.01, n)
        _, (low, high) = error_reduced(0.2 + shared, 0.15 + shared + chance.normal(0, 0.01, n))
        covered += low <= 25 <= high
    assert band(0.95, count)[0] <= covered / count <= band(0.95, count)[1]


# -- verdicts ------------------------------------------------------------------------------------------------------

BASE = [0.900, 0.905, 0.895, 0.902, 0.898]


def shifted(*differences):
    return by_seed([base + difference for base, difference in zip(BASE, differences, strict=False)])


@pytest.mark.parametrize(
    ("method", "verdict", "reason", "told"),
    [
        (shifted(0.010, 0.011, 0.009, 0.012, 0.010), "better", "", r"better: \+1\.04 \(\+0\.90 to \+1\.18\) points"),
        (shifted(-0.010, -0.011, -0.009, -0.012, -0.010), "worse", "", r"worse: -1\.04 "),
        (shifted(0.0003, 0.0005, -0.0002, 0.0001, -0.0004), "same", "", r"same \(within 0\.20 points\): \+0\.006 \("),
        (
            shifted(0.02, -0.015, 0.01, -0.02, 0.001),
            "undecided",
            "",
            r"undecided: -0\.1 \(.*\) points, p = .*, 5 pairs$",
        ),
        (shifted(0, 0, 0, 0, 0), "undecided", "a score without spread takes 1,497 of them to exclude the margin", ""),
        (shifted(0.01, 0.01, 0.01, 0.01, 0.01), "undecided", "the same in all 5 pairs, so its spread is unknown", ""),
        (shifted(0.01, 0.02), "undecided", "2 pairs; at least 3 are needed", ""),
        (shifted(0.01), "undecided", "1 pair; at least 3", ""),
        ({}, "undecided", "no pairs of scores yet", "0 pairs"),
        (dict.fromkeys(range(5)), "undecided", "the method alone in 5", "diverged: 5 of 5 trials"),
        (shifted(0.0010, 0.0011, 0.0009, 0.0012, 0.001), "better", "by less than the margin", "better: "),
    ],
)
def test_verdicts(method, verdict, reason, told):
    found = paired(by_seed(BASE), method, margin=0.002)
    assert found.verdict == verdict
    assert (reason in found.reason) if reason else not found.reason
    assert re.search(told, found.sentence), found.sentence


def test_lower_is_better_turns_the_verdict_and_nothing_else():
    sgd, ours = by_seed([61.0, 62.5, 60.1, 63.0]), by_seed([56.2, 57.0, 55.6, 57.9])
    found = paired(sgd, ours, margin=1.0, higher_is_better=False, percent=False)
    assert found.verdict == "better"
    assert found.difference < 0
    assert found.wins == 4
    assert found.error_reduced == pytest.approx(100 * (1 - 226.7 / 246.6))
    assert "points" not in found.sentence
    assert paired(ours, sgd, margin=1.0, higher_is_better=False, percent=False).verdict == "worse"


def test_ties_are_counted_and_rounding_is_no_difference():
    found = paired(by_seed([0.3, 0.9, 0.9]), by_seed([0.1 + 0.2, 0.91, 0.89]), margin=0.002)
    assert (found.wins, found.ties, found.losses) == (1, 1, 1)


def test_pairs_that_miss_a_partner_are_left_out_and_told():
    found = paired(by_seed(BASE), {7: 0.5, **shifted(0.01, 0.012, 0.009)}, margin=0.002)
    assert (found.n, found.unpaired) == (3, 3)
    assert "left out, without a partner: 3 trials" in found.sentence


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_no_claim_in_favour_of_a_side_that_diverged(lost):
    gain = shifted(0.010, 0.011, 0.009, 0.012, 0.010)
    found = paired(by_seed(BASE), {**gain, 2: lost}, margin=0.002)
    assert found.verdict == "undecided"
    assert found.n == 4
    assert found.reason == "trials diverged: the baseline alone in 0 pairs, the method alone in 1"
    assert "1 of 5 trials, baseline 0" in found.sentence
    # Divergence of the baseline speaks for the method: the claim stands.
    assert paired({**by_seed(BASE), 2: lost}, gain, margin=0.002).verdict == "better"
    assert paired(gain, {**by_seed(BASE), 2: lost}, margin=0.002).verdict == "worse"
    same = shifted(0.0003, 0.0005, -0.0002, 0.0001, -0.0004)
    assert paired(by_seed(BASE), {**same, 2: lost}, margin=0.002).verdict == "undecided"
    assert paired(by_seed(BASE), {**by_seed(BASE), 2: lost}, margin=0.002).verdict == "undecided"


@pytest.mark.parametrize(("pairs", "verdict"), [(3, "undecided"), (148, "undecided"), (149, "same")])
def test_ties_are_the_same_only_in_a_number_that_excludes_the_margin(pairs, verdict):
    scores = by_seed([0.0] * pairs)
    found = paired(scores, scores, margin=0.02)
    assert (found.verdict, found.interval, found.p) == (verdict, None, None)
    assert found.reason.startswith(f"identical scores in all {pairs} pairs")
    assert ("takes 149 of them" in found.reason) == (verdict == "undecided")
    # A table of several comparisons corrects these claims too.
    assert holm(dict.fromkeys(range(2), found))[0].verdict == "undecided"


@pytest.mark.parametrize(("score", "percent"), [(1.5, False), (95.0, True), (-1.0, True)])
def test_ties_of_scores_without_known_bounds_exclude_nothing(score, percent):
    scores = by_seed([score] * 5000)
    found = paired(scores, scores, margin=0.02, percent=percent)
    assert found.verdict == "undecided"
    assert found.reason.endswith("a score without spread or known bounds excludes no difference")


def test_ties_of_pairs_that_share_seeds_count_once_per_seed():
    scores = {(i, j): 1.0 for i in range(13) for j in range(13)}
    assert paired(scores, scores, margin=0.2).verdict == "undecided"
    scores = {(i, j): 1.0 for i in range(14) for j in range(14)}
    assert paired(scores, scores, margin=0.2).verdict == "same"


def test_a_collapsed_score_counts_and_stays_in_the_mean():
    found = paired(by_seed(BASE), {**shifted(0, 0, 0, 0, 0), 1: 0.1}, margin=0.002, collapsed=0.15)
    assert found.collapsed == (0, 1)
    assert found.n == 5
    assert found.diverged == (0, 0)


def test_correction_may_take_a_claim_back_and_says_so():
    weak = paired(by_seed(BASE), shifted(0.012, 0.001, 0.009, 0.004, 0.010), margin=0.002)
    assert weak.verdict == "better"
    table = holm({number: replace(weak) for number in range(20)})
    assert table[0].verdict == "undecided"
    assert table[0].reason.endswith(" after the correction for 20 comparisons")


def test_seeds_that_are_shared_are_not_taken_as_independent():
    chance = np.random.default_rng(0)
    base = {(i, j): 0.9 for i in range(4) for j in range(4)}
    by_row = chance.normal(0.004, 0.005, 4)
    mine = {(i, j): 0.9 + by_row[i] + chance.normal(0, 0.0005) for i, j in base}
    found = paired(base, mine, margin=0.002)
    naive = paired(by_seed(base.values()), by_seed(mine.values()), margin=0.002)
    assert found.crossed
    assert not naive.crossed
    assert found.difference == pytest.approx(naive.difference)
    assert found.interval[1] - found.interval[0] > 2 * (naive.interval[1] - naive.interval[0])
    assert found.bootstrap is found.p_wilcoxon is found.error_interval is None
    # Incomplete columns are left out; one seed for all leaves nothing shared between the others.
    assert paired(base, {k: v for k, v in mine.items() if k != (3, 3)}, margin=0.002).crossed
    assert not paired(*({k: v for k, v in side.items() if k[0] == 0} for side in (base, mine)), margin=0.002).crossed
    odd = [(0, 0), (0, 1), (1, 2), (2, 3)]
    scattered = paired(*({k: side[k] for k in odd} for side in (base, mine)), margin=0.002)
    assert scattered.verdict == "undecided"
    assert "need a full grid" in scattered.sentence


def test_an_incomplete_grid_has_one_set_of_pairs_for_difference_and_interval():
    base = {(i, j): 0.9 for i in range(4) for j in range(4)}
    chance = np.random.default_rng(0)
    mine = {key: 0.9 + chance.normal(0, 0.001) for key in base}
    mine[0, 3], mine[1, 3] = 1.2, None
    found = paired(base, mine, margin=0.002)
    full = {key: value for key, value in mine.items() if key[1] != 3}
    whole = paired(dict.fromkeys(full, 0.9), full, margin=0.002)
    assert (found.n, found.trials, found.diverged) == (12, 16, (0, 1))
    for name in ("difference", "interval", "baseline_mean", "method_mean", "wins", "error_reduced", "variance_ratio"):
        assert getattr(found, name) == getattr(whole, name), name
    assert "12 of 16 pairs form a full grid of seeds, the others are left out" in found.sentence


def test_components_tell_where_the_spread_comes_from():
    chance = np.random.default_rng(0)
    rows, columns = chance.normal(0, 0.03, 40), chance.normal(0, 0.01, 40)
    scores = {(i, j): rows[i] + columns[j] + chance.normal(0, 0.005) for i in range(40) for j in range(40)}
    found = components(scores)
    assert found.initialisation == pytest.approx(0.03, rel=0.3)
    assert found.data == pytest.approx(0.01, rel=0.3)
    assert found.rest == pytest.approx(0.005, rel=0.1)
    assert components({(i, i): 0.9 for i in range(5)}) is None


def test_one_difference_is_rounded_the_same_way_however_it_was_computed():
    tie = 0.00025  # of a point, 0.025: the last bit decides between 0.02 and 0.03
    around = (math.nextafter(tie, 0), tie, math.nextafter(tie, 1))
    assert {format_difference(value, (0.0, 0.001), "points") for value in around} == {
        "+0.025 (+0.000 to +0.100) points"
    }
    assert {format_difference(value, (-0.001, 0.002), "points") for value in around} == {
        "+0.03 (-0.10 to +0.20) points"
    }


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(ValueError, match=r"margin: expected a number above 0"):
        paired({}, {}, margin=margin)


@given(
    st.dictionaries(st.integers(0, 9), st.one_of(st.none(), st.floats()), max_size=8),
    st.dictionaries(st.integers(0, 9), st.one_of(st.none(), st.floats()), max_size=8),
)
def test_nothing_breaks_it(baseline, method):
    found = holm({0: paired(baseline, method, margin=0.002)})[0]
    assert found.sentence
    assert found.n + sum(found.diverged) <= found.trials


# -- what is printed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("difference", "interval", "unit", "shown"),
    [
        (0.0102, (0.0079, 0.0126), "points", "+1.02 (+0.79 to +1.26) points"),
        (-0.01, (-0.0327, 0.0127), "points", "-1.0 (-3.3 to +1.3) points"),
        (0.00016, (-0.0000091, 0.00033), "", "+0.00016 (-0.00001 to +0.00033)"),
        (12.3, (-40.0, 64.6), "", "+12 (-40 to +65)"),
        (0.1 + 0.2 - 0.3, (-0.0996, 0.0996), "", "+0.00 (-0.10 to +0.10)"),
        (0.2504, (0.0001, 0.5007), "", "+0.25 (+0.00 to +0.50)"),
        (0.034, None, "points", "+3.4 points"),
        (0.034, (-math.inf, math.inf), "", "+0.034"),
        (0.0, None, "points", "+0.00 points"),
        (math.nan, None, "points", ""),
    ],
)
def test_a_difference_has_the_digits_that_its_interval_deserves(difference, interval, unit, shown):
    assert format_difference(difference, interval, unit) == shown


def test_a_margin_has_two_digits_and_its_unit():
    assert [format_margin(*each) for each in ((0.002, "points"), (0.0312, ""), (3.0, ""), (1e-6, ""))] == [
        "0.20 points", "0.031", "3.0", "0.0000010",
    ]  # fmt: skip


def test_a_verdict_is_one_of_four_words():
    assert [f"{verdict}" for verdict in Verdict] == ["better", "worse", "same", "undecided"]
    assert Verdict.SAME == "same"
