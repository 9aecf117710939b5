import pytest

from riesz_lab.store import environment


@pytest.fixture(autouse=True)
def _no_git(monkeypatch):
    """Two processes of git per trial would take longer than the trials of these tests."""
    monkeypatch.setattr(environment, "revision", lambda: None)
