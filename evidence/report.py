"""evidence/report.html: the full report of the stored trials, with every experiment of the protocol.

python -m evidence.report
"""

from __future__ import annotations

from evidence import TRIALS
from riesz_lab.commands.report import content, write
from riesz_lab.report.data import read


def main() -> int:
    target = TRIALS.parent / "report.html"
    # The experiments lie beside the trials.
    write(target, content("html", read(TRIALS), target, "Channel-directed gradients: evidence"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
