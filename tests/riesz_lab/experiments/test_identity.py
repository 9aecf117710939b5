"""Stored scores are used for the function that gave them, and for no other."""

import functools
import importlib
import re
import subprocess
import sys
import textwrap
import types
from typing import NamedTuple

import numpy as np
import pytest
import torch

import riesz_lab
from riesz_lab import cli
from riesz_lab.errors import LabError
from riesz_lab.experiments.function import inspect_function
from riesz_lab.store import Store
from riesz_lab.utils.importing import load_object


def train(attach, seed, width=8):
    return width


class Shape(NamedTuple):
    width: int


def objects(entry):
    array = np.empty(1, dtype=object)
    array[0] = entry
    return array


def staged(repeated):
    stages = [[0.1], [0.5]]
    return functools.partial(train, width=[*stages, stages[repeated]])


def closure(width):
    def train(attach, seed):
        return width

    return train


def identity(function):
    return inspect_function(function).identity


class Trainer:
    def __init__(self, width):
        self.width = width

    def __call__(self, attach, seed):
        return self.width

    def train(self, attach, seed):
        return self.width


@pytest.mark.parametrize(
    "make",
    [
        lambda width: functools.partial(train, width=width),
        closure,
        lambda width: closure(torch.full((3,), float(width))),
        lambda width: closure(torch.tensor(1 + width * 1e-12, dtype=torch.float64)),
        lambda width: closure(torch.tensor(width * 1j)),
        lambda width: closure(torch.tensor(width * 1j).conj()),
        lambda width: closure(torch.tensor(2**40 + width)),
        lambda width: closure(torch.tensor([float(width)], dtype=torch.bfloat16)),
        lambda width: closure(objects([width])),
        lambda width: closure(Shape(width)),
        lambda width: staged(width % 2),
        lambda width: closure({"width": [width, {"a": {width}}]}),
        lambda width: closure(closure(width)),
        lambda width: closure(functools.partial(train, width=width)),
        Trainer,
        lambda width: Trainer(width).train,
    ],
)
def test_arguments_and_closures_tell_functions_apart(make):
    assert identity(make(8)) == identity(make(8))
    assert identity(make(8)) != identity(make(9))


def test_a_value_that_cannot_be_compared_is_never_the_same():
    assert identity(closure(x for x in [1])) != identity(closure(x for x in [1]))


def test_a_script_without_local_imports_keeps_its_identity(tmp_path, monkeypatch):
    import hashlib

    source = "import torch\nimport riesz\n\ndef train(attach, seed):\n    return 1.0\n"
    (tmp_path / "plain_script.py").write_text(source)
    found = identity(load_object("function", str(tmp_path / "plain_script.py:train")))
    assert found == f"plain_script.py:train@{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def test_every_local_module_that_is_reached_counts(tmp_path, monkeypatch):
    files = {
        "script.py": "from helpers.net import width\nimport unused_elsewhere\ndef train(attach, seed): pass",
        "helpers/__init__.py": "",
        "helpers/net.py": "from . import deep\nfrom .sizes import width",
        "helpers/sizes.py": "width = 8",
        "helpers/deep.py": "",
        "unused_elsewhere.py": "def later():\n    import lazily\n",
        "lazily.py": "",
        "not_imported.py": "",
    }
    (tmp_path / "helpers").mkdir()
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))

    def found():
        for name in [name for name in sys.modules if name in ("script", "helpers") or name.startswith("helpers.")]:
            del sys.modules[name]
        return identity(load_object("function", str(tmp_path / "script.py:train")))

    first = found()
    for name in files:
        (tmp_path / name).write_text(files[name] + "\n# changed")
        assert (found() == first) == (name == "not_imported.py"), name
        (tmp_path / name).write_text(files[name])
    assert found() == first


def typed(source):
    """The identity of `train` in a session without files."""
    namespace = {"__name__": "no_module", "torch": torch}
    exec(textwrap.dedent(source), namespace)
    return identity(namespace["train"])


USES_NET = "\ndef train(attach, seed): return Net"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("def train(attach, seed): return torch.optim.SGD", "def train(attach, seed): return torch.optim.Adam"),
        ("def train(attach, seed, width=8): pass", "def train(attach, seed, width=9): pass"),
        ("import math as m\ndef train(attach, seed): m", "import cmath as m\ndef train(attach, seed): m"),
        ("class Net: width = 8" + USES_NET, "class Net: width = 16" + USES_NET),
        ("class Net(list): pass" + USES_NET, "class Net(tuple): pass" + USES_NET),
        *(
            (f"class Net:\n {kind}\n def f(self): return {{}}{USES_NET}".format(1),
             f"class Net:\n {kind}\n def f(self): return {{}}{USES_NET}".format(2))
            for kind in ("", "@staticmethod", "@classmethod", "@property")
        ),
        ("class Net:\n @staticmethod\n def f(): pass" + USES_NET, "class Net:\n def f(): pass" + USES_NET),
    ],
)  # fmt: skip
def test_functions_typed_at_a_prompt_are_told_apart(first, second):
    assert typed(first) == typed(first)
    assert typed(first) != typed(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0 + 1e-12, dtype=torch.float64)),
        (torch.tensor(2**40), torch.tensor(2**40 + 1)),
        (torch.tensor(1j), torch.tensor(2j)),
        (torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.0078125, dtype=torch.bfloat16)),
    ],
)
def test_tensors_are_compared_exactly(first, second):
    assert identity(closure(first)) == identity(closure(first.clone()))
    assert identity(closure(first)) != identity(closure(second))


def test_which_object_is_met_again_counts():
    one, other = [1], [2]
    assert identity(closure((one, other, one))) != identity(closure((one, other, other)))


def test_own_files_count_for_a_function_typed_at_a_prompt(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "typed_helper.py").write_text("class Net: width = 8\n")
    import typed_helper  # noqa: F401

    sources = [
        "import typed_helper\ndef train(attach, seed): return typed_helper.Net",
        "from typed_helper import Net\ndef train(attach, seed): return Net",
        "from typed_helper import Net\nnet = Net()\ndef train(attach, seed): return net",
    ]
    before = [typed(source) for source in sources]
    assert before == [typed(source) for source in sources]
    (tmp_path / "typed_helper.py").write_text("class Net: width = 16\n")
    assert not set(before) & {typed(source) for source in sources}


def test_a_function_typed_at_a_prompt_is_what_it_uses():
    """In another process too: no address in memory is part of it, nor the order of a set."""
    source = textwrap.dedent(
        """
        namespace = {}
        exec('''
        size = %d
        def helper(x): return [y + %d for y in x]
        class Net:
            names = {"a", "b", "c"}
        def train(attach, seed): return Net, seed in {"a", "b", "c"}, sorted(helper([seed]), key=lambda v: v + size)
        ''', namespace)
        from riesz_lab.experiments.function import inspect_function
        print(inspect_function(namespace["train"]).identity)
        """
    )
    runs = [
        subprocess.run([sys.executable, "-c", source % sizes], capture_output=True, text=True, check=True).stdout
        for sizes in ((1, 1), (1, 1), (2, 1), (1, 2))
    ]
    assert runs[0] == runs[1]
    assert len(set(runs)) == 3


TYPED = """
import torch
from dataclasses import dataclass
def helper(x, by=1): return x.sin() in {"a", "b"}
@dataclass
class Net:
    size: int = 1
    scale = 3
    @property
    def width(self): return 10
    @staticmethod
    def depth(): return 20
net = Net()
def train(attach, seed, lr=0.5):
    return torch.optim.SGD(helper(net), lr)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SGD", "Adam"),
        ("sin", "cos"),
        ("lr=0.5", "lr=0.1"),
        ("by=1", "by=2"),
        ("scale = 3", "scale = 4"),
        ("return 10", "return 11"),
        ("return 20", "return 21"),
        ("Net()", "Net(2)"),
        ('"a"', '"c"'),
    ],
)
def test_a_change_at_a_prompt_is_another_function(old, new):
    def typed(source):
        module = types.ModuleType("typed_at_a_prompt")
        sys.modules[module.__name__] = module
        exec(source, vars(module))
        found = identity(module.train)
        del sys.modules[module.__name__]
        return found

    assert TYPED.count(old) == 1
    assert typed(TYPED) == typed(TYPED)
    assert typed(TYPED) != typed(TYPED.replace(old, new))


@pytest.mark.parametrize(
    "reach",
    [
        lambda loop, net: functools.partial(loop.train, model=net.Net),
        lambda loop, net: functools.partial(loop.train, model=[net.Net()]),
        lambda loop, net: functools.partial(loop.train, model={"net": types.SimpleNamespace(inner=net.Net())}),
        lambda loop, net: functools.partial(loop.train, model=net),
        lambda loop, net: net.Net().train,
        lambda loop, net: net.Net(),
        lambda loop, net: at_a_prompt(net),
    ],
    ids=["class", "instance", "held", "module", "method", "call", "prompt"],
)
def test_the_files_of_what_a_function_is_given_count(reach, tmp_path, monkeypatch):
    """The loop does not import them: they reach it as arguments, or as subclasses."""
    source = "from given_loop import Base\nclass Net(Base):\n    scale = 1\n"
    (tmp_path / "given_loop.py").write_text(
        "def train(attach, seed, model): pass\n"
        "class Base:\n    def train(self, attach, seed): pass\n    def __call__(self, attach, seed): pass\n"
    )
    (tmp_path / "given_net.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = [importlib.import_module(name) for name in ("given_loop", "given_net")]
    try:
        first = identity(reach(*modules))
        assert identity(reach(*modules)) == first
        (tmp_path / "given_net.py").write_text(source.replace("1", "2"))
        assert identity(reach(*modules)) != first
    finally:
        for module in modules:
            del sys.modules[module.__name__]


def at_a_prompt(net):
    namespace = {"net": net}
    exec("def train(attach, seed): return net.Net()", namespace)
    return namespace["train"]


SCRIPT = """
import torch
from torch import nn
from riesz_test_helper import OFFSET

def train(attach, seed):
    model = nn.Conv2d(1, 8, 3)
    attach(torch.optim.SGD(model.parameters(), lr=0.01), model)
    return OFFSET + float(model.weight.sum().detach())
"""


def test_a_change_in_an_imported_module_and_fresh_train_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "riesz_test_helper.py").write_text("OFFSET = 1\n")
    command = ["compare", "mine.py:train", "--seeds", "1", "--metrics", "sobolev-tilde", "-o", "a.csv"]

    def stored():
        sys.modules.pop("riesz_test_helper", None)
        assert cli.main(command) == 0
        return int(re.search(r"2 trials, (\d+) complete", capsys.readouterr().out)[1])

    assert stored() == 0
    assert stored() == 2
    (tmp_path / "riesz_test_helper.py").write_text("OFFSET = 100\n")
    assert stored() == 0
    command.append("--fresh")
    assert stored() == 0
    command.pop()
    sys.modules.pop("riesz_test_helper", None)
    assert cli.main(command) == 0
    assert "2 stored trials used again (20" in capsys.readouterr().out


def test_deleted_weights_of_stored_trials_are_not_missed(tmp_path):
    def train(attach, seed):
        model = torch.nn.Conv2d(1, 8, 3)
        attach(torch.optim.SGD(model.parameters(), lr=0.01), model)
        return float(model.weight.sum().detach())

    asked = {"seeds": 3, "metrics": ["sobolev-tilde"], "runs": tmp_path}
    first = riesz_lab.compare(train, **asked)
    for file in tmp_path.rglob("weights.safetensors"):
        file.unlink()
    assert riesz_lab.compare(train, **asked).arms["plain"].scores == first.arms["plain"].scores


def test_what_is_trained_anew_is_kept_until_it_is_complete(tmp_path):
    calls = tmp_path / "calls"  # not a list: what a closure holds is part of its identity
    calls.write_text("")

    def train(attach, seed):
        with calls.open("a") as file:
            file.write("x")
        model = torch.nn.Conv2d(1, 8, 3)
        attach(torch.optim.SGD(model.parameters(), lr=0.01), model)
        if calls.stat().st_size > 6:
            raise RuntimeError("no luck")
        return float(model.weight.sum().detach())

    def stored():
        trials = Store(tmp_path / "runs").trials
        return {trial.config.id: trial.result and trial.result.last for trial in trials}

    asked = {"seeds": 2, "metrics": ["sobolev-tilde"], "runs": tmp_path / "runs"}
    riesz_lab.compare(train, **asked)
    first = stored()
    assert len(first) == 4
    assert None not in first.values()
    with pytest.raises(LabError, match="no luck"):
        riesz_lab.compare(train, fresh=True, **asked)  # two are trained anew, the third fails
    assert calls.stat().st_size == 7
    assert stored() == first
