"""A write that is cut off leaves the old file, and nothing else."""

from __future__ import annotations

import os

import pytest

from riesz_lab.errors import LabError
from riesz_lab.utils import atomic


@pytest.mark.parametrize(("cut", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("full"), LabError)])
def test_a_write_that_is_cut_off_leaves_what_was_there(tmp_path, monkeypatch, cut, raised):
    def stop(handle):
        raise cut

    file, folder = tmp_path / "file.json", tmp_path / "folder"
    atomic.write_json(file, {"old": 1})
    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(raised):
        atomic.write_json(file, {"new": 2})
    with pytest.raises(raised):
        atomic.write_directory(folder, lambda path: (path / "part").write_text("half"))
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
    assert file.read_text() == '{\n  "old": 1\n}\n'


def test_a_directory_that_is_there_is_kept(tmp_path):
    for text in ("first", "second"):
        atomic.write_directory(tmp_path / "folder", lambda path, text=text: (path / "file").write_text(text))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "file").read_text() == "first"
