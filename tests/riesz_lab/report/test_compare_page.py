"""The page of one comparison: the answer first, then only what its own trials show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from riesz_lab.commands.demo import demo_sweep
from riesz_lab.report.compare_page import compare_content
from riesz_lab.report.figures.pairs import expected_best, pairs, rate_curves
from riesz_lab.report.markdown import markdown
from riesz_lab.report.page import html
from riesz_lab.statistics.sequential import sequential
from riesz_lab.store import Store
from riesz_lab.store.comparison import ComparisonRecord, RateRecord
from riesz_lab.sweeps import results
from stored import store_trial

GAIN = {0: 0.01, 1: 0.012, 2: 0.008, 3: 0.011}


def score(config):
    return 0.9 + 0.002 * config.seed + (GAIN[config.seed] if config.metric != "identity" else 0.0)


@pytest.fixture
def runs(tmp_path):
    for config in demo_sweep(4).all_configs():
        store_trial(tmp_path, config, score=score(config))
    return tmp_path


@pytest.fixture
def table(runs):
    return results(demo_sweep(4), Store(runs))


def tuned_record():
    points = [
        RateRecord(label=label, settings={"lr": rate}, held_out=scores)
        for label in ("SGD", "ReweightedL2")
        for rate, scores in ((0.1, [0.79, 0.81]), (0.01, [0.89, 0.91]), (1.0, [None, None]))
    ]
    best = {"SGD": {"lr": 0.01}, "ReweightedL2": {"lr": 0.01}}
    texts = {"answers": ["It helps."], "warnings": [], "next_steps": [], "notes": []}
    return ComparisonRecord(
        function="train", score="accuracy", higher_is_better=True, margin=0.01, sequential=True, budget=9, arms=[],
        tuned=points, best=best, tuning_trials=12, tuning_seconds=1.0, **texts,
    )  # fmt: skip


def test_the_answer_and_its_picture_come_before_the_contents(runs, table):
    page = html(compare_content(table, Store(runs), "Does it help?"))
    answer = page.index("better by 1.02 points")
    picture = page.index('id="figure-pairs"')
    assert page.index("<h1>Does it help?</h1>") < answer < picture < page.index('<nav aria-label="Contents">')
    assert page.startswith("<!doctype html>")
    assert page.count("<nav ") == 1


def test_nothing_of_the_paper_is_on_it(runs, table):
    text = html(compare_content(table, Store(runs), "Does it help?")).partition("<script>")[0].lower()
    assert "the paper" not in text
    assert "riesz sweep" not in text


def test_every_pair_is_a_dot_and_the_mean_has_the_interval(table):
    series = pairs(table).panels[0].series
    dots, mean = series[0], next(one for one in series if one.name.startswith("mean"))
    assert sorted(dots.y) == pytest.approx([0.8, 1.0, 1.1, 1.2])
    low, high = table.comparisons["ReweightedL2"].interval
    assert mean.low == [pytest.approx(100 * low)]
    assert mean.high == [pytest.approx(100 * high)]


def test_looks_replace_the_statistics_of_a_fixed_number_of_pairs(runs, table):
    judged = {label: sequential(list(GAIN.values()), margin=0.005, arms=2) for label in table.comparisons}
    record = replace(tuned_record(), next_steps=["Attach it."], notes=["Why."])
    content = compare_content(table, Store(runs), "Title", record=record, judged=judged)
    assert content.sections[0].text == ["It helps.", "Attach it."]
    assert not content.sections[0].findings
    text = markdown(content)
    assert "interval, valid at every look" in text
    assert "Holm" not in text
    mean = next(one for one in content.sections[0].blocks[0].panels[0].series if one.name.startswith("mean"))
    low, high = judged["ReweightedL2"].interval
    assert (mean.low, mean.high) == ([pytest.approx(100 * low)], [pytest.approx(100 * high)])


def test_markdown_explains_no_drawing_and_no_link_that_it_does_not_have(runs, table, tmp_path):
    content = compare_content(table, Store(runs), "Title", home=tmp_path)
    text = markdown(content)
    for explanation in ("A dot is a pair", "bands are", "Links lead to"):
        assert explanation in html(content)
        assert explanation not in text
    assert "(drawn on the HTML page): ReweightedL2: pairs won 4, tied 0, lost 0." in text
    assert "Links lead to" not in html(compare_content(table, Store(runs), "Title"))


def test_pairs_beyond_the_last_look_are_not_in_the_picture(table):
    """An arm that was stopped may have more trials, as another's baseline or of an earlier comparison."""
    judged = {label: sequential(list(GAIN.values())[:3], margin=0.005) for label in table.comparisons}
    figure = pairs(table, judged)
    dots, mean = (next(one for one in figure.panels[0].series if one.name.startswith(name)) for name in ("one", "mean"))
    assert dots.y == pytest.approx([1.0, 1.2, 0.8])
    assert mean.y == [pytest.approx(1.0)]
    assert figure.alt.startswith("ReweightedL2: pairs won 3, tied 0, lost 0.")


def test_settings_that_are_not_set_are_not_listed(runs, table):
    sections = {section.name: section for section in compare_content(table, Store(runs), "Title").sections}
    shared = {row[0]: row[1] for row in sections["settings"].blocks[0].rows}
    assert shared["optimizer"]
    assert all(shared.values())


def test_rates_are_shown_when_they_were_tuned(runs, table):
    names = [section.name for section in compare_content(table, Store(runs), "Title").sections]
    assert "rates" not in names
    assert {"curves", "layers", "times", "settings", "trials"} <= set(names)
    content = compare_content(table, Store(runs), "Title", record=tuned_record())
    sections = {section.name: section for section in content.sections}
    curves, budget = sections["rates"].blocks
    assert curves.panels[0].series[0].x == [0.01, 0.1]
    assert curves.panels[0].series[0].y == pytest.approx([90.0, 80.0])
    assert curves.panels[0].series[0].low == pytest.approx([90 - 2**0.5, 80 - 2**0.5])
    assert curves.panels[0].log_x
    # One trial at random: the two that diverged count as the worst.
    assert budget.panels[0].series[0].y[0] == pytest.approx((79 + 81 + 89 + 91 + 79 + 79) / 6)
    assert "diverged are left out" in curves.caption
    assert "diverged counts as the worst" in budget.caption


def test_a_rate_at_which_a_seed_diverged_is_not_flattered_by_the_others():
    record = tuned_record()
    record.tuned[0].held_out[1] = None
    figure = rate_curves(record, {})[0]
    shown = {one.name: one.x for one in figure.panels[0].series}
    assert shown == {"ReweightedL2": [0.01, 0.1]}  # SGD has one rate left, which is no curve


@pytest.mark.parametrize("higher", [True, False])
def test_the_expected_best_is_that_of_random_draws(higher):
    scores = np.array([0.3, 0.9, 0.5, 0.6, 0.1])
    drawn = np.random.default_rng(0).choice(scores, size=(200_000, 5))
    for k in range(1, 6):
        best = (drawn[:, :k].max(1) if higher else drawn[:, :k].min(1)).mean()
        assert expected_best(scores, higher)[k - 1] == pytest.approx(best, abs=2e-3)


def test_without_a_pair_the_page_says_so(tmp_path):
    store_trial(tmp_path, demo_sweep(1).arms[0].config)
    table = results(demo_sweep(1), Store(tmp_path))
    assert "there is nothing to compare yet" in html(compare_content(table, Store(tmp_path), "Title"))
