"""docs/evidence.md and its figures, computed from the trials in evidence/trials: no number is typed by hand.

python -m evidence.page            write them
python -m evidence.page --check    exit with 1 if what is written differs from what the trials say
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import riesz
from evidence import TRIALS, figures, not_tested, regularity
from evidence.claims_table import claims_table
from evidence.data import EvidenceData, read
from evidence.reproduce import describe_machine
from evidence.results_section import results_sections
from evidence.summary import summary
from riesz_lab.report.drawing import picture
from riesz_lab.report.figure import Figure
from riesz_lab.utils.amounts import count

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def files(trials: Path = TRIALS) -> dict[str, bytes]:
    """Every generated file of docs/, by name."""
    data = read(trials)
    drawn = figures.figures(data)
    pictures = {name: picture(figure, "svg") for name, figure in drawn.items()}
    return {"evidence.md": _page(data, drawn).encode(), **pictures}


def text(trials: Path = TRIALS) -> str:
    """The page alone."""
    return _page(read(trials), {})


INTRODUCTION = (
    "Everything on this page is computed from the raw trials in `evidence/trials` by `make evidence`. Questions, arms,"
    " seeds, tests and the stopping rule are those of [the protocol](../evidence/PROTOCOL.md). It was written before"
    " all but six of the trials, and lists every later change, such as the tests of controls and of regularity, with"
    " what had been seen by then. A verdict counts when all trials of its sweep are complete."
)

HOW_TO_READ = (
    "Differences are in percentage points of test accuracy after the last epoch, with 95% intervals. Verdicts are"
    " corrected for multiple comparisons (Holm): over all comparisons of a sweep, or, for the change of a difference,"
    " over all metrics. Intervals are not corrected, so that of an undecided comparison may exclude zero or lie within"
    ' the margin of 0.2 points. "Equal" means within the margin, not zero: its interval may exclude zero too, and on'
    ' MNIST, where errors are few, the margin is wide. "Detectable alone" is the smallest difference that one'
    ' uncorrected test finds with 80% power. The sentences under Results say "no evidence" for undecided, and "no'
    ' difference larger than 0.20 points" for equal within 0.2 points.'
)

_SLOWEST = float(riesz.SobolevTilde(lam=1, scale=20).symbol(100)[1])

READINGS = (
    'SobolevTilde at "lam, as scale" is `SobolevTilde(lam=1, scale=lam)`, f + lam G f, one of two readings of the'
    " paper; the argument `lam` stays 1. At 1 its smoothing is nearly the mean over channels"
    " ([why](theory.md#facts-worth-knowing-before-choosing-lam)), so it is nearly ReweightedL2 at the same lam: read"
    f" the two as one finding. At scale 20 it also amplifies the slowest wave along the channels, by a factor"
    f" of {_SLOWEST:.1f}."
    " Metrics that smooth between neighbours, at small `lam`, were not run here."
)

RESULTS = (
    'Means over seeds after the last epoch; "train" is the accuracy on training images as they were trained on. The'
    " sweeps are those of the protocol, `evidence.sweeps:lambda_fashion` and so on; built-in ones of similar names have"
    " other arms."
)


def _page(data: EvidenceData, drawn: Mapping[str, Figure]) -> str:
    lines = [
        "# Evidence",
        "",
        *(f"- {sentence}" for sentence in summary(data)),
        "",
        INTRODUCTION,
        "",
        "## Claims",
        "",
        HOW_TO_READ,
        "",
        READINGS,
        "",
        *claims_table(data),
        "",
        *figures.as_markdown(figures.DIFFERENCES, drawn),
        "## Results",
        "",
        RESULTS,
        "",
        *results_sections(data, drawn),
        "## Regularity of trained weights",
        "",
        *figures.as_markdown(figures.REGULARITY, drawn),
        *regularity.section(data.measured, data.correlations, data.measured_controls),
        *not_tested.section(data.tables),
        "## Repeat it",
        "",
        *_machines(data),
        "`make reproduce ID=a570b30e31c1` trains a trial again and compares it with the stored one: bit for bit on a"
        " machine of the same kind, else within the spread of seeds. It needs the dataset (`riesz data list`); trials"
        " of regimes were trained on JPEG copies of CIFAR-10, which are not in this repository, and repeat bit for bit"
        " with the same copies only. `make evidence` rewrites this page and the full report, `evidence/report.html`,"
        " from the stored trials; it needs no data and trains nothing. The report compares the sweeps of"
        " this page, with the same verdicts; those of a sweep that is not complete do not count.",
        "",
    ]
    return "\n".join(lines)


def _machines(data: EvidenceData) -> Iterator[str]:
    """What the trials were trained on: bits depend on it."""
    counted = Counter(map(describe_machine, data.store.trials))
    if counted:
        trained = "; ".join(f"{machine}: {count(n, 'trial')}" for machine, n in counted.most_common())
        crossing = " Trials of a pair that come from different ones differ in rounding too." if len(counted) > 1 else ""
        yield f"Trained on {trained}; one thread each.{crossing}"
        yield ""


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def main(arguments: list[str]) -> int:
    wanted = files()
    if arguments == ["--check"]:
        stale = [name for name, content in wanted.items() if _read(DOCS / name) != content]
        print(f"docs/{', docs/'.join(stale)}: not what the trials say; run `make evidence`" if stale else "up to date")
        return int(bool(stale))
    for name, content in wanted.items():
        (DOCS / name).write_bytes(content)
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
