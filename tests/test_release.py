"""What is released: one version everywhere, complete archives, and installs into empty environments.

The installs take minutes and are marked slow: `make dist check-dist`. They use what `make dist` made and wheels that
are downloaded beforehand; the installs themselves have no network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

import riesz
from riesz.sharded.layout import OLDEST_TORCH

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
[TORCH] = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.M)


def test_the_version_is_one_everywhere():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", riesz.__version__)
    assert f"version: {riesz.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{riesz.__version__}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_the_page_of_versions_states_the_floors_of_torch():
    [library, lab] = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    sharded = ".".join(map(str, OLDEST_TORCH))
    page = (ROOT / "docs/versions.md").read_text()
    assert f"| torch | {library} or newer; {sharded} for sharded gradients, {lab} for the lab |" in page
    assert f"riesz's lab needs torch {lab} or newer" in (ROOT / "SECURITY.md").read_text()


def test_workflows_use_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert workflows
    used = {target for path in workflows for target in re.findall(r"\bmake ([a-z-]+)", path.read_text())}
    assert used
    assert used <= targets


# -- installs --------------------------------------------------------------------------------------------------------

PROBE = """
import json, sys, time
began = time.perf_counter(); import torch; torch_there = time.perf_counter(); import riesz; done = time.perf_counter()
f = torch.tensor([[1.0], [3.0]])
riesz.precondition_(f, riesz.ReweightedL2(lam=1.0))
assert f.flatten().tolist() == [3.0, 5.0]
print(json.dumps({
    "torch": torch.__version__,
    "python": sys.version.split()[0],
    "seconds": [round(torch_there - began, 2), round(done - torch_there, 3)],
    "backends": {s.name: "picked" if s.picked else s.reason for s in riesz.backends()},
    "home": riesz.__file__,
}))
"""


def _offline() -> list[str]:
    """A prefix that runs a command without a network, where the system allows it."""
    prefix = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
        return prefix
    return []


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    """torch and what builds an sdist need, downloaded once."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", folder, TORCH, "setuptools>=77", "numpy"]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [True, False], ids=["compiler", "no compiler"])
@pytest.mark.parametrize("artefact", ["wheel", "sdist"])
def test_installs_into_an_empty_environment(artefact, compiler, wheels, tmp_path):
    [archive] = DIST.glob("*.whl" if artefact == "wheel" else "*.tar.gz")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    path = os.environ["PATH"] if compiler else str(tmp_path / "env/bin")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CC", "CXX")}
    environment |= {"PATH": path, "PIP_CONFIG_FILE": os.devnull}
    install = [python, "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels, archive]
    offline = [shutil.which(part) or part for part in _offline()]
    subprocess.run([*offline, *install], check=True, env=environment, cwd=tmp_path)
    printed = subprocess.run(
        [*offline, python, "-c", PROBE], check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    ).stdout
    seen = json.loads(printed)
    print(
        f"\n{artefact}, {'with' if compiler else 'without'} compiler, {'no network' if offline else 'network'}: {seen}"
    )
    compiled = artefact == "wheel" or compiler
    assert (seen["backends"]["cpu"] == "picked") == compiled
    assert (seen["backends"]["eager"] == "picked") != compiled
    assert seen["seconds"][1] < 0.5 * seen["seconds"][0]
    command = subprocess.run(
        [tmp_path / "env/bin/riesz", "demo"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert command.returncode == 1
    assert "pip install 'riesz[lab]'" in command.stderr


@pytest.mark.slow
def test_the_sdist_holds_everything_that_builds_and_explains_it():
    [archive] = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".h", ".inc")
    }
    assert sources <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md"} <= names
