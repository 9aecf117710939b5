"""A table is redrawn in a terminal, and nowhere that would show every drawing."""

from __future__ import annotations

import pytest

from riesz_lab.experiments.running.display import Live, make_display
from riesz_lab.training import progress
from riesz_lab.utils.terminal import can_redraw


@pytest.mark.parametrize(
    ("environment", "redraws"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "1"}, False),  # `!command` in a notebook
        ({"TERM": "dumb"}, False),
    ],
)
def test_displays_redraw_where_the_terminal_does(environment, redraws, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert can_redraw() is redraws
    comparing, training = make_display("auto", tmp_path, print), progress.make("auto")
    comparing.close()
    training.close()
    assert isinstance(comparing, Live) is redraws
    assert isinstance(training, progress.Live) is redraws


def test_nothing_is_redrawn_in_a_file(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert not can_redraw()
