"""Where an experiment is stored: wherever the user's code goes, and not at all in a store that is read-only."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
import torch

import riesz_lab
from riesz_lab.errors import LabError
from riesz_lab.utils import atomic


def train(attach, seed):
    model = torch.nn.Conv2d(1, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(optimizer, model)
    model(torch.randn(4, 1, 8, 8)).square().mean().backward()
    optimizer.step()
    return -model.weight.square().mean()


def wandering(attach, seed):
    os.chdir(tempfile.mkdtemp(dir=os.getcwd()))
    return train(attach, seed)


ASKED = {"metrics": ["sobolev-tilde"], "seeds": 2}


@pytest.mark.parametrize("folder", ["runs", Path("runs")])
def test_a_function_that_changes_the_working_directory_scatters_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = riesz_lab.compare(wandering, runs=folder, **ASKED)
    assert Path.cwd() == tmp_path
    assert {trial.path.parent.parent for trial in answer.trials} == {tmp_path / "runs"}
    assert len(list(tmp_path.rglob("result.json"))) == 4
    assert len(list(tmp_path.rglob("experiment.json"))) == 1


@pytest.fixture
def read_only(monkeypatch):
    """A read-only file system, for any user: it says so even where a missing file is removed."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def switch_on():
        monkeypatch.setattr(atomic, "open", refuse, raising=False)
        monkeypatch.setattr(Path, "unlink", refuse)

    return switch_on


def test_complete_trials_answer_from_a_store_that_is_read_only(tmp_path, read_only):
    before = riesz_lab.compare(train, runs=tmp_path, **ASKED)
    read_only()
    assert riesz_lab.compare(train, runs=tmp_path, **ASKED).answers == before.answers
    with pytest.raises(LabError, match="cannot write"):
        riesz_lab.compare(train, runs=tmp_path, metrics=["sobolev-tilde"], seeds=3)
