"""Several processes, compiled models, bf16: the same trial on other hardware."""

import sys

import pytest
import safetensors.torch
import torch

from lab_helpers import riesz, small_config, small_data
from riesz_lab.errors import ConfigError
from riesz_lab.store import environment
from riesz_lab.training.hardware import Hardware
from riesz_lab.training.trainer import train
from riesz_lab.utils import malloc as memory


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path):
    settings = ("--max-steps", 6, "--batch-size", 20, "--train-limit", 95, "--test-limit", 51, "--eval-batch-size", 20)
    settings += ("--metric", "sobolev-tilde", "--accelerator", "cpu", "--threads", 1)
    ends = []
    for name, more in (("one", ()), ("two", ("--devices", 2, "--strategy", "ddp"))):
        done = riesz("train", "demo", *settings, *more, "--runs", tmp_path / name, check=0)
        assert done.stdout.count("stored in") == 1
        (weights,) = (tmp_path / name).glob("*/*/weights.safetensors")
        ends.append(safetensors.torch.load_file(weights))
    # The fifth batch has 15 images: in two processes one of them is seen twice.
    assert all(torch.allclose(ends[0][key], ends[1][key], atol=2e-3) for key in ends[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a compiler")
def test_a_compiled_model_trains_and_saves_under_the_same_names(tmp_path):
    ends = []
    for compiled in (False, True):
        config = small_config(model="cnn", compile=compiled, max_steps=2, augment="none")
        outcome = train(config, runs=tmp_path, data=small_data(), hardware=Hardware(accelerator="cpu"))
        ends.append(safetensors.torch.load_file(outcome.path / "weights.safetensors"))
    assert list(ends[0]) == list(ends[1])
    assert all(torch.allclose(ends[0][key], ends[1][key], atol=1e-4) for key in ends[0])


def test_bf16_trains_where_the_processor_lets_it_and_is_refused_elsewhere(tmp_path):
    config = small_config(precision="bf16-mixed", max_steps=2)
    options = {"runs": tmp_path, "data": small_data(), "hardware": Hardware(accelerator="cpu")}
    if environment.bf16_trouble() is None:
        assert train(config, **options).result.status == "finished"
    else:
        with pytest.raises(ConfigError, match="precision='bf16-mixed' does not work on this CPU"):
            train(config, **options)


def test_a_process_killed_by_an_instruction_is_explained(monkeypatch):
    monkeypatch.setattr(environment, "BF16_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert "ONEDNN_MAX_CPU_ISA" in environment.bf16_trouble()


def test_keeping_freed_memory_is_possible_on_linux():
    assert memory.keep_freed_memory() == sys.platform.startswith("linux")


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="expected at most batch_size=16"):
        Hardware(accelerator="cpu", devices=17).check(small_config())
