"""`--sweeps`: experiments that the user names are judged as they define, and the paper's figures take what fits."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from own_sweeps import grid, lams
from riesz_lab.experiments import experiment, result
from riesz_lab.experiments.arm import setting
from riesz_lab.recipes import recipe
from riesz_lab.report.data import read, report_data
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.page import markdown
from riesz_lab.report.report import build
from riesz_lab.report.table import records
from riesz_lab.store import Store
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
    return means


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for chosen in (lams(), grid()):
        store(folder, chosen)
    return folder


def asked(runs, *experiments):
    return report_data(Store(runs), (), experiments)


def test_a_given_experiment_has_the_rows_of_its_result(runs, tmp_path, riesz):
    assert riesz("report", runs, "--sweeps", LAMS, GRID, "-o", "page.csv")[0] == 0
    shown = list(csv.DictReader(io.StringIO((tmp_path / "page.csv").read_text())))
    of_lams = {row["arm"]: row for row in shown if row["experiment"] == "own-lams"}
    for row in records(result(lams(), Store(runs))):
        assert {name: "" if value is None else str(value) for name, value in row.items()} == of_lams[row["arm"]]
    compared = [row for row in of_lams.values() if row["baseline"]]
    assert {row["margin"] for row in compared} == {"0.03"}
    assert {row["family"] for row in compared} == {"6"}
    # Nothing of what these experiments have is compared a second time.
    assert {row["experiment"] for row in shown} == {"own-lams", "own-grid"}


def test_seeds_that_a_given_experiment_does_not_ask_for_are_not_its(tmp_path):
    store(tmp_path, lams().with_seeds(4))
    data = read(tmp_path, sweeps=[LAMS])
    (found,) = data.results
    assert {comparison.n for comparison in found.comparisons.values()} == {3}
    assert found.comparisons == result(lams(), data.store).comparisons


def test_a_given_experiment_has_its_table_while_trials_are_missing(tmp_path):
    chosen = lams()
    for config in (*chosen.configs(chosen.arms[0]), chosen.configs(chosen.arms[1])[0]):
        store_trial(tmp_path, config)
    data = read(tmp_path, sweeps=[LAMS, GRID])
    assert [found.experiment.name for found in data.results] == ["own-lams", "own-grid"]
    text = markdown(build(data))
    assert "own-lams: 17 trials to be completed: mean 1 (2), mean 5 (3)," in text
    assert "Run: riesz sweep own\\_sweeps:lams" in text
    assert "1 pair; at least 3 are needed" in text
    assert "own-grid: 60 trials to be completed" in text


def test_a_built_in_experiment_that_is_given_is_not_repeated(tmp_path):
    name = "lambda-fashion-mini"
    store_sweep(tmp_path, name, trials=2)
    data = read(tmp_path, sweeps=[name])
    (found,) = data.results
    assert found.experiment == experiment(name)
    assert len(FIGURES["lambda"].make(data).panels) == 1


def test_trials_beside_an_experiment_are_compared_with_its_baseline(tmp_path):
    store(tmp_path, lams())
    plain, true_order = lams().arms[0].config, lams()["mean 5"].config
    beside = [replace(plain, metric="sobolev-tilde"), replace(true_order, control="permuted")]
    for config in beside:
        for seed in range(3):
            store_trial(tmp_path, replace(config, seed=seed))
    first, rest = read(tmp_path, sweeps=[LAMS]).results
    assert first.experiment == lams()
    against = {label: one.arm.baseline for label, one in rest.arms.items() if one.comparison and one.comparison.n == 3}
    assert against["SobolevTilde"] == "SGD"
    assert against["ReweightedL2, lam 5, channels permuted"] == "ReweightedL2, lam 5"


def test_a_given_part_of_a_larger_experiment_has_its_own_correction(tmp_path):
    """The larger one has these comparisons too."""
    store_sweep(tmp_path, "lambda-fashion-mini")
    whole = experiment("lambda-fashion-mini").with_seeds(3)
    part = replace(whole, name="part", arms=whole.arms[:2], family=0)
    (found, larger) = asked(tmp_path, part, whole).results
    assert len(found.comparisons) < len(larger.comparisons)
    assert {comparison.family for comparison in found.comparisons.values()} == {1}


def test_figure_7_takes_settings_with_two_lam_without_controls_and_other_directions(runs):
    assert FIGURES["lambda"].make(read(runs)) is None
    figure = FIGURES["lambda"].make(read(runs, sweeps=[NORMS, LAMS]))
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
    data = asked(tmp_path, slow, faster)
    first, second = FIGURES["lambda"].make(data).panels
    assert f"rate {slow.arms[0].config.lr:g}," in first.title
    assert "rate 0.3," in second.title


def test_panels_that_read_alike_are_named_by_their_experiments(tmp_path):
    one = replace(lams(), arms=lams().arms[:3])
    arms = (replace(arm, config=replace(arm.config, weight_decay=0.1)) for arm in one.arms)
    other = replace(one, name="decayed", arms=tuple(arms))
    for chosen in (one, other):
        store(tmp_path, chosen)
    data = asked(tmp_path, one, other)
    first, second = FIGURES["lambda"].make(data).panels
    assert (first.title.split(": ")[0], second.title.split(": ")[0]) == ("own-lams", "decayed")


def test_a_part_of_a_built_in_experiment_is_not_drawn_beside_it(tmp_path):
    known = experiment("lambda-fashion-mini").with_seeds(3)
    store(tmp_path, known)
    part = replace(known, name="part", arms=tuple(arm for arm in known.arms if "Tilde" not in arm.label))
    data = asked(tmp_path, known, part)
    (panel,) = FIGURES["lambda"].make(data).panels
    assert len(panel.series) > 2  # with SobolevTilde


def test_what_the_paper_shows_is_said_of_its_datasets_alone(tmp_path):
    arms = (replace(arm, config=replace(arm.config, dataset="cifar10")) for arm in lams().arms[:3])
    other = replace(lams(), name="other-data", arms=tuple(arms))
    for chosen, said in ((lams(), True), (other, False)):
        store(tmp_path / chosen.name, chosen)
        data = asked(tmp_path / chosen.name, chosen)
        figure = FIGURES["lambda"].make(data)
        assert ("In the paper, both metrics lie above" in figure.caption) == said
        assert ("in the paper" in figure.panels[0].series[0].name) == said


def test_the_regime_map_takes_cells_that_are_compared_with_sgd_in_them(runs):
    assert FIGURES["regimes"].make(read(runs)) is None
    assert FIGURES["regimes"].make(read(runs, sweeps=[LAMS])) is None  # one batch size
    figure = FIGURES["regimes"].make(read(runs, sweeps=[LAMS, GRID]))
    methods = ("SobolevTilde", "ReweightedL2")
    rates = ("the same rate", "SGD's best rate")
    titles = [f"{method} against SGD at {rate}" for method in methods for rate in rates]
    assert [panel.title for panel in figure.panels] == [*titles, *(t.replace("L2", "L2, lam 5") for t in titles[2:])]
    for panel in figure.panels[:4]:
        assert panel.image.row_names == ["8", "128"]
        assert panel.image.column_names == ["0.01", "0.1"]
    # The third and the first arm of the first cell: not the control, nor all layers.
    assert figure.panels[2].image.z[0, 1] == pytest.approx(2.0, abs=0.1)


def test_parts_of_an_experiment_are_corrected_for_all_of_it(runs):
    parts = [part for part in read(runs, sweeps=[GRID]).parts(setting) if part.comparisons]
    assert len(parts) == 5
    assert {part.experiment.comparisons for part in parts} == {13}


def test_the_cifar_table_has_a_row_for_each_rate_at_its_batch_sizes(runs):
    def ours(*sweeps):
        (section,) = [s for s in build(read(runs, sweeps=sweeps)).sections if s.name == "paper"]
        return [[cell.text for cell in row] for row in section.blocks[0].cells() if row[3].text.startswith("ours")]

    assert ours() == ours(LAMS) == []
    rows = ours(GRID)
    setting = "ours, 3 trials: CIFAR-10, ResNet-20, SGD at rate {}, batch {}, 2 epochs"
    settings = [(0.1, 128), (0.01, 128), (0.1, 8), (0.01, 8), (0.02, 8)]  # neither batch 64, nor VGG-13, nor other data
    assert [row[3] for row in rows] == [setting.format(*one) for one in settings]
    assert {row[0] for row in rows} == {"ResNet-56"}
    at_paper_rate = rows[2][4:7]  # neither the control, nor all layers, nor lam = 5
    assert [float(text.split()[0]) for text in at_paper_rate] == pytest.approx([50, 51, 52], abs=0.1)


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
        ("nowhere:sweep", "experiment 'nowhere:sweep': module 'nowhere' cannot be imported"),
        ("own_sweeps:lam", "'own_sweeps' has no 'lam'; it has lams"),
        ("stored:change", "expected a function that needs no argument"),
    ],
)
def test_mistakes_are_explained(command, name, message, riesz, tmp_path):
    store_trial(tmp_path / "runs", recipe("demo"))
    status, _, problem = riesz(*command, "runs", "--sweeps", name)
    assert status == 1
    assert message in problem
