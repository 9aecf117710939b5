"""evidence/report.html: the full report of the stored trials, with every experiment of the protocol.

python -m evidence.report
"""

from __future__ import annotations

from dataclasses import replace

from evidence import TRIALS, results
from riesz_lab.commands.report import content, write
from riesz_lab.report import report
from riesz_lab.report.evidence import ReportData


def read() -> ReportData:
    sweeps = {name: results.as_table(found).sweep for name, found in results.read().results.items()}
    return replace(report.read(TRIALS), sweeps=sweeps)


def main() -> int:
    target = TRIALS.parent / "report.html"
    write(target, content("html", read(), target, "Channel-directed gradients: evidence"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
