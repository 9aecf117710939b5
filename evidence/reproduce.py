"""Train one trial of the evidence again and compare it with the stored one.

    python -m evidence.reproduce ID

The data must be there (`riesz data list`). On a machine of the same kind, with one thread as the stored trials had, the
result is the same to the last bit; elsewhere the score must lie within the spread of the trial's other seeds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from evidence import TRIALS
from evidence.signs import TRIALS_2
from riesz_lab import train
from riesz_lab.store import Store, StoredTrial
from riesz_lab.training import progress

SPREADS = 3.0
"""Standard deviations over seeds that a score may be away on another machine."""


def compare(stored: StoredTrial, repeated: StoredTrial, siblings: list[StoredTrial]) -> tuple[bool, str]:
    """Whether the repetition agrees, and in what sense."""
    if stored.history() == repeated.history():
        return True, f"bit for bit: all {len(stored.history())} rows of its history are equal"
    if describe_machine(stored) == describe_machine(repeated):
        return False, f"not bit for bit, on a machine of the same kind: {describe_machine(stored)}"
    a, b = stored.score(), repeated.score()
    if a is None or b is None:
        return a == b, f"score {b} against {a}"
    scores = [score for trial in siblings if (score := trial.score()) is not None]
    if len(scores) < 3:
        return False, f"not bit for bit ({b:.4f} against {a:.4f}), and too few other seeds to know their spread"
    spread = statistics.stdev(scores)
    agrees = abs(a - b) <= SPREADS * spread
    word = "within" if agrees else "beyond"
    return agrees, f"not bit for bit; {b:.4f} against {a:.4f}, {word} {SPREADS:g} standard deviations ({spread:.4f})"


def _environments(trial: StoredTrial) -> list[dict[str, Any]]:
    """One for each time that the trial was started or continued."""
    environments: list[dict[str, Any]] = json.loads((trial.path / "environment.json").read_text())
    return environments


def describe_machine(trial: StoredTrial) -> str:
    """Processors and torch releases, which bits depend on."""
    machines = (f"{one['cpu']} with torch {one['packages']['torch']}" for one in _environments(trial))
    return " and ".join(dict.fromkeys(machines))


def main(identifier: str) -> int:
    trials = Store(TRIALS, TRIALS_2).trials
    match = [trial for trial in trials if trial.config.id == identifier]
    if not match:
        print(
            f"trial {identifier!r}: expected one of the {len(trials)} ids in {TRIALS} and {TRIALS_2}", file=sys.stderr
        )
        return 2
    stored = match[0]
    torch.set_num_threads(_environments(stored)[-1]["threads"])
    with tempfile.TemporaryDirectory() as folder:
        train(stored.config, runs=Path(folder), show=progress.make("plain", identifier))
        repeated = next(trial for trial in Store(folder).trials if trial.config.id == identifier)
        siblings = [trial for trial in trials if trial.config.group == stored.config.group]
        agrees, how = compare(stored, repeated, siblings)
        there, here = describe_machine(stored), describe_machine(repeated)
    print(f"{identifier}: {how}" + (f". Stored on {there}; repeated on {here}" if there != here else ""))
    return 0 if agrees else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m evidence.reproduce ID")
    sys.exit(main(sys.argv[1]))
