"""What the answer says and what it must not hide; mistakes that are noticed before they cost anything."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import riesz
import riesz_lab
from riesz_lab import cli
from riesz_lab.config import Config
from riesz_lab.errors import LabError
from riesz_lab.experiments.next_steps import attach_line
from riesz_lab.statistics import adjusted
from riesz_lab.store import Store


def start(attach, lr=0.1):
    model = nn.Conv2d(1, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, optimizer, attach(optimizer, model)


def one_collapses(attach, seed):
    directed = isinstance(start(attach)[2], riesz.Attachment)
    return 0.103 if seed == 3 and not directed else 0.80 + 0.01 * torch.rand(()).item() * (1 + directed)


def test_a_collapsed_seed_is_named_with_the_result_without_it_beside(tmp_path):
    answer = riesz_lab.compare(one_collapses, metrics=["sobolev-tilde"], score="accuracy", runs=tmp_path)
    text = answer.text
    assert "Outlier: plain, seed 3 scored 10.30%, the other seeds 80." in text
    assert text.index("SobolevTilde against plain: undecided") < text.index("Outlier: plain")
    assert "Without such trials, SobolevTilde:" in text
    assert answer.comparisons["SobolevTilde"].n == 5
    assert answer.without_outliers["SobolevTilde"].n == 4
    assert answer.next_steps[0].startswith("Next: find out why single trials of plain stand apart; a smaller learning")


def test_the_result_without_outliers_is_corrected_like_the_answer(tmp_path):
    metrics = ["sobolev-tilde", "reweighted-l2"]
    answer = riesz_lab.compare(one_collapses, metrics=metrics, score="accuracy", runs=tmp_path)
    without = answer.without_outliers
    assert without.keys() == answer.comparisons.keys()
    assert [each.p_holm for each in without.values()] == adjusted([each.p for each in without.values()])
    assert {each.family for each in without.values()} == {2}


def test_the_line_of_code_attaches_as_the_arm_did():
    config = Config(metric="reweighted-l2", layers="all", direction="input", control="norm")
    model = nn.Linear(4, 4)
    names = {"riesz": riesz, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "model": model}
    shown = repr(eval(attach_line(config), names))
    assert "direction='input', control='norm', 2 of 2 parameters" in shown


def test_a_held_out_accuracy_is_printed_in_percent_as_the_other_is(tmp_path):
    def train(attach, seed, lr=0.1):
        start(attach)
        return {"accuracy": 0.8 + 0.01 * seed % 1, "held_out": 0.25}

    lines = []
    options = {"metrics": ["sobolev-tilde"], "score": "accuracy", "seeds": 1, "tune_seeds": 1, "runs": tmp_path}
    riesz_lab.compare(train, tune=["lr"], lr=[0.1, 0.2, 0.4], say=lines.append, **options)
    assert "plain, lr=0.1, seed 1000: held-out accuracy 25.00%" in lines[1]
    assert "plain, seed 0: accuracy 80.00%  held-out accuracy 25.00%" in lines[-2]


def wrong_optimizer(attach, seed):
    model, _, _ = start(attach)
    model(torch.rand(1, 1, 5, 5)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model.weight.detach().sum().item()


def lucky(attach, seed):
    model, optimizer, _ = start(attach)
    model(torch.rand(1, 1, 5, 5)).sum().backward()
    optimizer.step()
    return seed


@pytest.mark.parametrize("options", [{"seeds": 3}, {"until_sure": True, "budget": 3}])
def test_an_attached_optimizer_that_makes_no_step_is_the_reason_for_equal_scores(options, tmp_path):
    said = "; the optimizer that was attached made no step: attach the one that steps."
    answer = riesz_lab.compare(wrong_optimizer, metrics=["sobolev-tilde"], runs=tmp_path, **options)
    assert "identical scores in all 3 pairs" in answer.answers[0]
    assert answer.answers[0].endswith(said)
    answer = riesz_lab.compare(lucky, metrics=["sobolev-tilde"], runs=tmp_path, **options)
    assert answer.answers[0].endswith("excludes no difference.")
    # Trials of earlier versions do not say whether steps were made.
    for file in tmp_path.glob("*/*/timing.jsonl"):
        file.write_text('{"epoch": 1, "seconds": 1.0}\n')
    answer = riesz_lab.compare(wrong_optimizer, metrics=["sobolev-tilde"], runs=tmp_path, **options)
    assert answer.answers[0].endswith("excludes no difference.")


def small_gain(attach, seed):
    directed = isinstance(start(attach)[2], riesz.Attachment)
    return 0.8 + 0.001 * directed + 0.0001 * torch.rand(()).item() * (1 + directed)


def test_a_gain_within_the_margin_is_no_advice(tmp_path):
    answer = riesz_lab.compare(small_gain, metrics=["sobolev-tilde"], score="accuracy", margin=0.01, runs=tmp_path)
    assert answer.verdicts["SobolevTilde"] == "better"
    assert answer.answers[0].startswith("SobolevTilde against plain: better, +0.1")
    assert answer.answers[0].endswith("5 pairs; by less than the margin.")
    assert answer.next_steps == ["Next: nothing to change; keep the plain optimizer."]
    answer = riesz_lab.compare(small_gain, metrics=["sobolev-tilde"], score="accuracy", margin=0.0001, runs=tmp_path)
    assert answer.answers[0].startswith("SobolevTilde against plain: better, +0.1")
    assert answer.next_steps[0].startswith("Next: riesz.attach(")


def test_an_equivalence_whose_interval_passes_the_margin_says_what_it_rests_on(tmp_path):
    """Two one-sided tests at 5% are a 90% interval within the margin; the 95% interval may be wider."""
    values = {0: -0.4, 1: 0.5, 2: 0.1, 3: -0.2, 4: 0.3}

    def train(attach, seed):
        return values[seed] * isinstance(start(attach)[2], riesz.Attachment)

    interval = (-0.393, 0.513)
    for margin, expected in ((0.45, True), (0.8, False)):
        answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], margin=margin, runs=tmp_path)
        assert answer.comparisons["SobolevTilde"].interval == pytest.approx(interval, abs=1e-3)
        assert answer.answers[0].startswith(f"SobolevTilde against plain: same (within {margin:.2f}), +0.06 (-0.39")
        assert (" of two one-sided tests" in answer.answers[0]) is expected


def test_an_undecided_interval_without_zero_says_what_it_does_not_survive(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        """
import torch
from torch import nn

DIFFERENCES = {"SobolevTilde": [-2.2, -0.9, -1.9, -0.2, -0.4], "ReweightedL2": [1, -1, 0.5, -1.2, 0.3]}

def train(attach, seed):
    model = nn.Conv2d(1, 4, 3)
    attached = attach(torch.optim.SGD(model.parameters(), lr=0.1), model)
    return 0.5 + 0.01 * DIFFERENCES.get(type(attached.metric).__name__, [0.0] * 5)[seed]
"""
    )
    assert cli.main(["compare", "mine.py:train", "--score", "accuracy", "-o", "r.md"]) == 0
    assert cli.main(["compare", "mine.py:train", "--score", "accuracy", "-o", "r.html"]) == 0
    for text in (capsys.readouterr().out, (tmp_path / "r.md").read_text(), (tmp_path / "r.html").read_text()):
        assert "undecided; p = 0.097 after the correction for 2 comparisons" in text
        assert text.count("p = 0.097 after the correction") == text.count("SobolevTilde: undecided")


@pytest.mark.parametrize(("other", "named"), [(0.103, [3]), (0.79, [])])
def test_a_collapsed_seed_among_equal_scores_is_named(other, named, tmp_path):
    def train(attach, seed):
        directed = isinstance(start(attach)[2], riesz.Attachment)
        return other if seed == 3 and not directed else 0.8

    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], score="accuracy", runs=tmp_path)
    assert [outlier.seed for outlier in answer.outliers] == named


def test_usual_spread_names_nobody(tmp_path):
    def train(attach, seed):
        start(attach)
        return torch.randn(())

    assert riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=5, runs=tmp_path).outliers == []


def seeds_itself(attach, seed):
    torch.manual_seed(0)
    model, _, _ = start(attach)
    return model.weight.detach().sum().item()


def test_a_function_that_seeds_itself_is_noticed_at_the_second_seed(tmp_path):
    with pytest.raises(LabError, match=r"seeds 0 and 1 .* same weights and scores.*line \d+: torch.manual_seed\(0\)"):
        riesz_lab.compare(seeds_itself, metrics=["sobolev-tilde"], seeds=20, runs=tmp_path)
    assert len(Store(tmp_path).trials) == 3


SCRIPT = """
import torch
from torch import nn

def train(attach, seed, lr=0.1):
    print("trained")
    model = nn.Conv2d(1, 8, 3)
    attach(torch.optim.SGD(model.parameters(), lr=lr), model)
    return model.weight.sum()
"""


@pytest.mark.parametrize("output", ["missing/report.html", ".", "report.pdf"])
def test_a_bad_output_path_fails_before_the_first_trial(output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    assert cli.main(["compare", "mine.py:train", "-o", output]) == 1
    shown = capsys.readouterr()
    assert "trained" not in shown.out
    assert "output" in shown.err


def test_help_names_the_values_that_exist(capsys):
    with pytest.raises(SystemExit):
        cli.main(["compare", "mine.py:train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "None" not in shown
    for text in ("(default: 10)", "(default: 100)", "(default: sgd)", "(default: 0.01)"):
        assert text in shown


def test_attachments_of_plain_trials_take_what_others_take(tmp_path):
    def train(attach, seed):
        model, optimizer, attached = start(attach)
        attached.schedule(lambda step: {"lam": 0.5})
        attached.enabled, attached.recording = True, True
        model(torch.randn(1, 1, 5, 5)).sum().backward()
        optimizer.step()
        shown = f"{attached.report()} {attached.diagnostics()} {attached.metric} {attached.step} {attached!r}"
        attached.detach()
        return model.weight.detach().sum().item() + len(shown) * 0

    assert len(riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path).arms) == 2


def test_the_device_is_that_of_the_model(tmp_path):
    def train(attach, seed):
        start(attach)
        # A second model on another device, as far as this machine has one.
        elsewhere = nn.Conv2d(1, 4, 3, device="meta")
        attach(torch.optim.SGD(elsewhere.parameters(), lr=0.1), elsewhere)
        return torch.rand(())

    # Weights on "meta" cannot be stored: the trial fails there, after its environment is known.
    with pytest.raises(Exception):  # noqa: B017, PT011
        riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path)
    stored = json.loads(next(tmp_path.glob("*/*/environment.json")).read_text())
    assert stored[-1]["accelerator"] == "meta"


@pytest.mark.parametrize("form", ["log", "generator", "returning generator"])
def test_scores_by_epoch_make_curves(form, tmp_path):
    def log(attach, seed):
        start(attach)
        for epoch in range(3):
            attach.log(score=float(epoch), loss=torch.tensor(1.0 - epoch))
        return 2.5

    def generator(attach, seed):
        start(attach)
        for epoch in range(3):
            yield {"score": float(epoch), "loss": 1.0 - epoch}

    def returning(attach, seed):
        start(attach)
        for epoch in range(3):
            yield float(epoch)
        return {"score": 2.5, "held_out": 1.0}

    function = {"log": log, "generator": generator, "returning generator": returning}[form]
    riesz_lab.compare(function, metrics=["sobolev-tilde"], seeds=1, runs=tmp_path)
    trial = Store(tmp_path).trials[0]
    assert [row["epoch"] for row in trial.history()] == [1, 2, 3]
    assert trial.score() == (2.0 if form == "generator" else 2.5)
    assert trial.last() == trial.history()[-1]


@pytest.mark.parametrize("error", [ValueError("no luck"), SystemExit(0)])
def test_a_crash_in_one_arm_is_named_and_nothing_is_lost(error, tmp_path):
    def train(attach, seed):
        if isinstance(start(attach)[2], riesz.Attachment) and seed == 1 and (tmp_path / "crash").exists():
            raise error
        return torch.rand(())

    (tmp_path / "crash").touch()
    with pytest.raises(LabError, match=r"'train' failed with metric sobolev-tilde.*seed 1: .*Complete trials are kept"):
        riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=2, runs=tmp_path / "runs")
    states = sorted(trial.status for trial in Store(tmp_path / "runs").trials)
    assert states == ["failed", "finished", "finished", "finished"]
    (tmp_path / "crash").unlink()
    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=2, runs=tmp_path / "runs")
    assert len(answer.stored) == 3


@pytest.mark.parametrize("place", ["prompt", "notebook"])
def test_in_a_notebook_the_answer_is_words_and_progress_is_printed(place, tmp_path, monkeypatch, capsys):
    def train(attach, seed):
        return torch.rand(()) + isinstance(start(attach)[2], riesz.Attachment)

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # imported, and no notebook
    answer = riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=3, runs=tmp_path)
    assert capsys.readouterr().out == ""
    assert repr(answer).splitlines()[0] == answer.answers[0]
    assert len(repr(answer)) < 600
    assert "<b>" in answer._repr_html_()
    if place == "prompt":
        monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    riesz_lab.compare(train, metrics=["sobolev-tilde"], seeds=3, runs=tmp_path, fresh=True)
    assert "1/6 plain, seed 0: score" in capsys.readouterr().out


def test_the_command_answers_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT.replace('    print("trained")\n', ""))
    command = [
        "compare",
        "mine.py:train",
        "--metrics",
        "sobolev-tilde",
        "--set",
        "lr=0.1",
        "--seeds",
        "3",
        "-o",
        "r.md",
    ]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert out.index("verdict") < out.index("identical scores in all 3 pairs") < out.index("Report:")
    assert cli.main([*command, "--until-sure", "--budget", "3"]) == 0
    out = capsys.readouterr().out
    assert "a score without spread or known bounds" in out
    page = (tmp_path / "r.md").read_text()
    for text in (out, page):
        assert "intervals allow for a look after every pair" in text
    for text in (out, page):
        assert "p, Holm" not in text
        assert "paired t" not in text


TUNED = (
    SCRIPT.replace('    print("trained")\n', "")
    .replace("return model.weight.sum()", 'return {"score": model.weight.sum(), "held_out": -lr if attached else lr}')
    .replace("    attach(", "    attached = 'Plain' in repr(attach(")
    .replace("lr=lr), model)", "lr=lr), model))")
)


def test_arms_at_their_own_rates_are_compared_on_the_page_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TUNED)
    command = ["compare", "mine.py:train", "--metrics", "sobolev-tilde", "--set", "lr=0.1,0.2", "--tune", "lr"]
    assert cli.main([*command, "--tune-seeds", "1", "--seeds", "3", "-o", "r.md"]) == 0
    out = capsys.readouterr().out
    assert "Best: plain lr=" in out
    page = (tmp_path / "r.md").read_text()
    assert "identical scores in all 3 pairs" in page
    assert "lr" in page[page.index("Tuning") :]
    assert "Statistics" in page
