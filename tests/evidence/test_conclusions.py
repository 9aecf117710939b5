"""What is concluded from which outcome is what the protocol says, on trials with made-up scores."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from evidence import controls, figures, page, small_batches, sweeps
from evidence.attribution import Attribution
from evidence.claims import CLAIMS
from evidence.data import read
from evidence.summary import TUNED, TWO_LAYERS
from evidence.tables import TUNING, grid
from evidence.wording import points

from evidence_trials import SEARCH, store, store_arm
from riesz_lab.store import Store
from riesz_lab.sweeps import tuning
from stored import store_trial


def diverge(trial):
    file = trial / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "diverged", "last": None, "best": None}))


def conclusion(runs, make):
    (claim,) = (claim for claim in CLAIMS if claim.sweep is make)
    return claim.conclude(read(runs).tables)


def test_a_claim_is_confirmed_denied_contradicted_or_undecided(tmp_path):
    gains = {"ReweightedL2 lam = 1": 0.01, "ReweightedL2 lam = 20": -0.01, "SobolevTilde lam = 20, as scale": -0.02}
    store(tmp_path, sweeps.lambda_mnist(), gains)
    confirmed, denied, contradicted = conclusion(tmp_path, sweeps.lambda_mnist)
    assert confirmed.startswith("confirmed in direction: ReweightedL2 lam = 1 (+1.00, ")
    assert denied.startswith("equal within 0.2 points: ReweightedL2 lam = 5 (+0.00, ")
    assert contradicted.startswith("contradicted at these settings: ReweightedL2 lam = 20 (-1.00, ")
    assert "SobolevTilde lam = 20, as scale (-2.00, " in contradicted
    store_arm(tmp_path, sweeps.lambda_mnist(), "ReweightedL2 lam = 5", 0.8, spread=0.005)
    (undecided,) = (line for line in conclusion(tmp_path, sweeps.lambda_mnist) if line.startswith("undecided"))
    assert "ReweightedL2 lam = 5 (+0.00, " in undecided
    assert "; detectable alone: " in undecided


def test_the_summary_leads_with_how_many_comparisons_are_better_also_if_none_is(tmp_path):
    def lead():
        return page.text(tmp_path).splitlines()[2:4]

    start, helps = f"- {TWO_LAYERS}", "that a metric improves test accuracy"
    undecided = "- Whether a metric improves test accuracy over SGD is undecided: no sweep is complete."
    assert lead() == [undecided, f"{start}, nothing is decided yet: trials are missing."]
    store(tmp_path, sweeps.lambda_fashion(), {"ReweightedL2 lam = 20": -0.01})
    store_arm(tmp_path, sweeps.lambda_fashion(), "ReweightedL2 lam = 5", 0.8, spread=0.0003)  # a wider interval
    worse = "1 worse, 5 equal within 0.2 points; worse only at lam = 20; mean differences -1.00 to +0.00 points."
    at_lam_1 = [
        read(tmp_path).tables["evidence-lambda-fashion"].comparisons[label].interval[1]
        for label in ("ReweightedL2 lam = 1", "SobolevTilde lam = 1, as scale")
    ]
    end = f"at lam = 1 on the two-layer CNN, 95% intervals end at {points(max(at_lam_1))} points or below."
    assert lead()[0] == f"- None of 6 comparisons with SGD shows {helps}; {end}"
    assert lead()[1] == f"{start}: 0 of 6 comparisons better, {worse}"
    for label, score in {"SGD (lam = 0)": 0.8, "ReweightedL2 lam = 5": 0.803}.items():
        store_arm(tmp_path, sweeps.lambda_mnist(), label, score)
    assert lead()[1] == f"{start}: 0 of 6 comparisons better, {worse}"  # that of an incomplete sweep is not counted
    store(tmp_path, sweeps.lambda_mnist(), {"ReweightedL2 lam = 1": 0.001, "ReweightedL2 lam = 5": -0.001})
    better = "1 of 12 comparisons better (1 of them by no more than 0.2 points)"
    worse = "2 worse (1 of them by no more than 0.2 points)"
    where = "better only at lam = 1; worse only at lam = 5 and 20"
    assert lead()[0] == f"- 1 of 12 comparisons with SGD shows {helps}."
    assert lead()[1].startswith(f"{start}: {better}, {worse}, 9 equal within 0.2 points; {where}; ")


def test_the_summary_says_where_a_gain_of_the_papers_size_would_have_gone_unseen(tmp_path):
    sweep = sweeps.regimes()
    unseen = "where the paper gains most, our 5 trials per arm vary too much to detect a gain of that size reliably."
    store(tmp_path, sweep, {})
    assert not page.text(tmp_path).splitlines()[2].endswith(unseen)
    for label in ("b8 lr 0.1 SGD + SobolevTilde", "b8 lr 0.1 SGD + ReweightedL2"):
        store_arm(tmp_path, sweep, label, 0.8, spread=0.05)
    assert page.text(tmp_path).splitlines()[2].endswith(unseen)


def test_a_gain_that_a_longer_step_explains_is_told_from_one_that_it_does_not(tmp_path):
    gains = {
        "plain SGD 0.02": 0.01, "ReweightedL2 lam = 1": 0.01,
        "plain SGD 0.06": 0.01, "ReweightedL2 lam = 5": 0.02, "SobolevTilde lam = 5, as scale": 0.001,
        "plain SGD 0.2": 0.0, "ReweightedL2 lam = 20": 0.01,
    }  # fmt: skip
    store(tmp_path, sweeps.plain_sgd(), gains)
    store_arm(tmp_path, sweeps.plain_sgd(), "plain SGD 0.2", 0.81, spread=0.005)
    lines = dict(line.split(": ", 1) for line in conclusion(tmp_path, sweeps.plain_sgd_matched))
    assert lines["ReweightedL2 lam = 1"].startswith(
        "the gain is step length; +1.00 in plain-sgd; against plain SGD 0.02: equal within 0.2 points (+0.00, "
    )
    assert lines["ReweightedL2 lam = 5"].startswith(
        "part of the gain is step length; +2.00 in plain-sgd; against plain SGD 0.06: better (+1.00, "
    )
    assert lines["ReweightedL2 lam = 20"].startswith(
        "open whether the gain is more than step length; +1.00 in plain-sgd; against plain SGD 0.2: undecided ("
    )
    assert lines["SobolevTilde lam = 5, as scale"].startswith("the gain is no larger than the margin: nothing to")
    store_arm(tmp_path, sweeps.plain_sgd(), "plain SGD 0.06", 0.8)
    lines = dict(line.split(": ", 1) for line in conclusion(tmp_path, sweeps.plain_sgd_matched))
    assert lines["ReweightedL2 lam = 5"].startswith("the gain is more than step length; +2.00 in plain-sgd")


def test_a_control_in_which_trials_diverged_attributes_nothing(tmp_path):
    store(tmp_path, sweeps.plain_sgd(), {"plain SGD 0.02": 0.01, "ReweightedL2 lam = 1": 0.01})
    found = read(tmp_path).tables
    then, now = (
        found[f"evidence-plain-sgd{kind}"].rows["ReweightedL2 lam = 1"].comparison for kind in ("", "-matched")
    )
    change = replace(then, difference=-then.difference)
    assert Attribution(then, now, change).fate == "gone"
    assert Attribution(then, replace(now, diverged=(1, 0)), change).fate == "open"


RATES = [0.01 * factor for factor in TUNING.factors]


def store_tuning(runs, best):
    """Trials that tune, of which `best` rate wins."""
    for arm in SEARCH.arms:
        for config in SEARCH.configs(arm):
            store_trial(runs, config, score=0.8 - abs(arm.config.lr - best) + 0.0002 * (config.seed % 2))


def test_a_gain_at_tuned_rates_counts_once_that_at_the_papers_rate_is_known(tmp_path):
    store_tuning(tmp_path, 0.02)
    store(tmp_path, read(tmp_path).tables["evidence-tuned-fashion"].sweep, {"SGD + ReweightedL2": 0.01})
    assert conclusion(tmp_path, sweeps.tuned_fashion) == ["not decided: trials of evidence-lambda-fashion are missing"]
    store(tmp_path, sweeps.lambda_fashion(), {"SobolevTilde lam = 1, as scale": 0.01})
    tilde, reweighted = conclusion(tmp_path, sweeps.tuned_fashion)
    assert tilde.startswith(
        "SGD + SobolevTilde: the gain is a matter of the rate; +1.00 in lambda-fashion; at rate 0.02 against SGD at"
        " 0.02: equal"
    )
    assert reweighted.startswith(
        "SGD + ReweightedL2: a gain here; in lambda-fashion equal within 0.2 points; at rate 0.02 against SGD at 0.02:"
        " better (+1.0"
    )


@pytest.mark.parametrize(("sgds_rate", "same"), [(0.01, True), (0.02, False)])
def test_the_very_trials_of_another_claim_are_no_second_finding(tmp_path, sgds_rate, same):
    for arm in SEARCH.arms:
        best = sgds_rate if arm.config.metric == "identity" else 0.01
        for config in SEARCH.configs(arm):
            store_trial(tmp_path, config, score=0.8 - abs(arm.config.lr - best))
    store(tmp_path, sweeps.lambda_fashion(), {})
    store(tmp_path, read(tmp_path).tables["evidence-tuned-fashion"].sweep, {"SGD + ReweightedL2": 0.01})
    _, reweighted = conclusion(tmp_path, sweeps.tuned_fashion)
    assert ("the same trials as above, so nothing new" in reweighted) == same
    text = page.text(tmp_path)
    section = text.split("### tuned-fashion\n")[1].split("###")[0]
    assert ("- SGD + ReweightedL2: the trials of lambda-fashion at lam = 1; see there." in section) == same
    counted = ": all chose the rate above, so that trials and verdicts are those above."
    assert f"- {TUNED}{counted if same else ': 1 of 2 comparisons'}" in text
    alt = next(iter(figures.figures(read(tmp_path)).values())).alt
    assert ("tuned-fashion" in alt) != same
    assert ("### tuned-fashion-controls" in text) != same  # one control, in the sweep that has the trials


def test_a_rate_at_the_edge_of_the_grid_decides_nothing(tmp_path):
    store_tuning(tmp_path, max(RATES))
    text = page.text(tmp_path)
    row = next(line for line in text.splitlines() if "Not in the paper, which tunes no rate" in line)
    assert "30 of 36 that tune | not decided: trials are missing" in row  # three arms, two seeds, one more rate
    assert "| SGD lr 0.08 | 0/2 |" in text


@pytest.mark.parametrize(("best", "furthest"), [(0.0, 1 / 64), (10.0, 64.0)])
def test_the_grid_ends_where_the_protocol_says(tmp_path, best, furthest):
    found = None
    while (wider := grid(Store(tmp_path))) != found:
        found = wider
        for config in tuning.search(sweeps.tuned_fashion(), found).all_configs():
            store_trial(tmp_path, config, score=0.8 - 0.01 * abs(config.lr - best))
    assert furthest in (min(found.factors), max(found.factors))
    assert len(found.factors) == 9
    text = page.text(tmp_path)
    assert "- At the edge of the grid, which was extended 4 times, so a better rate may lie beyond it: SGD, " in text
    assert "| 0 of 15 | not decided: trials are missing |" in text  # at the rates that are chosen all the same


def test_an_arm_that_diverges_at_every_rate_is_named(tmp_path):
    store_tuning(tmp_path, 0.02)
    for arm in SEARCH.arms:
        if arm.config.metric.startswith("reweighted"):
            diverge(store_trial(tmp_path, SEARCH.configs(arm)[0]))
    row = next(line for line in page.text(tmp_path).splitlines() if "Not in the paper, which tunes no rate" in line)
    assert "not decided: arm 'SGD + ReweightedL2' diverged at every rate of the grid" in row


def test_trials_that_tune_are_planned_and_shown(tmp_path):
    store_tuning(tmp_path, 0.02)
    lines = page.text(tmp_path).splitlines()
    assert lines[6].startswith("- 30 of 229 planned trials are complete")
    means = " | ".join(f"{80.01 - 100 * abs(rate - 0.02):.2f}" for rate in RATES)  # of two seeds, by rate
    assert f"| SGD | {means} | 0.02 |" in lines
    precision = (
        "- All are scored on the same 1,000 images, 2 trials each. The standard error of one accuracy on so many is"
    )
    assert any(line.startswith(f"{precision} 1.3 points: ") for line in lines)  # of 80.01%
    store(tmp_path, read(tmp_path).tables["evidence-tuned-fashion"].sweep, {})
    assert page.text(tmp_path).splitlines()[6].startswith("- 45 of 229 planned trials")


BEST = "b8 lr 0.03 SGD"


@pytest.mark.parametrize(
    ("at_sgds_rate", "spread", "elsewhere", "outcome"),
    [
        (0.0, 0.0001, 0.0, "the gain is a matter of the rate"),
        (0.0145, 0.0001, 0.0, "the gain is more than a matter of the rate"),
        (0.0140, 0.0001, 0.0, "the gain is more than a matter of the rate"),  # a change within the margin
        (0.01, 0.0001, 0.0, "the gain is more than a matter of the rate, though part of it is one"),
        (0.0, 0.0001, 0.04, "the gain is more than a matter of the rate"),  # at the rate that suits the metric
        (0.0, 0.005, 0.0, "open whether the gain is more than a matter of the rate"),
    ],
)
def test_the_gain_of_small_batches_is_read_at_the_rates_that_suit_too(
    tmp_path, at_sgds_rate, spread, elsewhere, outcome
):
    sweep = sweeps.regimes()
    gains = {"b8 lr 0.1 SGD + SobolevTilde": 0.0145, BEST: 0.02, f"{BEST} + ReweightedL2": 0.02}
    store(tmp_path, sweep, gains | {"b8 lr 0.01 SGD + SobolevTilde": elsewhere})
    store_arm(tmp_path, sweep, f"{BEST} + SobolevTilde", 0.82 + at_sgds_rate, spread)
    tilde, reweighted = small_batches.explain(read(tmp_path).tables[sweep.name])
    assert tilde.startswith("SobolevTilde: confirmed in direction; batch 8, rate 0.1: +1.45, ")
    assert "; the paper's +1.45 is within the interval; " in tilde
    assert "; at 0.03, SGD's best rate (82.00%; chosen on these scores, which favours SGD): " in tilde
    assert ("the metric at 0.01, the edge of what was run, each at its best: " in tilde) == bool(elsewhere)
    outcome += ", as far as the rates that were run tell" * bool(elsewhere)
    assert tilde.endswith(f"; {outcome}")
    assert reweighted.startswith("ReweightedL2: equal within 0.2 points; ")
    assert "the paper's +1.50 is outside the interval" in reweighted
    assert "matter of the rate" not in reweighted
    summary = page.text(tmp_path).splitlines()[5]
    assert ": SobolevTilde confirmed in direction (+1.45, " in summary
    assert f"), {outcome}; ReweightedL2 equal within 0.2 points (" in summary


@pytest.mark.parametrize(
    ("gain", "outcome"), [(0.015, "no rate that was run suits SGD better"), (0.001, "a gain within")]
)
def test_a_gain_at_the_rate_that_suits_sgd_best_has_an_edge_too(tmp_path, gain, outcome):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD": 0.02, "b8 lr 0.1 SGD + SobolevTilde": 0.02 + gain})
    store_arm(tmp_path, sweep, "b8 lr 0.03 SGD + SobolevTilde", 0.86)
    tilde = small_batches.explain(read(tmp_path).tables[sweep.name])[0]
    conclusion = tilde.split("; ")[-1]
    assert conclusion.startswith(outcome)
    assert ("as far as the rates that were run tell" in conclusion) == (gain > 0.002)
    assert ("yet by no more than 0.2 points" in tilde.split(";")[0]) == (gain < 0.002)
    assert "; SGD at 0.1, the edge of what was run, and the metric at 0.03, each at its best: " in tilde


@pytest.mark.parametrize(
    ("small", "large", "outcome", "word"),
    [
        (0.015, 0.0, "confirmed in direction", "higher (+1.5"),
        (0.015, 0.05, "a gain, yet a smaller one than at batch 128", "lower (-3.5"),
        (0.015, 0.015, "a gain, yet no larger one than at batch 128", "no difference (+0.00"),
        (-0.01, -0.02, "contradicted at these settings", "higher (+1.0"),
        (0.0, 0.02, "contradicted, less than at batch 128", "lower (-2.0"),
    ],
)
def test_whether_small_batches_gain_most_is_tested_by_seed(tmp_path, small, large, outcome, word):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD + SobolevTilde": small, "b128 lr 0.1 SGD + SobolevTilde": large})
    table = read(tmp_path).tables[sweep.name]
    tilde, everywhere = small_batches.explain(table)[0], small_batches.conclude(table)[-1]
    assert tilde.startswith(f"SobolevTilde: {outcome}; ")
    assert tilde.split("; the first difference minus the second: ")[1].startswith(word)
    assert (", no gain shown at either" in tilde) == (small < 0)
    shorter = {"higher": "higher than", "lower": "lower than", "no": "within the margin of"}[word.split()[0]]
    assert f"; {shorter} that at batch 128)" in small_batches.in_short(table).partition("; ReweightedL2")[0]
    verdict = "better" if small > 0 else "worse"
    listed = f"; {verdict}: b8 lr 0.1 SGD + SobolevTilde ({100 * small:+.2f}, "
    assert (listed in everywhere) == bool(small)


def test_what_differs_at_any_batch_size_is_named_with_its_control_and_the_other_metric(tmp_path):
    sweep, label = sweeps.regimes(), "b128 lr 0.1 SGD + SobolevTilde"
    store(tmp_path, sweep, {label: -0.02})
    table = read(tmp_path).tables[sweep.name]
    other = "; b128 lr 0.1 SGD + ReweightedL2: equal within 0.2 points, +0.00, "
    assert other in small_batches.conclude(table)[-1].partition(f"; worse: {label} (-2.00, ")[2]
    found = controls._stored(sweep.name, tmp_path)

    def named():
        by_name = read(tmp_path).tables
        return small_batches.in_short(by_name[sweep.name], by_name[found.name])

    assert "; worse: SobolevTilde at batch 128 and rate 0.1 (-2.00, " in named()
    store_arm(tmp_path, found, f"{label}, norm kept", 0.79)
    assert "with the norm" not in named()  # the other control is missing
    store_arm(tmp_path, found, f"{label}, channels permuted", 0.78)
    assert "), with the norm of the gradient kept worse (-1.00, " in named()


def test_pairs_that_are_missing_decide_nothing_of_small_against_large_batches(tmp_path):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b128 lr 0.1 SGD + SobolevTilde": 0.05})
    assert "minus the second: lower" in small_batches.explain(read(tmp_path).tables[sweep.name])[0]
    # SGD fails where the metric does not: the pair that would speak most for the metric. Then both fail.
    for label in ("b8 lr 0.1 SGD", "b8 lr 0.1 SGD + SobolevTilde"):
        diverge(store_trial(tmp_path, sweep.configs(sweep[label])[0]))
        assert "minus the second: undecided" in small_batches.explain(read(tmp_path).tables[sweep.name])[0]


def test_one_comparison_has_one_verdict(tmp_path):
    """SGD and the metric at one rate: a cell of the table, not a second comparison with other corrections."""
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {BEST: 0.02, f"{BEST} + SobolevTilde": 0.02, f"{BEST} + ReweightedL2": 0.02})
    assert all("each at its best" not in line for line in small_batches.explain(read(tmp_path).tables[sweep.name]))
    store_arm(tmp_path, sweep, "b8 lr 0.01 SGD + SobolevTilde", 0.83)
    tilde, reweighted = small_batches.explain(read(tmp_path).tables[sweep.name])
    assert "; SGD at 0.03, and the metric at 0.01, the edge of what was run, each at its best: " in tilde
    assert "each at its best" not in reweighted


def test_trials_that_diverged_are_counted_and_conclude_nothing(tmp_path):
    sweep = sweeps.regimes()
    store(tmp_path, sweep, {"b8 lr 0.1 SGD + ReweightedL2": 0.02})
    for config in sweep.configs(sweep["b8 lr 0.1 SGD"]):
        diverge(store_trial(tmp_path, config))
    page_text = page.text(tmp_path)
    complete = "90 of 229 planned trials are complete, after 0.0 hours of training on one core each"
    assert f"{complete}; 5 of them diverged or collapsed;" in page_text
    no_claim = "no claim (no pair of scores; failed: 0 of 5, of the baseline's 5; the paper: +1.45; at 0.03, SGD's"
    assert f": SobolevTilde {no_claim}" in page_text
    assert "| b8 lr 0.1 SGD | 5/5, 5 diverged |  | - |" in page_text
    assert "nan" not in page_text
