"""Raw trials, the protocol and the experiments they follow, and the pages that are recomputed from them."""

from pathlib import Path

TRIALS = Path(__file__).parent / "trials"
EXPERIMENTS = Path(__file__).parent / "experiments"
