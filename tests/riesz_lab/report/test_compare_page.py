"""The page of one comparison: the answer first, then only what its own trials show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from riesz_lab.commands.demo import demo_sweep
from riesz_lab.recipes import recipe
from riesz_lab.report.compare_page import compare_content, compare_page
from riesz_lab.report.figures.pairs import expected_best, pairs, rate_of
from riesz_lab.store import Store
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


def test_the_answer_and_its_picture_come_before_the_contents(runs, table):
    page = compare_page(table, Store(runs), title="Does it help?")
    answer = page.index("better by 1.03 points")
    picture = page.index('id="figure-pairs"')
    assert page.index("<h1>Does it help?</h1>") < answer < picture < page.index('<nav aria-label="Contents">')
    assert page.startswith("<!doctype html>")
    assert page.count("<nav ") == 1


def test_nothing_of_the_paper_is_on_it(runs, table):
    text = compare_page(table, Store(runs), title="Does it help?").partition("<script>")[0].lower()
    assert "the paper" not in text
    assert "riesz sweep" not in text


def test_every_pair_is_a_dot_and_the_mean_has_the_interval(table):
    series = pairs(table).panels[0].series
    dots, mean = series[0], next(one for one in series if one.name.startswith("mean"))
    assert sorted(dots.y) == pytest.approx([0.8, 1.0, 1.1, 1.2])
    low, high = table.comparisons["ReweightedL2"].interval
    assert mean.low == [pytest.approx(100 * low)]
    assert mean.high == [pytest.approx(100 * high)]


def test_given_words_and_intervals_replace_those_of_a_fixed_number_of_pairs(runs, table):
    intervals = {"ReweightedL2": (-0.5, 0.5), "SobolevTilde": None}
    content = compare_content(
        table, Store(runs), "Title", answer=["It helps."], notes=["Attach it."], intervals=intervals
    )
    assert content.sections[0].text == ["It helps."]
    assert not content.sections[0].findings
    assert "statistics" not in [section.name for section in content.sections]
    mean = next(one for one in content.sections[0].blocks[0].panels[0].series if one.name.startswith("mean"))
    assert (mean.low, mean.high) == ([-50.0], [50.0])


def test_rates_are_shown_when_there_are_several(runs, table):
    names = [section.name for section in compare_content(table, Store(runs), "Title").sections]
    assert "rates" not in names
    assert {"curves", "layers", "times", "settings", "trials"} <= set(names)
    for config in demo_sweep(4).all_configs():
        store_trial(runs, replace(config, lr=0.1), score=score(config) - 0.05)
    sections = {section.name: section for section in compare_content(table, Store(runs), "Title").sections}
    curves, budget = sections["rates"].blocks
    assert curves.panels[0].series[0].x == [0.01, 0.1]
    assert curves.panels[0].series[0].y == pytest.approx([90.3, 85.3])
    assert curves.panels[0].log_x
    assert budget.panels[0].series[0].y[0] == pytest.approx(87.8)  # one trial at random


@pytest.mark.parametrize("higher", [True, False])
def test_the_expected_best_is_that_of_random_draws(higher):
    scores = np.array([0.3, 0.9, 0.5, 0.6, 0.1])
    drawn = np.random.default_rng(0).choice(scores, size=(200_000, 5))
    for k in range(1, 6):
        best = (drawn[:, :k].max(1) if higher else drawn[:, :k].min(1)).mean()
        assert expected_best(scores, higher)[k - 1] == pytest.approx(best, abs=2e-3)


def test_the_rate_of_a_users_loop_is_its_setting():
    own = replace(recipe("demo"), task="own", model="f@1", dataset="own", optimizer="own")
    assert rate_of(own) is None
    assert rate_of(replace(own, model_options=("score=score", "lr=0.03"))) == 0.03
    assert rate_of(replace(recipe("demo"), lr=0.2)) == 0.2


def test_without_a_pair_the_page_says_so(tmp_path):
    store_trial(tmp_path, demo_sweep(1).arms[0].config)
    table = results(demo_sweep(1), Store(tmp_path))
    assert "there is nothing to compare yet" in compare_page(table, Store(tmp_path), title="Title")
