"""`--sweeps`: the report compares the user's sweeps as these define, and the paper's figures take what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from own_sweeps import grid, lams
from riesz_lab.recipes import recipe
from riesz_lab.report import report
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.markdown import markdown
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import results, sweep, tuning
from riesz_lab.sweeps.methods import setting
from stored import store_sweep, store_trial

LAMS, NORMS, GRID = (f"own_sweeps:{name}" for name in ("lams", "norms", "grid"))


def store(runs, chosen):
    """Its trials with scores by arm and seed; returns the mean of each arm."""
    means = {}
    for number, arm in enumerate(chosen.arms):
        means[arm.label] = 0.5 + 0.01 * number
        for config in chosen.configs(arm):
            noise = 0.001 * ((number + 2) * (config.seed - 1) % 5 - 2) if config.seed % 3 else 0.0
            store_trial(runs, config, epochs=1, score=means[arm.label] + noise)
            Trial(runs, config).add_sweep(chosen.name, chosen.comparisons)
    return means


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for chosen in (lams(), grid()):
        store(folder, chosen)
    return folder


def test_seeds_that_a_given_sweep_does_not_ask_for_are_not_its(tmp_path):
    store(tmp_path, replace(lams(), trials=4))
    evidence = report.read(tmp_path, sweeps=[LAMS])
    (table,) = evidence.tables
    assert {comparison.n for comparison in table.comparisons.values()} == {3}
    assert table.comparisons == results(lams(), evidence.store).comparisons


def test_a_given_sweep_has_its_table_while_trials_are_missing(tmp_path):
    chosen = lams()
    for config in (*chosen.configs(chosen.arms[0]), chosen.configs(chosen.arms[1])[0]):
        store_trial(tmp_path, config)
    evidence = report.read(tmp_path, sweeps=[LAMS, GRID])
    assert [table.sweep.name for table in evidence.tables] == ["own-lams", "own-grid"]
    text = markdown(report.build(evidence))
    assert "own-lams: 17 trials to be completed: mean 1 (2), mean 5 (3)," in text
    assert "Run: riesz sweep own\\_sweeps:lams" in text
    assert "1 pair is too few" in text
    assert "own-grid: 60 trials to be completed" in text


def test_a_built_in_sweep_that_is_given_is_not_repeated(tmp_path):
    name = "lambda-fashion-mini"
    store_sweep(tmp_path, name, trials=2)
    evidence = report.read(tmp_path, sweeps=[name])
    (table,) = evidence.tables
    assert table.sweep == sweep(name)
    assert len(FIGURES["lambda"].make(evidence).panels) == 1


def test_a_tuned_sweep_that_is_given_at_its_rates_is_not_repeated(tmp_path):
    known = sweep("lambda-fashion-mini").with_trials(2)
    final = tuning.tuned(known, {arm.label: tuning.Choice({}, 0.07) for arm in known.arms})
    store(tmp_path, final)
    assert [table.sweep.name for table in report.read(tmp_path).tables] == ["lambda-fashion-mini, tuned rates"]
    evidence = report.read(tmp_path)
    evidence = replace(evidence, sweeps={"mine:tuned": final}, _rows={}, _weights={})
    assert [table.sweep for table in evidence.tables] == [final]


def test_trials_beside_a_sweep_are_compared_with_its_baseline(tmp_path):
    store(tmp_path, lams())
    plain, true_order = lams().arms[0].config, lams()["mean 5"].config
    beside = [replace(plain, metric="sobolev-tilde"), replace(true_order, control="permuted")]
    for config in beside:
        for seed in range(3):
            store_trial(tmp_path, replace(config, seed=seed))
    first, rest = report.read(tmp_path, sweeps=[LAMS]).tables
    assert first.sweep == lams()
    against = {label: row.arm.baseline for label, row in rest.rows.items() if row.comparison and row.comparison.n == 3}
    assert against["SobolevTilde"] == "SGD"
    assert against["ReweightedL2, lam 5, channels permuted"] == "ReweightedL2, lam 5"


def test_the_summary_has_the_verdict_of_the_given_sweep(tmp_path):
    """The built-in one is larger, and has these comparisons too."""
    store_sweep(tmp_path, "lambda-fashion-mini")
    part = sweep("lambda-fashion-mini").with_trials(3).only(["ReweightedL2 lam = 1"])
    part = replace(part, name="part", family=0)
    for config in part.all_configs():
        Trial(tmp_path, config).add_sweep(part.name, part.comparisons)
    evidence = replace(report.read(tmp_path), sweeps={"mine:part": part}, _rows={}, _weights={})
    given, larger = evidence.tables
    assert len(given.comparisons) < len(larger.comparisons)
    shown = {label: comparison.family for table, label, comparison in evidence.comparisons if table is given}
    assert shown == dict.fromkeys(given.comparisons, len(given.comparisons))


def test_the_summary_names_the_setting_of_each_comparison(runs):
    summary = report.build(report.read(runs, sweeps=[GRID])).sections[0]
    scales = {finding.subject: finding.scale for finding in summary.findings if finding.group == "own-grid"}
    assert "rate 0.01, batch 128" in scales["b128 0.01 SGD + SobolevTilde against b128 0.01 SGD"]
    assert "rate 0.1, batch 8" in scales["b8 0.1 SGD + SobolevTilde against b8 0.1 SGD"]


def test_figure_7_takes_settings_with_two_lam_without_controls_and_other_directions(runs):
    assert FIGURES["lambda"].make(report.read(runs)) is None
    figure = FIGURES["lambda"].make(report.read(runs, sweeps=[NORMS, LAMS]))
    (panel,) = figure.panels  # that of `norms` would repeat it; at the other rate there is one lam
    plain, mean = panel.series
    assert mean.name == "ReweightedL2"
    assert mean.x == [0.0, 1.0, 5.0]
    assert mean.y == pytest.approx([50, 51, 52], abs=0.1)
    assert plain.y == pytest.approx([50, 50], abs=0.1)


def test_panels_of_settings_that_differ_in_their_rate_alone_are_told_apart(tmp_path):
    slow = lams()
    faster = replace(slow, name="fast", arms=tuple(replace(a, config=replace(a.config, lr=0.3)) for a in slow.arms[:3]))
    for chosen in (slow, faster):
        store(tmp_path, chosen)
    evidence = replace(report.read(tmp_path), sweeps={"a": slow, "b": faster}, _rows={}, _weights={})
    first, second = FIGURES["lambda"].make(evidence).panels
    assert f"rate {slow.arms[0].config.lr:g}," in first.title
    assert "rate 0.3," in second.title


def test_panels_that_read_alike_are_named_by_their_sweeps(tmp_path):
    one = replace(lams(), arms=lams().arms[:3])
    arms = (replace(arm, config=replace(arm.config, weight_decay=0.1)) for arm in one.arms)
    other = replace(one, name="decayed", arms=tuple(arms))
    for chosen in (one, other):
        store(tmp_path, chosen)
    evidence = replace(report.read(tmp_path), sweeps={"a": one, "b": other}, _rows={}, _weights={})
    first, second = FIGURES["lambda"].make(evidence).panels
    assert (first.title.split(": ")[0], second.title.split(": ")[0]) == ("own-lams", "decayed")


def test_a_part_of_a_built_in_sweep_is_not_drawn_beside_it(tmp_path):
    known = sweep("lambda-fashion-mini").with_trials(3)
    store(tmp_path, known)
    part = replace(known, name="part", arms=tuple(arm for arm in known.arms if "Tilde" not in arm.label))
    evidence = replace(report.read(tmp_path), sweeps={"a": part}, _rows={}, _weights={})
    (panel,) = FIGURES["lambda"].make(evidence).panels
    assert len(panel.series) > 2  # with SobolevTilde


def test_what_the_paper_shows_is_said_of_its_datasets_alone(tmp_path):
    arms = (replace(arm, config=replace(arm.config, dataset="cifar10")) for arm in lams().arms[:3])
    other = replace(lams(), name="other-data", arms=tuple(arms))
    for chosen, said in ((lams(), True), (other, False)):
        store(tmp_path / chosen.name, chosen)
        evidence = replace(report.read(tmp_path / chosen.name), sweeps={"a": chosen}, _rows={}, _weights={})
        figure = FIGURES["lambda"].make(evidence)
        assert ("In the paper, both metrics lie above" in figure.caption) == said
        assert ("in the paper" in figure.panels[0].series[0].name) == said


def test_the_regime_map_takes_cells_that_are_compared_with_sgd_in_them(runs):
    assert FIGURES["regimes"].make(report.read(runs)) is None
    assert FIGURES["regimes"].make(report.read(runs, sweeps=[LAMS])) is None  # one batch size
    figure = FIGURES["regimes"].make(report.read(runs, sweeps=[LAMS, GRID]))
    methods = ("SobolevTilde", "ReweightedL2")
    rates = ("the same rate", "SGD's best rate")
    titles = [f"{method} against SGD at {rate}" for method in methods for rate in rates]
    assert [panel.title for panel in figure.panels] == [*titles, *(t.replace("L2", "L2, lam 5") for t in titles[2:])]
    for panel in figure.panels[:4]:
        assert panel.image.row_names == ["8", "128"]
        assert panel.image.column_names == ["0.01", "0.1"]
    # The third and the first arm of the first cell: not the control, nor all layers.
    assert figure.panels[2].image.z[0, 1] == pytest.approx(2.0, abs=0.1)


def test_parts_of_a_sweep_are_corrected_for_all_of_it(runs):
    parts = [part for part in report.read(runs, sweeps=[GRID]).own_tables(setting) if part.comparisons]
    assert len(parts) == 5
    assert {part.sweep.family for part in parts} == {13}


def test_the_cifar_table_has_a_row_for_each_rate_at_its_batch_sizes(runs):
    def ours(*sweeps):
        (section,) = [s for s in report.build(report.read(runs, sweeps=sweeps)).sections if s.name == "paper"]
        return [[cell.text for cell in row] for row in section.blocks[0].cells() if row[3].text.startswith("ours")]

    assert ours() == ours(LAMS) == []
    rows = ours(GRID)
    setting = "ours, 3 trials: CIFAR-10, ResNet-20, SGD at rate {}, batch {}, 2 epochs"
    settings = [(0.1, 128), (0.01, 128), (0.1, 8), (0.01, 8), (0.02, 8)]  # neither batch 64, nor VGG-13, nor other data
    assert [row[3] for row in rows] == [setting.format(*one) for one in settings]
    assert {row[0] for row in rows} == {"ResNet-56"}
    at_paper_rate = rows[2][4:7]  # neither the control, nor all layers, nor lam = 5
    assert [float(text) for text in at_paper_rate] == pytest.approx([50, 51, 52], abs=0.1)


def test_figures_take_the_option(runs, tmp_path, riesz):
    status, _, problem = riesz("figure", "lambda", runs)
    assert status == 1
    assert "or --sweeps with two lam or more" in problem
    assert riesz("figure", "lambda", runs, "--sweeps", LAMS, "-o", "lambda.svg")[0] == 0
    assert (tmp_path / "lambda.svg").exists()


@pytest.mark.parametrize("command", [("report",), ("figure", "lambda")])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("regims", "did you mean 'regimes'?"),
        ("nowhere:sweep", "sweep 'nowhere:sweep': module 'nowhere' cannot be imported"),
        ("own_sweeps:lam", "'own_sweeps' has no 'lam'; it has lams"),
        ("stored:change", "expected a function that needs no argument"),
    ],
)
def test_mistakes_are_explained(command, name, message, riesz, tmp_path):
    store_trial(tmp_path / "runs", recipe("demo"))
    status, _, problem = riesz(*command, "runs", "--sweeps", name)
    assert status == 1
    assert message in problem
