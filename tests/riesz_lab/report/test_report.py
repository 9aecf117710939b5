"""The report: a pure function of the store that renders whatever is there and names what is not."""

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest

from riesz_lab import cli
from riesz_lab.experiments import EXPERIMENTS, Arm, Experiment, Tuning, experiment, result
from riesz_lab.recipes import recipe
from riesz_lab.report import drawing, page
from riesz_lab.report.content import Table
from riesz_lab.report.data import read
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.labels import scale
from riesz_lab.report.page import markdown
from riesz_lab.report.report import build
from riesz_lab.report.table import result_table, to_csv
from riesz_lab.store import Store
from stored import EVERY, change, store_sweep, store_trial

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in EVERY:
        store_sweep(folder, name, trials=5 if name == "variance-mini" else 3)
    return folder


@pytest.fixture(scope="module")
def data(runs):
    return read(runs, BENCHMARKS)


@pytest.fixture(scope="module")
def full(data, runs):
    return build(data, runs)


def test_every_figure_has_data_in_a_store_of_every_sweep(data):
    assert [name for name, entry in FIGURES.items() if entry.make(data) is None] == []
    assert sorted(entry.number for entry in FIGURES.values() if entry.number) == list(range(1, 11))


def test_every_figure_says_what_it_shows_and_is_on_the_page(full):
    written = page.html(full)
    assert len(full.figures()) == len(FIGURES)
    for figure in full.figures():
        assert figure.caption
        assert figure.alt
        assert figure.panels
        assert f'id="figure-{figure.name}"' in written
    assert written.count('class="plot"') == sum(len(figure.panels) for figure in full.figures())


def test_the_same_store_gives_the_same_bytes_and_few_of_them(full, runs):
    first = page.html(full)
    assert first == page.html(build(read(runs, BENCHMARKS), runs))
    assert len(first.encode()) < 1.2e6


def test_page_is_self_contained(full):
    written = page.html(full)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', written)[1]
    assert "default-src &#39;none&#39;" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]

    class Loads(HTMLParser):
        found = ()

        def handle_starttag(self, tag, attributes):
            given = dict(attributes)
            if "src" in given or (tag == "link") or tag in ("iframe", "object", "embed", "img", "base", "form"):
                self.found += ((tag, given),)
            if tag == "a" and not re.match(r"[#.]", given["href"]):
                self.found += ((tag, given),)

    loads = Loads()
    loads.feed(written)
    assert loads.found == ()


def test_every_comparison_is_in_a_table_and_counted_in_the_summary(full, data):
    shown = {table.caption.partition(":")[0]: table for section in full.sections if section.name == "comparisons"
             for table in section.blocks if isinstance(table, Table) and "verdict" in table.head}  # fmt: skip
    compared = {found.experiment.name: found for found in data.results}
    assert shown.keys() == compared.keys()
    assert sum(len(found.compared) for found in data.results) > 50
    for name, found in compared.items():
        assert [row[0].text for row in shown[name].cells()] == list(found.arms)
    summary = full.sections[0].blocks[0]
    counted = {row[0].text: sum(cell.sort or 0 for cell in row[2:6]) for row in summary.cells()}
    assert counted == {name: len(found.compared) for name, found in compared.items()}


def test_times_come_with_their_caveat(full):
    (section,) = [section for section in full.sections if section.name == "speed"]
    assert any("had the machine to itself" in block.note for block in section.blocks if isinstance(block, Table))


def test_published_figures_stand_beside_ours(full):
    (section,) = [section for section in full.sections if section.name == "paper"]
    cifar = section.blocks[0].cells()
    assert [row[4].text for row in cifar if row[3].text.startswith("paper")][:3] == ["93.24", "91.96", "86.54"]
    assert sum(row[3].text.startswith("ours") for row in cifar) >= 9
    # "Error reduced" of the paper's own figures, as the paper defines it.
    row = next(row for row in cifar if row[2].text == "8" and row[0].text == "ResNet-56")
    assert row[5].text == f"87.99 ({100 * (1 - (100 - 87.99) / (100 - 86.54)):+.1f})"


def test_an_experiment_that_a_fuller_one_contains_is_not_repeated(tmp_path):
    store_sweep(tmp_path, "directions-mini")
    smaller = experiment("directions-mini")
    smaller = replace(smaller, name="part", arms=smaller.arms[:3])
    smaller.write(tmp_path)
    assert [found.experiment.name for found in read(tmp_path).results] == ["directions-mini"]


def test_methods_are_ordered_by_their_numbers_and_settings_told_apart_by_momentum(tmp_path):
    base = experiment("lambda-fashion-mini").arms[0].config
    for momentum, lam, seed in product((0.9, 0.0), (20.0, 5.0, 0.5), range(2)):
        metric = f"reweighted-l2(lam={lam})"
        store_trial(tmp_path, replace(base, metric=metric, momentum=momentum, seed=seed))
    settings = read(tmp_path).settings
    ordered = [f"ReweightedL2, lam {lam}" for lam in ("0.5", "5", "20")]
    assert [list(methods) for methods in settings.values()] == [ordered, ordered]
    assert sorted(", no momentum" in scale(config) for config in settings) == [False, True]


def test_trials_of_no_sweep_are_compared_at_equal_settings(tmp_path):
    for seed in (3, 8, 2**32 - 1):
        for metric in ("identity", "sobolev-tilde(lam=0.3)"):
            store_trial(tmp_path, replace(recipe("demo"), metric=metric, seed=seed))
    store_trial(tmp_path, replace(recipe("demo"), metric="sobolev-tilde(lam=0.3)", seed=3, lr=0.5))
    found = read(tmp_path).results
    assert len(found) == 2
    (chosen,) = [each for each in found if each.arms["SobolevTilde, lam 0.3"].arm.config.lr == 0.01]
    assert chosen.comparisons["SobolevTilde, lam 0.3"].n == 3


def test_partial_sweep_renders_and_says_what_is_missing(tmp_path):
    store_sweep(tmp_path, "directions-mini", trials=2, only=4)
    written = page.html(build(read(tmp_path), tmp_path))
    assert "Run: riesz sweep directions-mini" in written
    assert "2 pairs; at least 3 are needed" in written
    assert "Figure 9: Image synthesis, FID by epoch. It needs riesz sweep spade-mini" in written


def test_one_trial_alone_and_broken_ones_render(tmp_path):
    path = store_trial(tmp_path, recipe("demo"))
    for name, file, content in (
        ("config", "config.json", "{"),
        ("result", "result.json", "[]"),
        ("history", "history.jsonl", '{"epoch": "x"}\nno json\n{"epoch": 1, "test_accuracy": "high"}\n'),
        ("updates", "updates.jsonl", '{"epoch": 1, "layers": {"a": {"n": 1e9, "spectrum": "x"}}}\n[]\n'),
        ("weights", "weights.safetensors", "no weights"),
        ("environment", "environment.json", '[{"packages": 3}]'),
    ):
        other = Path(shutil.copytree(path, tmp_path / "demo" / f"broken-{name}"))
        (other / file).write_text(content)
    data = read(tmp_path)
    assert len(data.store.broken) == 2
    written = page.html(build(data, tmp_path))
    assert "broken-config cannot be read" in written


@pytest.mark.parametrize(
    "value", ["1" + "0" * 400, "NaN", "-Infinity", "1e400", "[" * 100_000], ids=lambda text: text[:9]
)
def test_numbers_that_nothing_can_be_computed_with_end_no_report(value, tmp_path):
    path = store_sweep(tmp_path, "curves-mini", trials=1)
    for file in path.rglob("history.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows[0]["test_accuracy"] = "HERE"
        file.write_text("".join(json.dumps(row).replace('"HERE"', value) + "\n" for row in rows))
    text = page.html(build(read(tmp_path)))
    assert "figure-curves" in text


def test_diverged_trials_are_reported(tmp_path):
    store_sweep(tmp_path, "regularity-mini", trials=4, only=2)
    path = next(tmp_path.glob("*/sobolev-tilde-seed0*"))
    change(path, "result.json", status="diverged", last=None)
    text = markdown(build(read(tmp_path)))
    assert "trials diverged: the baseline alone in 0 pairs, the method alone in 1" in text
    assert "1 (baseline 0) of 4" in text


def test_markdown_and_csv(full, data):
    written = markdown(full)
    assert "## Summary" in written
    assert "| network | optimizer | batch |" in written
    rows = list(csv.DictReader(io.StringIO(to_csv(data.results))))
    assert len(rows) == sum(len(found.arms) for found in data.results)
    compared = [row for row in rows if row["baseline"]]
    assert all(row["verdict"] in ("better", "worse", "same", "undecided") for row in compared)
    assert float(compared[0]["low"]) <= float(compared[0]["difference"]) <= float(compared[0]["high"])


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_for_a_paper_the_same_every_time(name, data):
    figure = FIGURES[name].make(data)
    figure = replace(figure, panels=figure.panels[:1])
    for kind in drawing.FORMATS if name in ("curves", "directions", "stripes", "regimes") else ("svg",):
        drawn = drawing.picture(figure, kind)
        assert drawn.startswith({"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}[kind])
        assert drawn == drawing.picture(figure, kind)


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = store_sweep(tmp_path / "runs", "lambda-fashion-mini", trials=2, only=3)
    assert cli.main(["report", str(runs), "-o", "a.html"]) == 0
    assert cli.main(["report", str(runs), "-o", "a.md"]) == 0
    assert cli.main(["report", str(runs), "--format", "csv", "-o", "-"]) == 0
    assert "experiment,arm,baseline,role,verdict" in capsys.readouterr().out
    assert cli.main(["figure", "lambda", str(runs), "-o", "a.png"]) == 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert cli.main(["figure", "kernels"]) == 0
    assert (tmp_path / "kernels.svg").exists()
    assert cli.main(["figure"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in FIGURES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere"], "expected a folder of trials or benchmark results, got nowhere"),
        (["report", "empty"], "no trial is stored below empty"),
        (
            ["report", "empty", "-o", "r.pdf"],
            "expected output as - for the screen, or a name that ends in .html",
        ),
        (["report", "empty", "--format", "csv", "-o", "r.md"], "ends in .csv"),
        (["compare", "nowhere.py:train", "-o", "r.pdf"], "got 'r.pdf'"),
        (["figure", "lamda", "empty"], "did you mean 'lambda'?"),
        (["figure", "fid", "empty"], "no trial is stored"),
        (["figure", "kernels", "-o", "kernels.gif"], "ends in .svg, .png or .pdf"),
    ],
)
def test_mistakes_are_explained(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err


def test_figure_without_data_says_what_it_needs(tmp_path, capsys):
    store_trial(tmp_path, recipe("demo"))
    assert cli.main(["figure", "fid", str(tmp_path)]) == 1
    assert "it needs riesz sweep spade-mini" in capsys.readouterr().err


def test_a_trial_counts_once_however_it_is_reached(tmp_path):
    runs = store_sweep(tmp_path / "runs", "regularity-mini", trials=3, only=2)
    (tmp_path / "link").symlink_to(runs)
    recipe_folder = next(path for path in runs.iterdir() if path.is_dir())
    (runs / "again").symlink_to(recipe_folder)
    shutil.copytree(recipe_folder, tmp_path / "copy" / recipe_folder.name)
    once = read(recipe_folder)
    assert len(once.store.trials) == 6
    for folders in ([runs, recipe_folder], [recipe_folder, runs, tmp_path / "link"], [runs, tmp_path / "copy"]):
        data = read(*folders)
        assert len(data.store.trials) == 6
        assert [len(trials) for methods in data.settings.values() for trials in methods.values()] == [3, 3]
    assert len(data.store.copies) == 6
    trial = data.store.trials[0]
    trial.files.result_file.unlink()
    again = read(runs, tmp_path / "copy").store
    assert all(each.result is not None for each in again.trials)


def test_the_page_corrects_as_the_stored_experiment_does(tmp_path):
    chosen = replace(experiment("lambda-fashion-mini"), name="mine", family=9).with_seeds(3)
    for config in chosen.only(["lam = 1"]).all_configs():
        store_trial(tmp_path, config)
    chosen.write(tmp_path)
    (found,) = read(tmp_path).asked
    assert {one.family for one in found.comparisons.values()} == {9}
    printed = result(chosen, Store(tmp_path)).comparisons
    for label, comparison in printed.items():
        assert found.comparisons[label].p_holm == comparison.p_holm


def test_the_page_of_a_tuned_experiment_has_every_arm_at_its_own_rate(tmp_path):
    arms = (Arm("SGD", recipe("demo")), Arm("ours", replace(recipe("demo"), metric="reweighted-l2"), "SGD"))
    asked = Experiment(name="tuned", question="at its best?", arms=arms, tuning=Tuning(seeds=1, hold_out=100))
    asked.write(tmp_path)
    while missing := result(asked, Store(tmp_path)).missing:
        for config, _ in missing:
            best = 0.01 if config.metric == "identity" else 0.005
            store_trial(tmp_path, config, score=0.9 - abs(config.lr - best))
    text = markdown(build(read(tmp_path))).replace("\\", "")
    assert "lr=0.005" in text
    assert "Tuned on held-out scores, the same for every arm" in text


def test_without_an_experiment_trials_are_asked_the_plain_question(tmp_path):
    for config in experiment("lambda-fashion-mini").with_seeds(3).only(["lam = 1"]).all_configs():
        store_trial(tmp_path, config)
    data = read(tmp_path)
    assert not data.asked
    assert not {found.experiment.name for found in data.loose} & set(EXPERIMENTS)
    assert all(found.compared for found in data.loose)


def test_a_broken_record_of_an_experiment_is_named(tmp_path):
    store_trial(tmp_path, recipe("demo"))
    folder = Experiment(name="mine", question="?", arms=(Arm("SGD", recipe("demo")),)).write(tmp_path)
    (folder / "experiment.json").write_text("[1]")
    data = read(tmp_path)
    assert not data.asked
    assert f"{folder.name} is left out: not an experiment" in page.html(build(data))


OWN = {"task": "own", "optimizer": "own", "dataset": "own"}


def own_runs(folder, stored=True):
    """Trials of a user's function at two batch sizes, with curves of two scores."""
    base = replace(recipe("demo"), recipe="compare-mine", model="mine.py:train@1a2b3c", **OWN)
    arms = [
        Arm("batch 8", replace(base, model_options=("batch=8",))),
        Arm("batch 64", replace(base, model_options=("batch=64",)), "batch 8"),
    ]
    asked = Experiment(name="mine", question="does the batch size matter?", arms=tuple(arms)).with_seeds(3)
    if stored:
        asked.write(folder)
    for config in asked.all_configs():
        store_trial(folder, config)
    return folder


def test_own_functions_have_none_of_the_papers_figures_and_panels_with_arm_and_settings(tmp_path):
    written = page.html(build(read(own_runs(tmp_path))))
    shown = written.partition("<script>")[0]
    assert not re.search("paper|Figure \\d|riesz sweep|CIFAR", shown)
    names = [section.name for section in build(read(tmp_path)).sections]
    assert names == ["summary", "own-1", "environment", "settings", "trials"]
    figures = {figure.name: figure for figure in build(read(tmp_path)).figures()}
    assert {"pairs-1", "curves-1"} <= figures.keys()
    for panel in figures["curves-1"].panels:
        assert {one.name for one in panel.series} == {"batch 8", "batch 64"}
    colors = {one.name: one.color for panel in figures["curves-1"].panels for one in panel.series}
    dots = next(one for one in figures["pairs-1"].panels[0].series if one.kind == "dots")
    assert len(set(colors.values())) == 2
    assert dots.color == colors["batch 64"]


def test_settings_of_own_functions_without_an_experiment_are_told_apart(tmp_path):
    sections = build(read(own_runs(tmp_path, stored=False))).sections
    titles = [section.title for section in sections if section.name.startswith("own-")]
    assert sorted("batch=64" in title for title in titles) == [False, True]


def test_own_functions_beside_recipes_leave_the_papers_figures_to_these(tmp_path):
    store_sweep(tmp_path, "curves-mini", trials=3)
    data = read(own_runs(tmp_path))
    assert all(config.task != "own" for config in data.settings)
    names = [section.name for section in build(data).sections]
    assert {"own-1", "comparisons", "paper", "curves"} <= set(names)


def test_versions_of_an_edited_script_are_told_apart(tmp_path):
    for digest in ("1a2b3c4d5e6f", "99887766aabb"):
        for metric in ("identity", "sobolev-tilde"):
            for seed in range(2):
                config = replace(recipe("demo"), recipe="compare-mine", task="own", optimizer="own", metric=metric,
                                 model=f"mine.py:train@{digest}", seed=seed)  # fmt: skip
                store_trial(tmp_path, config)
    text = markdown(build(read(tmp_path)))
    assert "compare-mine, version 1a2b3c" in text
    assert "compare-mine, version 998877" in text


def test_a_lone_method_is_no_baseline(tmp_path):
    store_trial(tmp_path, replace(recipe("demo"), metric="sobolev-tilde"))
    (found,) = read(tmp_path).results
    assert [row[1].text for row in result_table(found).cells()] == ["not compared"]
    store_trial(tmp_path, recipe("demo"))
    (found,) = read(tmp_path).results
    assert {row[0].text: row[1].text for row in result_table(found).cells()}["SGD"] == "baseline"


def test_a_difference_without_an_interval_shows_none(tmp_path):
    for seed in range(3):
        store_trial(tmp_path, replace(recipe("demo"), seed=seed), score=0.9 + 0.01 * seed)
        store_trial(tmp_path, replace(recipe("demo"), metric="reweighted-l2", seed=seed), score=0.9 + 0.02 * seed)
    store_trial(tmp_path, replace(recipe("demo"), metric="reweighted-l2(lam=5)", seed=0), score=0.8)
    overview = FIGURES["overview"].make(read(tmp_path))
    titles = re.findall("<title>(.*?)</title>", drawing.picture(overview, "svg").decode())
    assert any(re.search(r": [\d.]+, [-\d.]+ to [\d.]+ \(95% interval\)$", title) for title in titles)
    assert re.fullmatch(r"ReweightedL2, ReweightedL2, lam 5: -[\d.]+", titles[-1])


def test_a_figure_says_where_lower_is_better(tmp_path):
    store_sweep(tmp_path / "fid", "spade-mini", trials=2)
    figure = FIGURES["overview"].make(read(tmp_path / "fid"))
    assert "worse where the axis says that lower is better" in figure.caption
    assert all("(lower is better)" in panel.y for panel in figure.panels)
    store_sweep(tmp_path / "accuracy", "regularity-mini", trials=2)
    figure = FIGURES["overview"].make(read(tmp_path / "accuracy"))
    assert "lower" not in figure.caption + figure.panels[0].y


def test_the_answer_stands_before_the_contents(runs):
    text = page.html(build(read(runs)))
    assert text.index('id="summary"') < text.index('<nav aria-label="Contents"') < text.index('id="comparisons"')
