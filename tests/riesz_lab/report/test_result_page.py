"""The page and the table of one result: the answer first, then only what its own trials show."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from riesz_lab.experiments import Arm, Experiment, Margin, Score, Seeds, Tuning, UntilSure, experiment, result
from riesz_lab.recipes import recipe
from riesz_lab.report.content import Table
from riesz_lab.report.figures.comparison import arm_colors, forest, pairs
from riesz_lab.report.figures.tuning import expected_best, rate_curves, tuning_curve
from riesz_lab.report.page import html, markdown
from riesz_lab.report.result_page import result_page
from riesz_lab.report.table import Row, format_result, records, result_table, rows, statistics_table, to_csv, to_json
from riesz_lab.store import Store
from stored import change, store_trial

GAIN = {0: 0.01, 1: 0.012, 2: 0.008, 3: 0.011}
PLAIN = recipe("demo")
ARMS = (
    Arm("SGD", PLAIN),
    Arm("ours", replace(PLAIN, metric="reweighted-l2"), "SGD"),
    Arm("theirs", replace(PLAIN, metric="sobolev-tilde"), "SGD"),
)
ASKED = Experiment(name="demo", question="does it help?", arms=ARMS, margin=Margin(0.005), seeds=Seeds(count=4))


def score(config):
    chance = (0.0004, -0.0003, 0.0002, -0.0004)[config.seed % 4]
    gain = {"identity": 0.0, "reweighted-l2(lam=1.0)": GAIN[config.seed % 4]}.get(config.metric, chance)
    return 0.9 + 0.002 * (config.seed % 4) + gain


def answered(runs, asked=ASKED):
    """The result with every trial that it asks for."""
    while missing := result(asked, Store(runs)).missing:
        for config, _ in missing:
            store_trial(runs, config, score=score(config))
    return result(asked, Store(runs))


@pytest.fixture
def found(tmp_path):
    return answered(tmp_path)


def test_the_answer_and_its_picture_come_before_the_contents(found):
    page = html(result_page(found, "Does it help?"))
    answer, picture = page.index("same within 0.50 points"), page.index('id="figure-pairs"')
    assert page.index("<h1>Does it help?</h1>") < answer < picture < page.index('<nav aria-label="Contents">')
    assert page.startswith("<!doctype html>")
    assert page.count("<nav ") == 1


def test_nothing_of_the_paper_is_on_it(found):
    text = html(result_page(found, "Does it help?")).partition("<script>")[0].lower()
    assert "the paper" not in text
    assert "riesz sweep" not in text


def test_advice_stands_below_the_table_and_remarks_with_the_statistics(found):
    answer, statistics = result_page(found, "Title", advice=["Attach it."], remarks=["It took an hour."]).sections[:2]
    assert isinstance(answer.blocks[0], Table)
    assert answer.blocks[1] == "Attach it."
    assert "It took an hour." in statistics.text


def test_the_table_has_one_verdict_per_arm_with_its_numbers(found):
    table = result_table(found)
    assert table.head == ["arm", "verdict", "test accuracy in % (sd)", "difference, points", "95% interval", "pairs"]
    cells = {row[0].text: [cell.text for cell in row[1:]] for row in table.cells()}
    assert cells["SGD"][0] == "baseline"
    assert cells["ours"][:2] == ["better", "91.33 (0.30)"]
    assert cells["ours"][2:] == ["+1.02", "+0.75 to +1.30", "4"]
    assert cells["theirs"][0] == "same within 0.50 points"


def test_every_writing_has_the_same_numbers(found):
    """Page, Markdown, terminal, CSV and JSON are of one record."""
    digits = "+0.75 to +1.30"
    content = result_page(found, "Title")
    for text in (html(content), markdown(content).replace("\\", ""), format_result(found)):
        assert digits in text
        assert "same within 0.50 points" in text
    read = list(csv.DictReader(io.StringIO(to_csv([found]))))
    written = json.loads(to_json([found]))
    assert written["version"] == 1
    listed = written["records"]
    for number, row in enumerate(rows(found)):
        for name, value in listed[number].items():
            assert value == getattr(row, name)
            assert read[number][name] == ("" if value is None else str(value))
    ours = rows(found)[1]
    assert (ours.difference, ours.low, ours.high) == pytest.approx((0.01025, 0.0075, 0.0130), abs=1e-4)


def test_the_second_table_has_the_statistics(found):
    table = statistics_table(found)
    cells = {row[0].text: dict(zip(table.head, (cell.text for cell in row), strict=True)) for row in table.cells()}
    assert cells["ours"]["won / tied / lost"] == "4 / 0 / 0"
    assert cells["ours"]["p, Holm"] == "0.0025"
    assert cells["SGD"]["p"] == ""


def test_every_field_of_the_row_is_filled_for_some_arm(tmp_path):
    asked = replace(ASKED, tuning=Tuning(grid={"lr": (0.01, 0.1)}, seeds=1, hold_out=100), collapsed=0.5)
    filled = {name for record in records(answered(tmp_path / "a", asked)) for name, value in record.items() if value}
    looked = {name for record in records(answered(tmp_path / "b", replace(ASKED, stopping=UntilSure(8))))
              for name, value in record.items() if value}  # fmt: skip
    never = set(Row.__dataclass_fields__) - filled - looked
    assert never <= {"reason", "collapsed", "baseline_collapsed", "p_collapsed", "diverged", "baseline_diverged",
                     "crossed", "ties", "losses"}  # fmt: skip


def test_every_pair_is_a_dot_in_the_colour_of_its_arm_and_the_mean_has_the_interval(found):
    colors = arm_colors(found)
    assert len(set(colors.values())) == 3
    panel = pairs(found, colors).panels[0]
    dots, mean = (next(one for one in panel.series if one.x[0] == "ours" and one.kind == kind)
                  for kind in ("dots", "points"))  # fmt: skip
    assert sorted(dots.y) == pytest.approx([0.8, 1.0, 1.1, 1.2])
    assert (mean.low, mean.high) == tuple([pytest.approx(100 * end)] for end in found.arms["ours"].interval)
    assert dots.color == mean.color == colors["ours"]
    assert panel.margin == pytest.approx(0.5)


def test_arms_without_a_metric_have_colours_of_their_own():
    arms = (Arm("a", PLAIN), *(Arm(f"lr {lr}", replace(PLAIN, lr=lr), "a") for lr in (0.1, 0.2, 0.3)))
    colors = arm_colors(result(replace(ASKED, arms=arms), []))
    assert next(iter(colors.values())) == 0
    assert len(set(colors.values())) == 4


def test_looks_are_said_to_be_looks(tmp_path):
    found = answered(tmp_path, replace(ASKED, stopping=UntilSure(budget=8)))
    text = markdown(result_page(found, "Title"))
    assert "Seeds were added until every arm had a verdict, 8 at most" in text
    assert "Holm" not in text
    assert [len(one.y) for one in pairs(found, arm_colors(found)).panels[0].series if one.kind == "dots"] == [
        found.arms[label].look.n for label in ("ours", "theirs")
    ]


def test_a_lower_score_that_is_better_is_said_to_be(tmp_path):
    found = answered(tmp_path, replace(ASKED, score=Score("test_loss", higher_is_better=False, percent=False)))
    assert any("A lower test loss is better" in line for line in result_page(found, "Title").sections[1].text)
    assert forest(found).y.endswith("(lower is better)")
    assert "Left of zero" in pairs(found, arm_colors(found)).caption


def test_markdown_explains_no_drawing_and_no_link_that_it_does_not_have(found, tmp_path):
    content = result_page(found, "Title", home=tmp_path)
    text = markdown(content)
    for explanation in ("A dot is a pair", "bands are", "Links lead to"):
        assert explanation in html(content)
        assert explanation not in text
    assert "(drawn on the HTML page): ours: pairs won 4, tied 0, lost 0." in text
    assert "Links lead to" not in html(result_page(found, "Title"))


def test_settings_that_are_not_set_are_not_listed(found):
    sections = {section.name: section for section in result_page(found, "Title").sections}
    shared = {row[0]: row[1] for row in sections["settings"].blocks[0].rows}
    assert shared["optimizer"]
    assert all(shared.values())


def test_what_differs_between_arms_is_not_said_of_all(tmp_path):
    arms = (Arm("slow", PLAIN), Arm("fast", replace(PLAIN, lr=0.5, batch_size=8), "slow"))
    (line, *_) = result_page(result(replace(ASKED, arms=arms), []), "Title").sections[1].text
    assert "arms differ in rate and batch size" in line
    assert "0.5" not in line


def test_tuning_is_shown_when_there_was_some(tmp_path):
    names = [section.name for section in result_page(answered(tmp_path / "plain"), "Title").sections]
    assert "rates" not in names
    assert {"curves", "layers", "times", "settings", "trials"} <= set(names)
    asked = replace(ASKED, tuning=Tuning(grid={"lr": (0.01, 0.1, 1.0)}, seeds=2, hold_out=100), seeds=Seeds(count=3))
    runs = tmp_path / "tuned"
    held_out = {0.01: (0.79, 0.81), 0.1: (0.9, 0.9), 1.0: (0.69, 0.71)}
    for config, _ in result(asked, []).missing:
        path = store_trial(runs, config, score=held_out[config.lr][config.seed % 2])
        if config.lr == 1.0 and config.metric == "identity":
            change(path, "result.json", status="diverged", last=None)
    found = answered(runs, asked)
    colors = arm_colors(found)
    figure = rate_curves(found, colors)[0]
    shown = {one.name: one for one in figure.panels[0].series}
    # A rate at which a seed diverged is not flattered by the others.
    assert shown["SGD"].x == [0.01, 0.1]
    assert shown["ours"].x == [0.01, 0.1, 1.0]
    assert shown["ours"].y == pytest.approx([80.0, 90.0, 70.0])
    assert shown["ours"].low[0] == pytest.approx(80 - 2**0.5)
    assert {name: one.color for name, one in shown.items()} == colors
    assert figure.panels[0].log_x
    assert "diverged are left out" in figure.caption
    assert "diverged counts as the worst" in tuning_curve(found, colors).caption
    names = [section.name for section in result_page(found, "Title").sections]
    assert names[2] == "rates"
    assert "chosen" in result_table(found).head


@pytest.mark.parametrize("higher", [True, False])
def test_the_expected_best_is_that_of_random_draws(higher):
    scores = np.array([0.3, 0.9, 0.5, 0.6, 0.1])
    drawn = np.random.default_rng(0).choice(scores, size=(200_000, 5))
    for k in range(1, 6):
        best = (drawn[:, :k].max(1) if higher else drawn[:, :k].min(1)).mean()
        assert expected_best(scores, higher)[k - 1] == pytest.approx(best, abs=2e-3)


def test_without_a_trial_the_page_says_so():
    assert "there is nothing to compare yet" in html(result_page(result(ASKED, []), "Title"))


@pytest.mark.parametrize("name", ["table-cifar", "regimes-mini", "spade-mini", "controls-mini"])
def test_every_named_experiment_has_a_page_before_its_first_trial(name):
    found = result(experiment(name), [])
    assert html(result_page(found, name))
    assert "Not complete" in format_result(found)
