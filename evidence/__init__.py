"""Raw trials, the protocol they follow, and the page that is recomputed from them."""

from pathlib import Path

TRIALS = Path(__file__).parent / "trials"
