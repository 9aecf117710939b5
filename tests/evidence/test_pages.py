"""The pages of evidence say what the stored trials say: numbers, verdict words, and nothing typed by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from evidence import EXPERIMENTS, page, results, tables
from evidence.names import names
from evidence.numbers import StaleSentenceError, arms_of


@pytest.fixture(scope="module")
def stored():
    return results.read()


def changed(stored, group, by):
    """The evidence if the scores of these trials were higher by so much."""
    trials = [
        replace(trial, result=replace(trial.result, last=last | {"test_accuracy": last["test_accuracy"] + by}))
        if trial.config.group == group and (last := trial.last())
        else trial
        for trial in stored.trials
    ]
    return results.judge(trials)


def one_changed(stored, id_, by=0.001):
    (trial,) = (trial for trial in stored.trials if trial.config.id == id_)
    last = trial.last() | {"test_accuracy": trial.last()["test_accuracy"] + by}
    others = [one for one in stored.trials if one is not trial]
    return results.judge([*others, replace(trial, result=replace(trial.result, last=last))])


def group_of(stored, experiment, label):
    return arms_of(stored.results[experiment])[label].config.group


def test_the_pages_are_recomputed_from_the_trials(stored):
    for name, text in page.pages(stored).items():
        assert (page.DOCS / name).read_text() == text, f"docs/{name} is not what the trials say; run `make evidence`"


def test_its_figures_are_recomputed_from_the_trials():
    for name, content in page.files().items():
        assert (page.DOCS / name).read_bytes() == content, f"docs/{name}: run `make evidence`"


def test_the_check_says_which_file_is_stale(tmp_path, monkeypatch, capsys, stored):
    files = {name: text.encode() for name, text in page.pages(stored).items()}
    monkeypatch.setattr(page, "files", lambda: files)
    monkeypatch.setattr(page, "DOCS", tmp_path)
    assert page.main([]) == 0
    assert page.main(["--check"]) == 0
    (tmp_path / "evidence.md").write_text("other")
    assert page.main(["--check"]) == 1
    assert capsys.readouterr().out.endswith("docs/evidence.md: not what the trials say; run `make evidence`\n")


@pytest.mark.parametrize(
    ("experiment", "label"),
    [
        ("lambda-fashion", "ReweightedL2 lam = 1"),
        ("lambda-mnist", "ReweightedL2 lam = 5"),
        ("regimes", "b8 lr 0.1 SGD"),
        ("regimes-controls", "b128 lr 0.1 SGD + SobolevTilde, norm kept"),
    ],
)
def test_one_score_changed_by_a_tenth_of_a_point_changes_the_pages(stored, experiment, label):
    trial = arms_of(stored.results[experiment])[label].trials[0]
    new = page.pages(one_changed(stored, trial.config.id))
    assert any(new[name] != (page.DOCS / name).read_text() for name in new)


def test_every_arm_counts(stored):
    """One trial of every arm is raised at once: the mean of each arm changes wherever a table has it."""
    one_of_each = {trial.config.group: trial.config.id for trial in stored.trials}
    raised = [
        replace(trial, result=replace(trial.result, last=last | {"test_accuracy": last["test_accuracy"] + 0.001}))
        if one_of_each[trial.config.group] == trial.config.id and (last := trial.last())
        else trial
        for trial in stored.trials
    ]
    after, shown = results.judge(raised), set()
    for name, found in stored.results.items():
        old, new = (tables.results(arms_of(each)).splitlines()[2:] for each in (found, after.results[name]))
        assert not set(old) & set(new), name
        shown |= {arm.config.group for arm in arms_of(found).values()}
    tuning = stored.results["tuned-fashion"].tuned.trials
    old, new = (names(each)["held_out"] for each in (stored, after))
    assert all(old[arm][rate] != new[arm][rate] for arm in old for rate in old[arm])
    # So a score that counts for nothing would be one of an arm that no page has.
    assert one_of_each.keys() == shown | {trial.config.group for trial in tuning}


@pytest.mark.parametrize(
    ("experiment", "label", "by", "stale"),
    [
        ("lambda-fashion", "SobolevTilde lam = 20, as scale", 0.03, "says 'None', the trials say 1|says 'none'"),
        ("lambda-fashion", "SobolevTilde lam = 20, as scale", 0.006, "says 'worse', the trials say 'same'"),
        ("regimes", "b128 lr 0.1 SGD + SobolevTilde", 0.015, "says 'worse', the trials say 'undecided'"),
        ("regimes", "b8 lr 0.1 SGD + SobolevTilde", 0.01, "excludes .* it does not"),
        ("regimes", "b8 lr 0.03 SGD + ReweightedL2", 0.1, "the page says 'none', the trials say 1"),
        ("lambda-mnist-controls", "ReweightedL2 lam = 20, norm kept", 0.004, "beside"),
        (
            "regimes-controls",
            "b128 lr 0.1 SGD + SobolevTilde, norm kept",
            -0.1,
            "says 'undecided', the trials say 'worse'",
        ),
    ],
)
def test_a_word_that_no_longer_holds_stops_the_page(stored, experiment, label, by, stale):
    group = group_of(stored, experiment, label)
    with pytest.raises(StaleSentenceError, match=rf"^evidence(-appendix)?\.md, line \d+: .*({stale})"):
        page.pages(changed(stored, group, by))


def test_nothing_is_written_if_a_sentence_does_not_hold(tmp_path, monkeypatch, capsys):
    def files():
        raise StaleSentenceError("evidence.md, line 3: it does not hold")

    monkeypatch.setattr(page, "files", files)
    monkeypatch.setattr(page, "DOCS", tmp_path)
    assert page.main([]) == 1
    assert capsys.readouterr().err == "evidence.md, line 3: it does not hold\n"
    assert not list(tmp_path.iterdir())


def test_a_trial_that_is_missing_stops_the_page(stored):
    with pytest.raises(StaleSentenceError, match=r"regimes.*: 1 trial missing"):
        page.pages(results.judge([trial for trial in stored.trials if trial.config.id != "025ca55021bb"]))


@pytest.mark.parametrize(
    ("sentence", "stale"),
    [
        ("It is {{ fashion.worse }}.", "'fashion' is undefined"),
        ('{{ lambda_fashion["ReweightedL2 lam = 2"] }}', "'ReweightedL2 lam = 2'"),
        ('{{ lambda_fashion["ReweightedL2 lam = 1"].median }}', "no attribute 'median'"),
        ('{{ lambda_fashion["SGD (lam = 0)"].size }}', "this arm is a baseline"),
        ('{{ lambda_fashion["ReweightedL2 lam = 1"].better }}', "says 'better', the trials say 'undecided'"),
        ('{{ held_out["SGD"][0.03] }}', "0.03"),
    ],
)
def test_a_number_or_word_that_is_not_there_stops_the_page(tmp_path, stored, sentence, stale):
    (tmp_path / "page.md").write_text(f"A sentence.\n{sentence}\n")
    with pytest.raises(StaleSentenceError, match=f"^page.md, line 2: .*{re.escape(stale)}"):
        page.pages(stored, tmp_path)


def test_the_page_is_short_and_its_table_narrow(stored):
    text = page.pages(stored)["evidence.md"]
    assert len(text.split()) <= 900
    assert {line.count(" | ") for line in text.splitlines() if line.startswith("| ")} == {3}


TEMPLATES = {file.name: file.read_text() for file in page.TEMPLATES.glob("*.md")}
PLACEHOLDER = re.compile(r"{#.*?#}|{{.*?}}|{%.*?%}", re.DOTALL)


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_result_is_typed_by_hand(name):
    """Numbers in sentences are placeholders; what is typed is a setting."""
    typed = PLACEHOLDER.sub("", TEMPLATES[name])
    typed = re.sub(r"\]\([^)]*\)|`[^`]*`", "", typed)  # links, code
    typed = re.sub(r"CIFAR-10|ResNet-\d+|VGG-16|ReweightedL2|5e-4", "", typed)
    numbers = set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?%?", typed))
    assert numbers <= SETTINGS, f"{sorted(numbers - SETTINGS)}: use a placeholder, or add a setting to SETTINGS"


SETTINGS = {
    *("1", "5", "20", "19", "0"),  # lam
    *("0.1", "0.03", "0.01"),  # rates
    *("4", "8", "10", "12", "100", "128", "240"),  # epochs, batch sizes
    *("2", "3", "0.9", "50"),  # seeds, momentum, filters
    *("1,000", "10,000", "50,000", "60,000"),  # images
    *("0.2", "5%", "80%", "95%"),  # margin, level, power, interval
}


WORDS = ("better", "worse", "undecided")  # "same" has other uses
DEFINED = (  # where a word is explained, or is the paper's
    "Undecided means", "3. *Better* and *worse*", "- **Differences** are", "- **p, Holm for n**", "*Mean differences",
    "| CIFAR-10 with", "| Direction of",
)  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_verdict_is_typed_by_hand(name):
    """A paragraph with a verdict word has a placeholder or a check that holds it."""
    for paragraph in re.split(r"\n\n|\n(?=- |\d\. |\| )", TEMPLATES[name]):
        held = " ".join(PLACEHOLDER.findall(paragraph))
        typed = PLACEHOLDER.sub("", paragraph)
        loose = {word for word in WORDS if re.search(rf"\b{word}\b", typed, re.IGNORECASE) and f".{word}" not in held}
        assert not loose or paragraph.startswith(DEFINED), (loose, paragraph)


def test_the_protocol_has_270_trials_in_nine_experiments(stored):
    assert len(list(EXPERIMENTS.glob("*/experiment.json"))) == len(stored.results) == 9
    assert stored.planned == {trial.config.id for trial in stored.trials}
    assert len(stored.planned) == 270
