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
from riesz_lab.recipes import recipe
from riesz_lab.report import drawing, page, report
from riesz_lab.report.comparison_view import comparison_table, comparisons_csv
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.labels import scale
from riesz_lab.report.markdown import markdown
from riesz_lab.store.trial import Trial
from riesz_lab.sweeps import SWEEPS, results, sweep
from stored import EVERY, change, store_sweep, store_trial

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in EVERY:
        store_sweep(folder, name, trials=5 if name == "variance-mini" else 3)
    return folder


@pytest.fixture(scope="module")
def evidence(runs):
    return report.read(runs, BENCHMARKS)


@pytest.fixture(scope="module")
def full(evidence, runs):
    return report.build(evidence, runs)


def test_every_figure_has_data_in_a_store_of_every_sweep(evidence):
    assert [name for name, entry in FIGURES.items() if entry.make(evidence) is None] == []
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
    assert first == page.html(report.build(report.read(runs, BENCHMARKS), runs))
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


def test_every_comparison_has_a_sentence(full, evidence):
    pairs = {
        (table.rows[label].arm.config.group, table.rows[table.rows[label].arm.baseline].arm.config.group)
        for table in evidence.tables
        for label, found in table.comparisons.items()
        if found.trials
    }
    summary = full.sections[0]
    assert len(summary.findings) == len(pairs) > 50
    assert all(finding.sentence and finding.scale for finding in summary.findings)
    assert any(line.startswith(f"{len(pairs)} comparisons of") for line in full.lead)
    assert summary.blocks[0].alt.startswith(f"Of {len(pairs)} comparisons: ")


def test_times_come_with_their_caveat_above_them(full):
    (section,) = [section for section in full.sections if section.name == "speed"]
    assert any("had the machine to itself" in line for line in section.text)


def test_published_figures_stand_beside_ours(full):
    (section,) = [section for section in full.sections if section.name == "paper"]
    cifar = section.blocks[0].cells()
    assert [row[4].text for row in cifar if row[3].text.startswith("paper")][:3] == ["93.24", "91.96", "86.54"]
    assert sum(row[3].text.startswith("ours") for row in cifar) >= 9
    # "Error reduced" of the paper's own figures, as the paper defines it.
    row = next(row for row in cifar if row[2].text == "8" and row[0].text == "ResNet-56")
    assert row[7].sort == pytest.approx(100 * (1 - (100 - 87.99) / (100 - 86.54)))


def test_a_sweep_that_a_fuller_one_covers_is_not_repeated(tmp_path):
    store_sweep(tmp_path, "directions-mini")
    assert [table.sweep.name for table in report.read(tmp_path).tables] == ["directions-mini"]


def test_seeds_beyond_the_plan_count(tmp_path):
    store_sweep(tmp_path, "regularity-mini", trials=4)
    table = report.read(tmp_path).tables[0]
    assert {found.n for found in table.comparisons.values()} == {4}


def test_methods_are_ordered_by_their_numbers_and_settings_told_apart_by_momentum(tmp_path):
    base = sweep("lambda-fashion-mini").arms[0].config
    for momentum, lam, seed in product((0.9, 0.0), (20.0, 5.0, 0.5), range(2)):
        metric = f"reweighted-l2(lam={lam})"
        store_trial(tmp_path, replace(base, metric=metric, momentum=momentum, seed=seed))
    settings = report.read(tmp_path).settings
    ordered = [f"ReweightedL2, lam {lam}" for lam in ("0.5", "5", "20")]
    assert [list(methods) for methods in settings.values()] == [ordered, ordered]
    assert sorted(", no momentum" in scale(config) for config in settings) == [False, True]


def test_trials_of_no_sweep_are_compared_at_equal_settings(tmp_path):
    for seed in (3, 8, 2**32 - 1):
        for metric in ("identity", "sobolev-tilde(lam=0.3)"):
            store_trial(tmp_path, replace(recipe("demo"), metric=metric, seed=seed))
    store_trial(tmp_path, replace(recipe("demo"), metric="sobolev-tilde(lam=0.3)", seed=3, lr=0.5))
    tables = {table.sweep.about: table for table in report.read(tmp_path).tables}
    assert len(tables) == 2
    (chosen,) = [table for about, table in tables.items() if "rate 0.01" in about]
    assert chosen.comparisons["SobolevTilde, lam 0.3"].n == 3


def test_partial_sweep_renders_and_says_what_is_missing(tmp_path):
    store_sweep(tmp_path, "directions-mini", trials=2, only=4)
    written = page.html(report.build(report.read(tmp_path), tmp_path))
    assert "Run: riesz sweep directions-mini" in written
    assert "2 pairs are too few; at least 3 are needed" in written
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
    evidence = report.read(tmp_path)
    assert len(evidence.store.broken) == 2
    written = page.html(report.build(evidence, tmp_path))
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
    text = page.html(report.build(report.read(tmp_path)))
    assert "figure-curves" in text


def test_diverged_trials_are_reported(tmp_path):
    store_sweep(tmp_path, "regularity-mini", trials=4, only=2)
    path = next(tmp_path.glob("*/sobolev-tilde-seed0*"))
    change(path, "result.json", status="diverged", last=None)
    (finding,) = report.build(report.read(tmp_path)).sections[0].findings
    assert "collapsed or diverged: 1 of 4 trials" in finding.sentence


def test_markdown_and_csv(full, evidence):
    written = markdown(full)
    assert "## Summary" in written
    assert "| network | optimizer | batch |" in written
    rows = list(csv.DictReader(io.StringIO(comparisons_csv(evidence.tables))))
    assert len(rows) == sum(len(table.comparisons) for table in evidence.tables)
    assert all(row["verdict"] for row in rows)
    assert float(rows[0]["low"]) <= float(rows[0]["difference"]) <= float(rows[0]["high"])


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_for_a_paper_the_same_every_time(name, evidence):
    figure = FIGURES[name].make(evidence)
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
    assert "sweep,scale,method" in capsys.readouterr().out
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
    once = report.read(recipe_folder)
    assert len(once.store.trials) == 6
    for folders in ([runs, recipe_folder], [recipe_folder, runs, tmp_path / "link"], [runs, tmp_path / "copy"]):
        evidence = report.read(*folders)
        assert len(evidence.store.trials) == 6
        assert [len(trials) for methods in evidence.settings.values() for trials in methods.values()] == [3, 3]
    assert len(evidence.store.copies) == 6
    trial = evidence.store.trials[0]
    trial.files.result_file.unlink()
    again = report.read(runs, tmp_path / "copy").store
    assert all(each.result is not None for each in again.trials)


def test_the_page_names_the_sweep_that_was_run_and_corrects_as_it_does(tmp_path):
    chosen = sweep("lambda-fashion-mini").with_trials(3).only(["lam = 1"])
    for config in chosen.all_configs():
        store_trial(tmp_path, config)
        Trial(tmp_path, config).add_sweep(chosen.name, chosen.comparisons)
    evidence = report.read(tmp_path)
    assert [table.sweep.name for table in evidence.tables] == ["lambda-fashion-mini"]
    printed = results(chosen, evidence.store).comparisons
    for label, comparison in printed.items():
        assert evidence.tables[0].comparisons[label].family == comparison.family == 8
        assert evidence.tables[0].comparisons[label].p_holm == comparison.p_holm


def test_without_a_record_no_sweep_is_named_and_the_correction_is_no_weaker(tmp_path):
    for config in sweep("lambda-fashion-mini").with_trials(3).only(["lam = 1"]).all_configs():
        store_trial(tmp_path, config)
    tables = report.read(tmp_path).tables
    assert not {table.sweep.name for table in tables} & set(SWEEPS)
    assert all(comparison.family >= 8 for table in tables for comparison in table.comparisons.values())


def test_a_sweep_of_ones_own_keeps_its_correction(tmp_path):
    for metric in ("identity", "sobolev-tilde"):
        for seed in range(2):
            config = replace(recipe("demo"), recipe="mine", lr=0.03, metric=metric, seed=seed)
            store_trial(tmp_path, config)
            Trial(tmp_path, config).add_sweep("mine:sweep", 5)
    (table,) = report.read(tmp_path).tables
    assert [comparison.family for comparison in table.comparisons.values()] == [5]


def test_versions_of_an_edited_script_are_told_apart(tmp_path):
    for digest in ("1a2b3c4d5e6f", "99887766aabb"):
        for metric in ("identity", "sobolev-tilde"):
            for seed in range(2):
                config = replace(recipe("demo"), recipe="compare-mine", task="own", optimizer="own", metric=metric,
                                 model=f"mine.py:train@{digest}", seed=seed)  # fmt: skip
                store_trial(tmp_path, config)
    text = markdown(report.build(report.read(tmp_path)))
    assert "compare-mine, version 1a2b3c" in text
    assert "compare-mine, version 998877" in text


def test_a_lone_method_is_no_baseline(tmp_path):
    store_trial(tmp_path, replace(recipe("demo"), metric="sobolev-tilde"))
    (table,) = report.read(tmp_path).tables
    assert [row[1].text for row in comparison_table(table).cells()] == ["not compared"]
    store_trial(tmp_path, recipe("demo"))
    (table,) = report.read(tmp_path).tables
    assert {row[0].text: row[1].text for row in comparison_table(table).cells()}["SGD"] == "baseline"


def test_a_difference_without_an_interval_shows_none(tmp_path):
    for seed in range(3):
        store_trial(tmp_path, replace(recipe("demo"), seed=seed), score=0.9 + 0.01 * seed)
        store_trial(tmp_path, replace(recipe("demo"), metric="reweighted-l2", seed=seed), score=0.9 + 0.02 * seed)
    store_trial(tmp_path, replace(recipe("demo"), metric="reweighted-l2(lam=5)", seed=0), score=0.8)
    overview = FIGURES["overview"].make(report.read(tmp_path))
    titles = re.findall("<title>(.*?)</title>", drawing.picture(overview, "svg").decode())
    assert any(re.search(r": [\d.]+, [-\d.]+ to [\d.]+ \(95% interval\)$", title) for title in titles)
    assert re.fullmatch(r"ReweightedL2, ReweightedL2, lam 5: -[\d.]+", titles[-1])


def test_a_figure_says_where_lower_is_better(tmp_path):
    store_sweep(tmp_path / "fid", "spade-mini", trials=2)
    figure = FIGURES["overview"].make(report.read(tmp_path / "fid"))
    assert "worse where the axis says that lower is better" in figure.caption
    assert all("(lower is better)" in panel.y for panel in figure.panels)
    store_sweep(tmp_path / "accuracy", "regularity-mini", trials=2)
    figure = FIGURES["overview"].make(report.read(tmp_path / "accuracy"))
    assert "lower" not in figure.caption + figure.panels[0].y


def test_the_answer_stands_before_the_contents(runs):
    text = page.html(report.build(report.read(runs)))
    assert text.index('id="summary"') < text.index('<nav aria-label="Contents"') < text.index('id="comparisons"')
