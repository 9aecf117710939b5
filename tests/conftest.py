"""Shared by all tests: hypothesis' profile, and the table of largest errors at the end of a run."""

from __future__ import annotations

import os

# Some virtual machines announce AMX and forbid it: bfloat16 products would end the process. Before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import json
import textwrap
from collections import defaultdict

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "riesz", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("riesz")

_largest: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)


@pytest.fixture(scope="session")
def largest_errors() -> defaultdict[tuple[str, str, str], list[float]]:
    """Errors by backend, metric and dtype, gathered over the run."""
    return _largest


_driven: defaultdict[str, list[str]] = defaultdict(list)


@pytest.fixture(scope="session")
def driven_optimizers() -> defaultdict[str, list[str]]:
    """Optimizers that passed, by package."""
    return _driven


_trainers: dict[str, float] = {}


@pytest.fixture(scope="session")
def trainer_differences() -> dict[str, float]:
    """Largest difference in weights to a hand-written loop, by trainer."""
    return _trainers


_sharded: dict[str, dict[str, object]] = {}


@pytest.fixture(scope="session")
def sharded_figures() -> dict[str, dict[str, object]]:
    """What groups of ranks found, by suite and number of ranks."""
    return _sharded


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _driven:
        terminalreporter.section("optimizers driven: Identity bit-equal to plain, ReweightedL2 to directing by hand")
        for package, names in _driven.items():
            terminalreporter.write_line(textwrap.fill(f"{package} ({len(names)}): {', '.join(names)}", 120))
    if _trainers:
        terminalreporter.section("largest difference in weights to a hand-written loop")
        for name, difference in _trainers.items():
            terminalreporter.write_line(f"{name:<50} {difference:.1e}")
    if _sharded:
        terminalreporter.section("several ranks against one process")
        for name, figures in _sharded.items():
            terminalreporter.write_line(f"{name}: {json.dumps(figures)}")
    if not _largest:
        return
    write = terminalreporter.write_line
    terminalreporter.section("largest error relative to the reference")
    dtypes = list(dict.fromkeys(dtype for _, _, dtype in _largest))
    write(f"{'backend':<10} {'metric':<20} " + " ".join(f"{dtype:>11}" for dtype in dtypes))
    for backend, metric in dict.fromkeys((backend, metric) for backend, metric, _ in _largest):
        errors = (_largest.get((backend, metric, dtype)) for dtype in dtypes)
        write(f"{backend:<10} {metric:<20} " + " ".join(f"{max(e):>11.1e}" if e else f"{'-':>11}" for e in errors))
    write(f"{sum(map(len, _largest.values()))} comparisons")
