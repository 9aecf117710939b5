"""Corrupted and hostile files: a clear error or a valid load, nothing executed, nothing written anywhere."""

import shutil

import hostile
from riesz_lab.data.images import cifar10
from riesz_lab.errors import LabError


def outcome(read, folder):
    try:
        read(folder)
    except LabError as error:
        return str(error)
    return None


def attempt(count, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "RECORDS", hostile.RECORDS)
    monkeypatch.chdir(tmp_path)
    told = {"files": 0, "refused": 0, "loaded": 0}
    for number, (name, write, read) in enumerate(hostile.cases(count)):
        folder = tmp_path / f"case-{number}"
        folder.mkdir()
        write(folder)
        before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
        error = outcome(read, folder)
        told["loaded" if error is None else "refused"] += 1
        assert error is not None or name.startswith("mutation"), f"{name}: it was accepted"
        if error is not None:
            assert str(folder) in error, f"{name}: {error}"
            assert len(error) < 2000, f"{name}: {error}"
        after = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
        assert after == before, f"{name}: something was written"
        told["files"] += 1
        shutil.rmtree(folder)
    assert not list(tmp_path.iterdir()), "something was executed"
    return told


def test_two_hundred_hostile_files_are_refused_and_nothing_happens(tmp_path, monkeypatch):
    told = attempt(200, tmp_path, monkeypatch)
    print(told)
    assert told["files"] == 200
    # Some mutations hit a pixel and are valid files.
    assert told["refused"] > 150
