"""What is wrong with an import path is said in words that help: where it was looked up, and what is close."""

import os
import sys

import pytest

from riesz_lab.errors import ConfigError
from riesz_lab.utils.importing import load_object

SWEEPS = "from os import getcwd\n\ndef lambda_fashion():\n    pass\n\ndef regimes():\n    pass\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with a package; the test runs outside of it."""
    (tmp_path / "checkout" / "own_trials").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "checkout" / "own_trials"
    (folder / "__init__.py").touch()
    (folder / "sweeps.py").write_text(SWEEPS)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own_trials", "sweeps")]:
        del sys.modules[name]


def message(path):
    with pytest.raises(ConfigError) as caught:
        load_object("sweep", path)
    return str(caught.value)


def test_a_package_of_another_folder_is_asked_for_from_there(package, monkeypatch):
    told = message("own_trials.sweeps:lambda_fashion")
    assert "No module named 'own_trials'" in told
    elsewhere = package.parents[1] / "elsewhere"
    assert f"in the current folder too, {elsewhere}: run this from the folder that contains 'own_trials'" in told
    monkeypatch.chdir(package.parent)
    assert load_object("sweep", "own_trials.sweeps:lambda_fashion").__name__ == "lambda_fashion"


@pytest.mark.parametrize("path", ["own_trials.sweeps:regimes", "own_trials/sweeps.py:regimes"])
def test_a_module_that_is_found_but_imports_a_missing_one_is_not_sent_elsewhere(package, monkeypatch, path):
    monkeypatch.chdir(package.parent)
    (package / "sweeps.py").write_text("import not_installed\n" + SWEEPS)
    assert message(path).endswith("No module named 'not_installed'")


def test_a_missing_part_of_a_package_that_is_found_is_not_sent_elsewhere(package, monkeypatch):
    monkeypatch.chdir(package.parent)
    assert message("own_trials.sweep:regimes").endswith("No module named 'own_trials.sweep'")


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("lambda-fashion", "; did you mean 'lambda_fashion'?"),
        ("get_cwd", "; did you mean 'getcwd'?"),  # not the module's own, but it can be had there
        ("tables", ""),
    ],
)
def test_the_closest_name_is_suggested(package, monkeypatch, name, close):
    monkeypatch.chdir(package.parent)
    assert message(f"own_trials.sweeps:{name}").endswith(f" has no {name!r}; it has lambda_fashion, regimes{close}")


def test_a_file_that_changes_the_working_directory_leaves_it_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aside").mkdir()
    (tmp_path / "goes.py").write_text("import os\nos.chdir('aside')\ndef f(): ...\n")
    load_object("function", "goes.py:f")
    assert os.getcwd() == str(tmp_path)
