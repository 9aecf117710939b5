"""riesz runs: the store as a user sees it, however damaged."""

import csv
import fcntl
import json
import time
from dataclasses import replace

import pytest

from riesz_lab.config import Config
from riesz_lab.store import Store
from riesz_lab.store.trial import Trial
from stored import change
from sweep_helpers import short, write


@pytest.fixture
def runs(tmp_path):
    """Two groups of four seeds, a divergent, a failed, an unfinished and two damaged trials."""
    folder = tmp_path / "runs"
    for seed in range(4):
        write(folder, short(seed=seed), 0.90 + 0.01 * seed)
        write(folder, short(seed=seed, metric="sobolev-tilde"), 0.911 + 0.01 * seed + 0.0001 * seed)
    write(folder, short(seed=4, metric="reweighted-l2"), None, "diverged")
    failed = write(folder, short(seed=5, metric="reweighted-l2"), 0.5)
    failed.result_file.unlink()
    failed.fail("CUDA is out of memory")
    write(folder, short(seed=6, metric="reweighted-l2"), 0.5).result_file.unlink()
    write(folder, short(seed=7), 0.5).result_file.write_text('{"status": "fin')
    (write(folder, short(seed=8), 0.5).path / "config.json").write_bytes(b"\xff\x00{")
    return folder


def group(**changes):
    return short(**changes).group


def test_list_tells_groups_and_names_what_cannot_be_read(riesz, runs):
    status, out, _ = riesz("runs")
    assert status == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "91.50%" in lines[group()]
    assert lines[group(metric="reweighted-l2")].split()[-3:] == ["1", "1", "1"]
    assert "11 trials in runs" in out
    assert out.count("left out, cannot be read") == 2
    assert "result.json" in out


def test_list_each_with_conditions(riesz, runs):
    _, out, _ = riesz("runs", "list", "--each", "--where", "metric=reweighted-l2", "status=failed")
    assert "CUDA is out of memory" in out
    assert "\n1 trial in runs" in out
    write(runs, replace(short(seed=9), metric="sobolev", control="permuted", direction="input"), 0.5)
    _, out, _ = riesz("runs", "list", "--each", "--where", "seed=9")
    assert "direction=input, control=permuted" in out
    _, out, _ = riesz("runs", "list", "--each", "--where", "lr=0.050", "seed=3")
    assert "2 trials in runs" in out
    _, out, _ = riesz("runs", "list", "--each", "--where", "metric=sobolev-t*")
    assert "4 trials in runs" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("list", "--where", "metrik=x"), "did you mean 'metric'"),
        (("list", "--where", "failed"), "expected name=value"),
        (("lits",), "did you mean 'list'"),
        (("compare", "000", "111"), "group '000' is not known"),
        (("remove",), "expected --where NAME=VALUE or --broken, got neither"),
        (("export", "table.xlsx"), "ends in .csv, .json, .parquet"),
        (("list", "--runs", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_mistakes_are_named(riesz, runs, arguments, told):
    status, _, err = riesz("runs", *arguments)
    assert status == 1
    assert told in err


def test_compare_pairs_by_seed(riesz, runs):
    _, out, _ = riesz("runs", "compare", group(), group(metric="sobolev-tilde"))
    assert "better: +1.1" in out
    assert "4 pairs" in out


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_export_holds_every_trial_and_setting(riesz, runs, tmp_path, kind):
    status, out, _ = riesz("runs", "export", f"trials.{kind}", "--where", "model=lab_helpers:network")
    assert status == 0
    assert "11 trials written" in out
    if kind == "csv":
        with open("trials.csv") as file:
            rows = list(csv.DictReader(file))
    elif kind == "json":
        rows = json.loads((tmp_path / "trials.json").read_text())["records"]
    else:
        from pyarrow import parquet

        rows = parquet.read_table("trials.parquet").to_pylist()
    assert len(rows) == 11
    best = max(rows, key=lambda row: float(row.get("last_test_accuracy") or 0))
    assert best["metric"] == "sobolev-tilde(lam=1.0)"
    assert float(best["last_test_accuracy"]) == pytest.approx(0.9413)
    assert set(Config().to_dict()) <= set(best)


def test_remove_only_says_which_until_told_to(riesz, runs):
    _, out, _ = riesz("runs", "remove", "--where", "status=failed")
    assert "would be removed" in out
    assert len(Store(runs).trials) == 11
    _, out, _ = riesz("runs", "remove", "--where", "status=failed", "--yes")
    assert len(Store(runs).trials) == 10
    _, out, _ = riesz("runs", "remove", "--broken", "--yes")
    assert out.count("removed: ") == 2
    assert not Store(runs).broken


def test_a_trial_at_work_is_not_removed(riesz, runs):
    path = Trial(runs, short(seed=6, metric="reweighted-l2")).path
    with open(path / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, err = riesz("runs", "remove", "--where", "status=unfinished", "--yes")
    assert status == 1
    assert "is being trained" in err
    assert path.exists()


def test_a_setting_that_is_a_name_or_a_number_can_be_exported(riesz, tmp_path):
    folder = tmp_path / "runs"
    write(folder, replace(short(), direction=0), 0.5)
    write(folder, replace(short(), direction="input"), 0.5)
    assert riesz("runs", "export", "trials.parquet")[0] == 0


def test_no_cell_of_an_exported_table_is_a_formula(riesz, tmp_path):
    write(tmp_path / "runs", replace(short(), model="=HYPERLINK(1)"), 0.5)
    assert riesz("runs", "export", "trials.csv")[0] == 0
    (row,) = csv.DictReader((tmp_path / "trials.csv").read_text().splitlines())
    assert row["model"] == "'=HYPERLINK(1)"


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_trials_are_read_and_how_long_it_takes_is_told(tmp_path, capsys, count):
    """How fast a machine is, is no matter for a test: it reports."""
    for seed in range(count):
        write(tmp_path, short(seed=seed), 0.9)
    started, on_the_clock = time.process_time(), time.perf_counter()
    store = Store(tmp_path)
    seconds, waited = time.process_time() - started, time.perf_counter() - on_the_clock
    with capsys.disabled():
        print(f"\n{count} trials are read in {seconds:.1f} s of CPU time, {waited:.1f} s on the clock")
    assert [trial.config.seed for trial in sorted(store.trials, key=lambda one: one.config.seed)] == list(range(count))


@pytest.mark.parametrize("value", ["abc", None, [], {}, True, 10**400, float("nan"), float("-inf")], ids=str)
@pytest.mark.parametrize("which", ["last", "best"])
def test_a_score_that_is_no_number_is_left_out(riesz, runs, which, value):
    path = next(trial.path for trial in Store(runs).trials if trial.status == "finished")
    stored = json.loads((path / "result.json").read_text())
    change(path, "result.json", **{which: {**stored[which], stored["score"]: value}})
    for command in (["runs"], ["runs", "--each"], ["report", "-o", "page.md"]):
        assert riesz(*command)[0] == 0
    assert f"{path.name} (" in riesz("runs")[1]
    assert "is not the result of a trial" in riesz("runs")[1]


def test_text_of_stored_files_cannot_write_to_the_terminal(riesz, tmp_path):
    evil = "x\x1b]0;owned\x07\x9b31m\u202e"
    for seed in range(2):
        for metric in ("identity", "sobolev-tilde"):
            trial = write(tmp_path / "runs", short(seed=seed, metric=metric, dataset=f"{evil}:d"), 0.5)
            change(trial.path, "result.json", score=evil, last={evil: 0.5, "epoch": 1}, best={evil: 0.5, "epoch": 1})
    failed = write(tmp_path / "runs", short(seed=5, dataset=f"{evil}:d"), 0.5)
    failed.result_file.unlink()
    failed.fail(f"because {evil}")
    (write(tmp_path / "runs", short(seed=6), 0.5).path / "config.json").write_text(json.dumps({evil: 1}))
    shown = ""
    groups = [short(metric=metric, dataset=f"{evil}:d").group for metric in ("identity", "sobolev-tilde")]
    for arguments in (
        ["runs"], ["runs", "--each"], ["runs", "compare", *groups], ["runs", "remove", "--broken"],
        ["train", trial.config_file], ["report", "-o", "r.md"], ["report", "-o", "r.html"], ["figure", "overview"],
    ):  # fmt: skip
        shown += "".join(riesz(*arguments)[1:])
    shown += (tmp_path / "r.md").read_text() + (tmp_path / "r.html").read_text().partition("<body")[2]
    assert r"because x\x1b]0;owned" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown)


def test_a_setting_that_does_not_exist_has_no_absurd_suggestion(riesz, runs):
    status, _, err = riesz("runs", "--where", "colour=red")
    assert status == 1
    assert "expected a name that `riesz train demo --help` lists, or one of status, id, group, got 'colour'\n" in err
    assert len(err) < 150


def test_an_empty_folder_says_how_to_make_trials(riesz, tmp_path):
    (tmp_path / "runs").mkdir()
    made = "riesz demo, riesz train, riesz sweep and riesz compare make trials"
    assert riesz("runs") == (0, f"no trial is stored below runs; {made}\n", "")
    assert riesz("report") == (1, "", f"riesz: no trial is stored below runs; {made}\n")
    assert riesz("runs", "remove", "--where", "seed=3")[1] == "no trial to remove\n"


@pytest.mark.parametrize("command", ["runs", "report", "figure"])
def test_a_missing_folder_is_one_sentence(riesz, command):
    status, out, err = riesz(command, *(["curves"] if command == "figure" else []))
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "riesz demo, riesz train, riesz sweep and riesz compare make trials" in err


def test_a_file_in_place_of_a_folder_is_named(riesz, tmp_path):
    (tmp_path / "runs").write_text("")
    assert "expected a folder of trials or benchmark results, got runs, which is a file" in riesz("report")[2]
