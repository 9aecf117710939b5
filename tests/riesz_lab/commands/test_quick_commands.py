"""Commands that compute nothing answer at once: they import neither torch nor scipy's parts."""

import subprocess
import sys

import pytest

from riesz_lab.config import Config
from stored import change, store_sweep
from sweep_helpers import short, write

SCRIPT = """
import sys, time
from riesz_lab.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
heavy = [name for name in ("torch", "riesz", "scipy.stats", "matplotlib") if name in sys.modules]
print(f"status {status}, heavy {heavy}, {time.process_time():.2f} s", file=sys.stderr)
"""

QUICK = [
    [], ["--version"], ["--help"], ["recipes"], ["runs"], ["runs", "list", "--each"],
    ["runs", "--where", "metric=sobolev*"], ["runs", "export", "trials.csv"], ["sweep"], ["completion", "bash"],
    ["compare", "--help"], ["train", "demo", "--help"], ["train", "--help"], ["sweep", "controls-mini", "--help"],
    ["figure"], ["figure", "curves", "--help"], ["doctor", "--help"], ["demo", "--help"], ["data", "--help"],
    ["report", "--help"], ["inspect", "--help"],
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    store_sweep(folder / "runs", "controls-mini")
    return folder


@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_imports_no_torch(folder, arguments):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip().splitlines()[-1].startswith("status 0, heavy []"), done.stderr
    assert done.stdout


def test_runs_lists_the_trials_it_reads_without_torch(folder):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "runs"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert "27 trials in runs" in done.stdout
    assert "sobolev-tilde(lam=0.05)" in done.stdout


def test_a_trial_of_a_metric_of_another_version_is_listed_and_left_out_of_the_report(riesz, tmp_path):
    for seed in range(3):
        write(tmp_path / "runs", short(seed=seed), 0.9)
    stranger = write(tmp_path / "runs", short(seed=7, metric="sobolev-tilde"), 0.5)
    values = {**stranger.config.to_dict(), "metric": "no-such-metric(lam=1.0)"}
    change(stranger.path, "config.json", **values)
    forged = _id(values)
    stranger.path.rename(stranger.path.with_name(f"no-such-metric-seed7-{forged}"))
    status, out, _ = riesz("runs")
    assert status == 0
    assert "no-such-metric(lam=1.0)" in out
    status, out, _ = riesz("report", "runs", "-o", "report.md")
    assert status == 0
    assert "expected one of" in (tmp_path / "report.md").read_text()


def _id(values):
    """The id of settings with a metric that does not exist."""
    config = Config.from_dict({**values, "metric": "identity"})
    object.__setattr__(config, "metric", values["metric"])
    return config.id
