"""Shared by all tests: hypothesis' profile, and the table of largest errors at the end of a run."""

from __future__ import annotations

import os

# Some virtual machines announce AMX and forbid it: bfloat16 products would end the process. Before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import json
import textwrap
from collections import defaultdict
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "riesz", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("riesz")

_largest: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
_cancelling: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
_driven: defaultdict[str, list[str]] = defaultdict(list)
_trainers: dict[str, float] = {}
_sharded: dict[str, dict[str, object]] = {}
_scaled: dict[str, tuple[int, int]] = {}


@pytest.fixture(scope="session")
def largest_errors() -> defaultdict[tuple[str, str, str], list[float]]:
    """Errors by backend, metric and dtype, gathered over the run."""
    return _largest


@pytest.fixture(scope="session")
def cancelling_errors() -> defaultdict[tuple[str, str, int], list[float]]:
    """Errors on columns that cancel, by backend, metric and length, gathered over the run."""
    return _cancelling


@pytest.fixture(scope="session")
def driven_optimizers() -> defaultdict[str, list[str]]:
    """Optimizers that passed, by package."""
    return _driven


@pytest.fixture(scope="session")
def trainer_differences() -> dict[str, float]:
    """Largest difference in weights to a hand-written loop, by trainer."""
    return _trainers


@pytest.fixture(scope="session")
def sharded_figures() -> dict[str, dict[str, object]]:
    """What groups of ranks found, by suite and number of ranks."""
    return _sharded


@pytest.fixture(scope="session")
def scaled_steps() -> dict[str, tuple[int, int]]:
    """Steps of 60 that a gradient scaler took, plain and directed, by optimizer."""
    return _scaled


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Where several processes share the tests, each hands what it gathered to the one that prints.
    if hasattr(session.config, "workeroutput"):
        largest = [[*key, errors] for key, errors in _largest.items()]
        gathered = {"largest": largest, "driven": dict(_driven), "trainers": _trainers, "sharded": _sharded}
        gathered["scaled"] = _scaled
        gathered["cancelling"] = [[*key, errors] for key, errors in _cancelling.items()]
        session.config.workeroutput["gathered"] = json.dumps(gathered)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    gathered = json.loads(getattr(node, "workeroutput", {}).get("gathered", "{}"))
    for backend, metric, dtype, errors in gathered.get("largest", ()):
        _largest[backend, metric, dtype] += errors
    for backend, metric, n, errors in gathered.get("cancelling", ()):
        _cancelling[backend, metric, n] += errors
    for package, names in gathered.get("driven", {}).items():
        _driven[package] += names
    _trainers.update(gathered.get("trainers", {}))
    _sharded.update(gathered.get("sharded", {}))
    _scaled.update(gathered.get("scaled", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _driven:
        terminalreporter.section("optimizers driven: Identity bit-equal to plain, ReweightedL2 to directing by hand")
        for package, names in _driven.items():
            terminalreporter.write_line(textwrap.fill(f"{package} ({len(names)}): {', '.join(names)}", 120))
    if _trainers:
        terminalreporter.section("largest difference in weights to a hand-written loop")
        for name, difference in _trainers.items():
            terminalreporter.write_line(f"{name:<50} {difference:.1e}")
    if _scaled:
        terminalreporter.section("steps of 60 taken under a gradient scaler: plain, directed")
        for name, (plain, directed) in _scaled.items():
            terminalreporter.write_line(f"{name:<30} {plain:>3} {directed:>3}")
    if _sharded:
        terminalreporter.section("several ranks against one process")
        for name, figures in _sharded.items():
            terminalreporter.write_line(f"{name}: {json.dumps(figures)}")
    if _cancelling:
        _write_cancelling(terminalreporter)
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


def _write_cancelling(terminalreporter: pytest.TerminalReporter) -> None:
    write = terminalreporter.write_line
    terminalreporter.section("largest float32 error on columns that cancel, to a solve in extended precision")
    lengths = sorted({n for _, _, n in _cancelling})
    write(f"{'backend':<13} {'metric':<19}" + "".join(f"{n:>8}" for n in lengths))
    for backend, metric in dict.fromkeys((backend, metric) for backend, metric, _ in _cancelling):
        worst = (max(_cancelling[backend, metric, n]) for n in lengths)
        write(f"{backend:<13} {metric:<19}" + "".join(f"{error:>8.0e}" for error in worst))
    write(f"{sum(map(len, _cancelling.values()))} columns compared")
