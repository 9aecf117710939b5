"""Several ranks: the same numbers as one process, in every layout. `ranks.py` runs the suites and tells of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "ranks.py"
QUICK = {
    ("grid", 2),
    ("grid", 3),
    ("grid", 4),
    ("attach", 2),
    ("attach", 4),
    ("disagreement", 2),
    ("disagreement", 4),
    ("broken", 2),
    ("broken", 4),
    ("data_parallel", 2),
    ("checkpoint", 4),
    ("checkpoint", 2),
    ("checkpoint", 3),
    ("checkpoint", 1),
}
LONG = {
    *(("grid", world) for world in (2, 3, 4)),
    ("attach", 3),
    ("disagreement", 3),
    ("data_parallel", 3),
    ("resnet20", 4),
    ("eight", 8),
}


def run_suites(*arguments: str, seconds: int) -> dict:
    done = subprocess.run(
        [sys.executable, str(RANKS), *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-4000:]
    return {(line["suite"], line["world"]): line for line in lines}


@pytest.fixture(scope="module")
def quick():
    return run_suites(
        "grid:2,3,4",
        "attach:2,4",
        "disagreement:2,4",
        "broken:2,4",
        "data_parallel:2",
        "checkpoint:4,2,3,1",
        seconds=400,
    )


@pytest.fixture(scope="module")
def long():
    return run_suites(
        "--full", "grid:2,3,4", "attach:3", "disagreement:3", "data_parallel:3", "resnet20:4", "eight:8", seconds=1800
    )


@pytest.mark.parametrize(("suite", "world"), sorted(QUICK))
def test_ranks_compute_what_one_process_does(quick, suite, world, sharded_figures):
    outcome = quick[suite, world]
    assert outcome["errors"] == [], "\n".join(outcome["errors"])
    sharded_figures[f"{suite} on {world}, {outcome['seconds']} s"] = outcome["figures"]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "world"), sorted(LONG))
def test_ranks_compute_what_one_process_does_in_all_cases(long, suite, world, sharded_figures):
    outcome = long[suite, world]
    assert outcome["errors"] == [], "\n".join(outcome["errors"])
    sharded_figures[f"{suite} on {world}, all cases, {outcome['seconds']} s"] = outcome["figures"]
