"""Stored benchmark results: the CSV files that `make bench` writes."""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("claim", "shape", "rival", "median", "p20", "p80", "runs")
SIZE_CAP = 16 * 2**20


@dataclass(frozen=True)
class Measurement:
    """One line of a benchmark: the median time in seconds, its 20th and 80th percentile, and the machine."""

    claim: str
    shape: str
    rival: str
    median: float
    p20: float
    p80: float
    runs: int
    where: str


def read(folder: Path) -> list[Measurement]:
    """All measurements in the CSV files of a folder; other files are ignored."""
    return [measurement for file in sorted(folder.glob("*.csv")) for measurement in _read(file)]


def _read(file: Path) -> Iterator[Measurement]:
    try:
        if file.stat().st_size > SIZE_CAP:
            return
        with file.open(newline="", encoding="utf-8", errors="replace") as stream:
            rows = csv.DictReader(stream)
            if not set(COLUMNS) <= set(rows.fieldnames or ()):
                return
            for row in rows:
                try:
                    median, p20, p80 = (float(row[name]) for name in ("median", "p20", "p80"))
                    runs = int(row["runs"])
                except (TypeError, ValueError):
                    continue
                if math.isfinite(median + p20 + p80):
                    where = f"{row.get('cpu')}, {row.get('threads')} threads, torch {row.get('torch')}"
                    yield Measurement(row["claim"], row["shape"], row["rival"], median, p20, p80, runs, where)
    except (OSError, csv.Error):
        return
