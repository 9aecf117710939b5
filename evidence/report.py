"""evidence/report.html: the full report of the stored trials, with every sweep of the protocol and its controls.

python -m evidence.report
"""

from __future__ import annotations

from evidence import TRIALS
from riesz_lab import cli

SWEEPS = (
    "evidence.sweeps:lambda_fashion",
    "evidence.sweeps:lambda_mnist",
    "evidence.sweeps:plain_sgd",
    "evidence.sweeps:plain_sgd_matched",
    "evidence.tables:tuned_fashion",
    "evidence.sweeps:regimes",
    "evidence.controls:lambda_fashion",
    "evidence.controls:lambda_mnist",
    "evidence.controls:regimes",
)
"""The sweeps of the page, as `riesz report --sweeps` takes them. Controls are there where a metric differs."""


def main() -> int:
    return cli.main(["report", str(TRIALS), "--sweeps", *SWEEPS, "-o", str(TRIALS.parent / "report.html")])


if __name__ == "__main__":
    raise SystemExit(main())
