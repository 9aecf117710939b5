"""Mistakes of all kinds on the command line: a clear error, before anything is trained where that is possible, and no
complete trial is lost."""

import re

import pytest

from riesz_lab import cli

HEAD = """
import torch
from torch import nn

def start(attach, lr=0.1):
    model = nn.Conv2d(1, 4, 3)
    attached = attach(torch.optim.SGD(model.parameters(), lr=lr), model)
    return "Plain" not in repr(attached)

"""
PLAIN = "def train(attach, seed, lr=0.1):\n    start(attach, lr)\n    return torch.rand(())\n"
NO_RATE = "def train(attach, seed):\n    start(attach)\n    return {'score': torch.rand(()), 'held_out': 0.5}\n"
TUNABLE = PLAIN.replace("torch.rand(())", "{'score': torch.rand(()), 'held_out': 0.5}")
TEXT_SCORE = PLAIN.replace("torch.rand(())", "'good'")
VECTOR_SCORE = PLAIN.replace("torch.rand(())", "torch.rand(3)")
SAME = PLAIN.replace("torch.rand(())", "0.5").replace("    start", "    torch.manual_seed(0)\n    start")
CRASH = """def train(attach, seed):
    if start(attach) and seed == 1:
        raise ValueError('no luck')
    return torch.rand(())
"""
EXIT = CRASH.replace("raise ValueError('no luck')", "raise SystemExit(3)")
NAN = "def train(attach, seed):\n    return float('nan') if start(attach) else torch.rand(())\n"
NAN_EVERYWHERE = TUNABLE.replace("'held_out': 0.5", "'held_out': float('nan')")
EXIT_ON_IMPORT = "raise SystemExit(0)\n"
PARTIAL = PLAIN.replace("train", "inner") + "import functools\ntrain = functools.partial(inner, lr=0.2)\n"
LINEAR = PLAIN.replace("start(attach, lr)", "m = nn.Linear(4, 4); attach(torch.optim.SGD(m.parameters(), lr=lr), m)")
NAN_ASIDE = TUNABLE.replace("    return", "    attach.log(f1=float('nan'), loss=1.0)\n    return")
NEVER_ENDS = PLAIN.replace("torch.rand(())", "{'score': torch.rand(()), 'held_out': lr}")

REFUSED = {
    "no rate to tune": (NO_RATE, ["--tune", "lr"], r"does not take the setting 'lr': write it as train\(attach, seed"),
    "a grid of one": (TUNABLE, ["--tune", "lr", "--set", "lr=0"], "expected a grid for 'lr'"),
    "unknown setting": (PLAIN, ["--set", "rate=0.1"], "does not take the setting 'rate'"),
    "the seed as a setting": (
        PLAIN,
        ["--set", "seed=3"],
        "setting 'seed': expected another name; every trial is given",
    ),
    "setting given twice": (PLAIN, ["--set", "lr=0.1", "lr=0.2"], "each name once, got 'lr=0.2'"),
    "value given twice": (PLAIN, ["--set", "lr=0.1,0.1"], "lr: expected one or more different values"),
    "misspelt metric": (PLAIN, ["--metrics", "sobolev-tilda"], "did you mean 'sobolev-tilde'"),
    "output in no folder": (PLAIN, ["-o", "nowhere/report.html"], "output: expected a folder that exists"),
    "output that is a folder": (PLAIN, ["-o", "taken.html"], "output: expected a file that can be written"),
    "no function named": (PLAIN, None, r"expected FILE.py:FUNCTION.*its functions: start.*train\(attach, seed, lr=0.1"),
    "misspelt function": (
        PLAIN.replace("train", "trian"),
        [],
        r"'mine.py' has no 'train'; it has start, trian; did you mean 'trian'\?$",
    ),
    "exit on import": (EXIT_ON_IMPORT, [], r"does nothing when it is imported.*SystemExit\(0\)"),
    "mistake in the syntax": ("def train(attach, seed)\n", [], r"cannot be imported: SyntaxError: .*\(mine.py, line"),
    "error on import": ("{}['images']\n", [], r"cannot be imported: KeyError: 'images' \(.*mine.py, line \d+\)"),
    "layers of no kind": (PLAIN, ["--set", "layers=every"], "layers: expected 'conv', 'weights', 'all', got 'every'"),
    "runs is a file": (PLAIN, ["--runs", "mine.py"], "mine.py"),
    "workers for a partial": (PARTIAL, ["--workers", "2"], "workers: expected 1.*is a partial"),
    "no workers": (PLAIN, ["--workers", "0"], "workers: expected 1 or more, got 0"),
    "margin of no size": (PLAIN, ["--margin", "half"], "margin: expected a number above 0"),
    "margin of 100 points": (
        PLAIN,
        ["--score", "accuracy", "--margin", "1"],
        "expected less than 1.*one point is 0.01",
    ),
    "plan and until sure": (PLAIN, ["--plan", "--until-sure"], "expected until_sure or plan, got both"),
}
ENDED = {
    "score of the wrong type": (TEXT_SCORE, [], "score: expected a number, got 'good'", 0),
    "misspelt score": (
        TUNABLE.replace("'score'", "'accuracy'"),
        ["--score", "acuracy"],
        "returned accuracy, held_out: expected a field 'acuracy'; name the score with --score accuracy. This trial is "
        "not kept",
        0,
    ),
    "nothing to direct": (LINEAR, [], "nothing to direct.*In a comparison: --set layers=all", 0),
    "score of several numbers": (VECTOR_SCORE, [], "score: expected a number, got tensor", 0),
    "no held-out score": (PLAIN, ["--tune", "lr"], "returned no held-out score.*never chosen on the test score", 0),
    "same for all seeds": (SAME, [], r"give the same weights and scores.*line \d+: torch.manual_seed\(0\)", 3),
    "crash in one arm": (CRASH, [], r"failed with metric sobolev-tilde.*seed 1: ValueError: no luck.*are kept", 3),
    "exit in one arm": (EXIT, [], r"failed with metric sobolev-tilde.*seed 1: SystemExit: 3.*are kept", 3),
    "divergence everywhere": (
        NAN_EVERYWHERE,
        ["--tune", "lr", "--tune-seeds", "1"],
        "at every point.*: lr=0.025; lr=",
        10,
    ),
}


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.html").mkdir()

    def run(source, options):
        (tmp_path / "mine.py").write_text(HEAD + source)
        given = ["mine.py"] if options is None else ["mine.py:train", *options]
        metrics = [] if "--metrics" in given else ["--metrics", "sobolev-tilde"]
        status = cli.main(["compare", *given, *metrics, *([] if options is None else ["--seeds", "3"])])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def stored(tmp_path):
    return list(tmp_path.glob("runs/*/*/result.json"))


@pytest.mark.parametrize("mistake", REFUSED)
def test_refused_before_anything_is_trained(mistake, compare, tmp_path):
    source, options, message = REFUSED[mistake]
    status, out, err = compare(source, options)
    assert status == 1
    assert err.startswith("riesz: ")
    assert "Traceback" not in err
    assert re.search(message, err, re.S), err
    assert " left)" not in out
    assert not stored(tmp_path)


@pytest.mark.parametrize("mistake", ENDED)
def test_ended_with_a_reason_and_nothing_lost(mistake, compare, tmp_path):
    source, options, message, complete = ENDED[mistake]
    status, _, err = compare(source, options)
    assert status == 1
    assert "Traceback" not in err
    assert re.search(message, err, re.S), err
    assert len(stored(tmp_path)) == complete


def test_an_arm_that_diverges_is_named_and_nothing_is_claimed(compare):
    status, out, _ = compare(NAN, [])
    assert status == 0
    assert "Diverged: SobolevTilde, seed 0, 1, 2." in out
    assert not re.search(r"^SobolevTilde +better", out, re.MULTILINE)
    assert "undecided" in out


def test_a_best_value_that_stays_at_the_edge_ends_at_the_bound_and_says_so(compare):
    status, out, _ = compare(NEVER_ENDS, ["--tune", "lr", "--set", "lr=1,2", "--tune-seeds", "1"])
    assert status == 0
    assert "lies at the edge of the grid, which was extended by 4 values" in out


def test_layers_of_a_users_loop_are_a_setting(compare, tmp_path):
    status, out, _ = compare(LINEAR.replace("torch.rand(())", "m.weight.sum() + seed"), ["--set", "layers=all"])
    assert status == 0
    assert "SobolevTilde, output, all layers: undecided; identical scores in all 3 pairs" in out
    assert len(stored(tmp_path)) == 6


def test_a_figure_that_is_no_number_is_not_taken_for_divergence(compare):
    status, out, _ = compare(NAN_ASIDE, ["--tune", "lr", "--tune-seeds", "1"])
    assert status == 0
    assert "diverged" not in out


def test_a_crash_in_a_worker_is_named_and_the_rest_is_kept(compare, tmp_path):
    status, _, err = compare(CRASH, ["--workers", "2", "--threads", "1"])
    assert status == 1
    assert "failed with metric sobolev-tilde" in err
    assert "seed 1: ValueError: no luck" in err
    kept = len(stored(tmp_path))
    assert kept >= 2
    (failure,) = tmp_path.glob("runs/*/*/failure.json")
    assert "Traceback" in failure.read_text()


def test_a_damaged_trial_is_set_aside(compare, tmp_path):
    assert compare(PLAIN, [])[0] == 0
    stored(tmp_path)[0].write_text("{")
    status, out, _ = compare(PLAIN, [])
    assert status == 0
    assert "set aside: " in out
    assert "6 trials, 5 complete" in out
    assert len(stored(tmp_path)) == 6
