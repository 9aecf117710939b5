"""What the tests of the lab share. One thread each: they must not depend on how busy the machine is."""

import os

import pytest
import torch

from riesz_lab import cli

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def riesz(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in a folder of its own; returns (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RIESZ_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # tyro's own way to end
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run
