"""Who prints an error when several processes raise it."""

import pytest

from riesz_lab.errors import BadFileError, ConfigError, LabError, MissingDataError, StoppedError, first_to_report


@pytest.mark.parametrize("kind", [ConfigError, MissingDataError, StoppedError])
def test_errors_of_all_processes_are_reported_by_the_first_of_a_machine(monkeypatch, kind):
    assert first_to_report(kind("x"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert first_to_report(kind("x"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not first_to_report(kind("x"))


@pytest.mark.parametrize("kind", [LabError, BadFileError])
def test_errors_of_one_process_are_reported_by_it(monkeypatch, kind):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert first_to_report(kind("x"))
