"""What the docs say of the evidence is what its stored trials say."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from evidence import figures, not_tested, page, regularity, reproduce, sweeps
from evidence.claims import CLAIMS
from evidence.collect import collect
from evidence.data import read
from evidence.rows import lengthening, metrics
from evidence.tables import search
from safetensors.torch import save_file

from evidence_trials import store
from riesz_lab.errors import LabError
from riesz_lab.store import Store
from riesz_lab.sweeps import results
from stored import store_trial


def test_every_stored_trial_reads_and_is_complete():
    store = Store(page.TRIALS)
    assert not store.broken
    assert len(store.trials) >= 6
    assert all(trial.result is not None for trial in store.trials)


def test_every_trial_was_trained_by_one_thread_as_the_page_says():
    for trial in Store(page.TRIALS).trials:
        assert {one["threads"] for one in json.loads((trial.path / "environment.json").read_text())} == {1}


def test_no_weights_are_published_and_the_trials_stay_small():
    files = [file for file in page.TRIALS.rglob("*") if file.is_file()]
    assert not [file for file in files if file.suffix == ".safetensors"]
    assert sum(file.stat().st_size for file in files) <= 20e6


def test_the_page_is_recomputed_from_the_trials():
    written = (page.DOCS / "evidence.md").read_bytes()
    assert written == page.files()["evidence.md"], "docs/evidence.md is not what the trials say; run `make evidence`"


def test_its_figures_are_recomputed_from_the_trials():
    """To the byte."""
    pictures = {name: content for name, content in page.files().items() if name != "evidence.md"}
    assert len(pictures) == 4
    for name, content in pictures.items():
        assert (page.DOCS / name).read_bytes() == content, (
            f"docs/{name} is not what the trials say; run `make evidence`"
        )


@pytest.mark.parametrize("recipe", ["fashion-cnn", "mnist-cnn", "evidence-regimes"])
def test_the_page_is_not_that_of_trials_of_which_one_score_is_a_tenth_of_a_point_higher(tmp_path, recipe):
    trials = shutil.copytree(page.TRIALS, tmp_path / "trials")
    shown = {row.arm.config.group for table in read(trials).tables.values() for row in table.rows.values()}
    trial = next(one for one in Store(trials).trials if one.config.recipe == recipe and one.config.group in shown)
    _raise_score(trial)
    assert page.text(trials) != page.text(page.TRIALS)


def _raise_score(trial):
    """By a tenth of a point."""
    file = trial.path / "result.json"
    result = json.loads(file.read_text())
    result["last"]["test_accuracy"] += 0.001
    file.write_text(json.dumps(result))


def test_a_score_changed_by_a_tenth_of_a_point_changes_the_page(tmp_path):
    """One trial of every arm, all at once: the mean of every arm must change, wherever the page has it."""
    trials = shutil.copytree(page.TRIALS, tmp_path / "trials")
    before = _means(page.text(trials))
    one_of_each = {trial.config.group: trial for trial in Store(trials).trials if trial.status == "finished"}
    for trial in one_of_each.values():
        _raise_score(trial)
    after = _means(page.text(trials))
    assert len(before) >= len(one_of_each)
    assert not [(old, new) for old, new in zip(before, after, strict=True) if old == new]
    # So a score that counts for nothing would be one of an arm that the page does not have.
    sweeps_shown = [search(Store(trials)), *(table.sweep for table in read(trials).tables.values())]
    assert one_of_each.keys() <= {arm.config.group for sweep in sweeps_shown for arm in sweep.arms}


def _means(text):
    """Every mean score that the page's tables of results have, with the first cell of its row."""
    means, columns = [], slice(0)
    for line in text.split("## Results")[1].split("## Regularity")[0].splitlines():
        first, *cells = line.strip("| ").split(" | ")
        if first == "arm":
            columns = slice(2, 3)
        elif first.startswith("held-out"):
            columns = slice(0, -1)
        elif line.startswith("| ") and not first.startswith("-"):
            means += [f"{first}: {cell}" for cell in cells[columns] if cell not in ("-", "diverged")]
    return means


def test_results_are_those_of_the_histories():
    for trial in Store(page.TRIALS).trials:
        last = trial.history()[-1] if trial.status == "finished" else None
        assert trial.result.last == last, trial.path.name


def test_a_figure_is_drawn_once_its_sweep_is_complete_and_has_its_caption(tmp_path):
    *most, last = (config for arm in sweeps.regimes().arms for config in sweeps.regimes().configs(arm))
    for config in most:
        store_trial(tmp_path, config, score=0.6)
    assert set(page.files(tmp_path)) == {"evidence.md"}
    store_trial(tmp_path, last, score=0.6)
    files = page.files(tmp_path)
    assert set(files) == {"evidence.md", "evidence-regimes.svg"}
    assert "](evidence-regimes.svg)\n\nMean difference in test score over pairs" in files["evidence.md"].decode()


def test_differences_and_regularity_are_drawn_of_complete_sweeps_as_the_tables_have_them(tmp_path):
    sweep = sweeps.plain_sgd()
    *most, last = (config for arm in sweep.arms for config in sweep.configs(arm))
    for number, config in enumerate(most):
        path = store_trial(tmp_path, config, score=0.8 + 0.001 * number)
        layer = {"layer": "conv", "direction": "output", "order": 0.1 + 0.02 * number, "level": 0.01 * number}
        (path / "regularity.json").write_text(json.dumps([layer]))
    # The matched sweep lacks the trial too: both have plain SGD at 0.2.
    assert figures.figures(read(tmp_path)) == {}
    store_trial(tmp_path, last, score=0.9)
    data = read(tmp_path)
    drawn = figures.figures(data)
    assert set(drawn) == {figures.DIFFERENCES, figures.REGULARITY}
    plain, matched, *_ = drawn[figures.DIFFERENCES].panels
    assert (plain.title, matched.title) == ("plain-sgd", "plain-sgd-matched")
    points = {label: y for series in plain.series for label, y in zip(series.x, series.y, strict=True)}
    table = data.tables["evidence-plain-sgd"]
    assert points == {label: pytest.approx(100 * one.difference) for label, one in table.comparisons.items()}
    # Arms meet different baselines here, so each is named.
    assert [x for series in matched.series for x in series.x] == [
        f"{row.arm.label} against {row.arm.baseline}"
        for row in data.tables["evidence-plain-sgd-matched"].rows.values()
        if row.arm.baseline
    ]
    level, order = drawn[figures.REGULARITY].panels
    assert (level.title, order.title) == ("plain-sgd: level", "plain-sgd: order")
    # Three seeds of each arm, in turn: the arm after plain SGD has trials 3 to 5, so that each is 3 after its partner.
    assert (level.series[0].y[0], order.series[0].y[0]) == (pytest.approx(0.03), pytest.approx(0.06))
    for panel, quantity in ((level, "level"), (order, "order")):
        points = {label: y for series in panel.series for label, y in zip(series.x, series.y, strict=True)}
        assert points == {
            label: one.difference for (_, label, what), one in data.correlations.items() if what == quantity and one.n
        }


def test_a_complete_sweep_has_verdicts_with_intervals_and_others_have_none(tmp_path):
    better = "reweighted-l2(lam=5.0)"
    for arm in sweeps.lambda_mnist().arms:
        for number, config in enumerate(sweeps.lambda_mnist().configs(arm)):
            spread = 0.0001 * number if arm.config.metric == better else 0.0
            store_trial(tmp_path, config, score=0.9 + spread + 0.01 * (arm.config.metric == better))
    rows = [line for line in page.files(tmp_path)["evidence.md"].decode().splitlines() if line.startswith("| ")]
    (mnist,) = (line for line in rows if line.startswith("| The same on MNIST."))
    confirmed = r"\*\*confirmed in direction\*\*: ReweightedL2 lam = 5 \(\+1\.02, \+\d\.\d\d to \+\d\.\d\d\)"
    assert re.search(rf"35 of 35 \| .*{confirmed}", mnist)
    # All others, that of regularity, and the controls of what is better.
    assert sum("not decided" in line for line in rows) == len(CLAIMS) + 1


def test_arms_of_the_protocol_have_the_ids_of_the_trials_run_before_it():
    by_label = {arm.label: arm.config.id for arm in sweeps.lambda_fashion().arms}
    text = (page.ROOT / "evidence" / "PROTOCOL.md").read_text()
    for label in ("SGD (lam = 0)", "ReweightedL2 lam = 1", "SobolevTilde lam = 5, as scale"):
        assert by_label[label] in text


def test_regularity_is_compared_with_the_baseline_of_the_same_seed(tmp_path):
    sweep = sweeps.lambda_fashion()
    sgd, method = sweep["SGD (lam = 0)"], sweep["ReweightedL2 lam = 5"]
    for seed, drift in enumerate((0.0, 0.3, -0.2, 0.1)):  # initial weights differ by seed far more than methods do
        others = (replace(method.config, control="norm"), 5.0), (replace(method.config, hold_out=1000), 9.0)
        for config, order in ((sgd.config, 0.0), (method.config, 0.05), *others):
            path = store_trial(tmp_path, replace(config, seed=seed))
            order += drift + 0.0001 * seed * bool(order)
            layer = {"layer": "conv", "direction": "output", "order": order, "level": 0.0}
            (path / "regularity.json").write_text(json.dumps([layer]))
    diverged = store_trial(tmp_path, replace(method.config, seed=4))
    (diverged / "regularity.json").write_text("[]")
    compared = regularity.compare(regularity.measure([results(sweep, Store(tmp_path))]))
    order = compared["lambda-fashion", method.label, "order"]
    assert (order.n, order.verdict) == (4, "better")
    assert order.difference == pytest.approx(0.05015)
    assert order.family == 12


def test_it_is_counted_where_filters_are_more_alike_along_the_input_in_the_same_layers(tmp_path):
    sgd, method = sweeps.lambda_mnist().arms[:2]
    first = {"layer": "conv1", "direction": "output", "order": 0.0, "level": -0.3}  # of one image channel: no input
    for arm, output, along_input in ((sgd, 0.1, 0.2), (method, 0.4, 0.3)):
        for seed in range(3):
            path = store_trial(tmp_path, replace(arm.config, seed=seed))
            levels = {"output": output, "input": along_input}
            second = {"layer": "conv2", "order": 0.0}
            both = [second | {"direction": direction, "level": level} for direction, level in levels.items()]
            (path / "regularity.json").write_text(json.dumps([first, *both]))
    measured = regularity.measure([results(sweeps.lambda_mnist(), Store(tmp_path))])
    counted = regularity.along_input(measured)
    assert counted.endswith("in 1 of 1 arms of SGD (in the paper, it is the reverse), in 0 of 1 arms with a metric")
    section = regularity.section(measured, {})
    assert any(line.startswith("| lambda-mnist | SGD (lam = 0) | 3 | -0.1000 |") for line in section)  # all layers
    assert section[-2].startswith("| lambda-mnist | SGD (lam = 0) | 3 | +0.1000 | +0.0000 | +0.2000 |")  # those of both


def test_the_order_of_sobolev_tilde_is_compared_with_that_of_reweighted_l2_at_the_same_lam(tmp_path):
    sweep = sweeps.lambda_mnist()
    tilde = "SobolevTilde lam = 5, as scale"
    for label, order in (("ReweightedL2 lam = 5", 0.01), (tilde, 0.03), ("SobolevTilde lam = 20, as scale", 0.9)):
        for config in sweep.configs(sweep[label])[:3]:
            path = store_trial(tmp_path, config)
            wave = 0.001 * config.seed * (order > 0.02)
            layer = {"layer": "conv", "direction": "output", "order": order + wave, "level": 0.1, "p": 0.03 + order}
            (path / "regularity.json").write_text(json.dumps([layer, layer | {"direction": "input", "p": 0.9}]))
    measured = regularity.measure([results(sweep, Store(tmp_path))])
    ((key, one),) = regularity.against_reweighted(measured).items()  # lam = 20 has no partner
    assert key == ("lambda-mnist", tilde)
    assert (one.difference, one.wins, one.n) == (pytest.approx(0.021), 3, 3)
    assert regularity.describe_order(measured).endswith(
        "higher in every seed in 1 of 1 pairs of arms, by 0.021 to 0.021"
    )
    rows = [line for line in regularity.section(measured, {}) if line.startswith("| lambda-mnist | ")]
    assert [row.rpartition(" | ")[2] for row in rows] == ["3 of 3 |", "0 of 3 |", "0 of 3 |", "3 of 3 |"]


def test_what_was_not_tested_has_the_papers_claim_and_a_cost(tmp_path):
    rows = [line.split(" | ") for line in not_tested.section({}) if line.startswith("| ")][2:]
    assert [row[2] for row in rows] == ["`table-cifar`", "`directions`", "`variance`", "`voc`", "`spade`"]
    assert rows[0][1].startswith("higher accuracy in 17 of 18 comparisons with SGD and Adam, by up to +1.50 points; ")
    assert all(row[4].endswith(" hours") for row in rows)
    store(tmp_path, sweeps.plain_sgd(), {})
    counted = next(line for line in not_tested.section(read(tmp_path).tables) if line.startswith("The protocol does"))
    comparisons = [row.comparison for row in metrics(read(tmp_path).tables["evidence-plain-sgd"])]
    smaller = sum(one.variance_ratio < 1 for one in comparisons)
    assert f"in {smaller} of 4 comparisons." in counted


def test_the_page_names_the_machines(tmp_path):
    for number, config in enumerate(sweeps.plain_sgd().all_configs()[:3]):
        path = store_trial(tmp_path, config)
        machine = {"cpu": "one" if number else "another", "packages": {"torch": "2"}, "threads": 1}
        (path / "environment.json").write_text(json.dumps([machine]))
    trained = "Trained on one with torch 2: 2 trials; another with torch 2: 1 trial; one thread each. Trials of a"
    assert any(line.startswith(trained) for line in page.text(tmp_path).splitlines())


def test_the_lengthening_of_gradients_is_a_median_over_epochs_by_layer_and_trial(tmp_path):
    sweep = sweeps.lambda_mnist()
    ratios = {0: {"a": (1.0, 2.0, 9.0), "b": (3.0, None, 5.0)}, 1: {"a": (1.5, 1.5, 1.5), "b": (2.0, 2.0, 2.0)}}
    for seed, by_layer in ratios.items():
        path = store_trial(tmp_path, replace(sweep.arms[1].config, seed=seed))
        epochs = [{name: {"ratio": values[epoch]} for name, values in by_layer.items()} for epoch in range(3)]
        rows = (json.dumps({"epoch": epoch, "layers": layers}) + "\n" for epoch, layers in enumerate(epochs))
        (path / "updates.jsonl").write_text("".join(rows))
    row = results(sweep, Store(tmp_path)).rows[sweep.arms[1].label]
    assert lengthening(row) == (1.5, 4.0)


def test_accuracy_on_training_images_is_that_of_the_last_epoch(tmp_path):
    sweep = sweeps.lambda_mnist()
    for number, config in enumerate(sweep.configs(sweep.arms[0])[:2]):
        file = store_trial(tmp_path, config) / "result.json"
        result = json.loads(file.read_text())
        result["last"]["train_accuracy"] = 0.9 + 0.02 * number
        file.write_text(json.dumps(result))
    assert "| SGD (lam = 0) | 2/5 | 91.00 | " in page.text(tmp_path)


def test_collecting_takes_complete_trials_of_the_protocol_once(tmp_path):
    source, target = tmp_path / "runs", tmp_path / "trials"
    config = sweeps.lambda_mnist().arms[0].config
    path = store_trial(source, config)
    store_trial(source, replace(config, lr=0.08))  # at a rate that was tried and is not planned
    (path / "weights.safetensors").unlink(missing_ok=True)
    (path / "checkpoints").mkdir(exist_ok=True)
    (added,) = collect(source, target)
    assert added == target / path.parent.name / path.name
    assert not (added / "checkpoints").exists()
    (added / "sweeps.json").write_text('{"one": 2}')
    (path / "sweeps.json").write_text('{"another": 3}')
    assert collect(source, target) == []
    assert Store(target).trials[0].sweeps() == {"one": 2, "another": 3}
    store_trial(source, config, score=0.123)
    with pytest.raises(LabError, match="expected the result that"):
        collect(source, target)


def test_weights_are_left_and_their_regularity_is_kept(tmp_path):
    config = sweeps.lambda_mnist().arms[0].config
    path = store_trial(tmp_path / "runs", config)
    save_file({"conv.weight": torch.randn(8, 8, 3, 3)}, path / "weights.safetensors")
    (added,) = collect(tmp_path / "runs", tmp_path / "trials")
    assert not (added / "weights.safetensors").exists()
    assert {layer["direction"] for layer in json.loads((added / "regularity.json").read_text())} == {"output", "input"}


@pytest.mark.parametrize(
    ("cpu", "shift", "agrees", "how"),
    [
        (None, 0.0, True, "bit for bit: all 100 rows"),
        (None, 0.0001, False, "not bit for bit, on a machine of the same kind"),
        ("another", 0.0001, True, "within 3 standard deviations"),
        ("another", 0.5, False, "beyond 3 standard deviations"),
    ],
)
def test_a_repetition_agrees_bit_for_bit_or_on_another_machine_within_the_spread(tmp_path, cpu, shift, agrees, how):
    sgd = sweeps.lambda_fashion().arms[0].config
    group = [trial for trial in Store(page.TRIALS).trials if trial.config.group == sgd.group]
    copy = shutil.copytree(group[0].path, tmp_path / group[0].path.name)
    rows = [json.loads(line) for line in (copy / "history.jsonl").read_text().splitlines()]
    rows[-1]["test_accuracy"] += shift
    (copy / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(result | {"last": rows[-1]}))
    if cpu:
        environments = json.loads((copy / "environment.json").read_text())
        (copy / "environment.json").write_text(json.dumps([one | {"cpu": cpu} for one in environments]))
    verdict, said = reproduce.compare(group[0], Store(tmp_path).trials[0], group)
    assert (verdict, how in said) == (agrees, True), said
