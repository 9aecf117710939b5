"""What makes a function the same function: stored scores are used for it alone.

The identity is a hash of the function's file; of every file of the user's own that this one imports, directly or
through others; of the arguments of a `functools.partial`; of what a closure encloses; of the object that a method
belongs to; and of the files that define the classes and functions among those. A function typed at a prompt has no
file: its code counts, and all that it uses there. Installed packages do not count, nor do data files.
"""

import ast
import functools
import hashlib
import inspect
import io
import pickle
import sys
import sysconfig
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

SIMPLE = (type(None), bool, int, float, complex, str, bytes, Path)


def underlying(call: Any) -> Any:
    """The plain function within partials and methods; the `__call__` of an object."""
    while True:
        if isinstance(call, functools.partial):
            call = call.func
        elif isinstance(call, types.MethodType):
            call = call.__func__
        elif hasattr(call, "__code__") or inspect.isclass(call) or not hasattr(type(call), "__call__"):  # noqa: B004
            return call
        else:
            call = getattr(type(call).__call__, "__func__", type(call).__call__)
            if not hasattr(call, "__code__"):
                return call


def identity(call: Callable[..., Any], name: str) -> str:
    """As text: file, name and hash.

    Args:
        call: the function.
        name: what it is called.

    Returns:
        For example "mine.py:train@5f2c0a7e91bd".
    """
    code = getattr(underlying(call), "__code__", None)
    file = Path(getattr(code, "co_filename", ""))
    description = Description()
    content, more = description.parts(call)
    digest = hashlib.sha256(content)
    covered = with_imports([file])
    for part in more + [_hashed(path) for path in with_imports(description.files) if path not in covered]:
        digest.update(b"\0" + part.encode())
    return f"{file.name or 'own'}:{name}@{digest.hexdigest()[:12]}"


def _hashed(file: Path) -> str:
    return f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"


class Description:
    """Values as text that is equal for equal ones in every process, and differs for others.

    Attributes:
        files: the user's own, in which classes and functions among the values are defined.
    """

    def __init__(self) -> None:
        self.files: list[Path] = []
        self._seen: dict[int, tuple[int, Any]] = {}

    def parts(self, call: Any) -> tuple[bytes, list[str]]:
        """A function's own source, and all else that it is made of."""
        more: list[str] = []
        while not isinstance(call, types.FunctionType):
            if isinstance(call, functools.partial):
                more += [self.of(call.args), self.of(call.keywords)]
                call = call.func
            elif isinstance(call, types.MethodType):
                more.append(self.of(call.__self__))
                call = call.__func__
            else:
                more.append(self.of(call))
                inner = underlying(call)
                if not isinstance(inner, types.FunctionType):
                    return b"", more
                call = inner
        for cell in call.__closure__ or ():
            try:
                more.append(self.of(cell.cell_contents))
            except ValueError:  # not assigned yet
                more.append("empty")
        defaults = [self.of(each) for each in (call.__defaults__, call.__kwdefaults__) if each]
        if "<locals>" in call.__qualname__:
            more += defaults
        file = Path(call.__code__.co_filename)
        try:
            content = file.read_bytes()
        except OSError:  # typed at a prompt
            return self._code(call.__code__), more + defaults + list(self._globals(call))
        return content, more + [_hashed(path) for path in with_imports([file])[1:]]

    def of(self, value: Any) -> str:
        """A value as text."""
        if isinstance(value, SIMPLE):
            return repr(value)
        if id(value) in self._seen:
            return f"again {self._seen[id(value)][0]}"
        self._seen[id(value)] = len(self._seen), value  # kept, so that no other object takes its address
        if isinstance(value, types.ModuleType):
            self._reach(value)
            return f"module {value.__name__}"
        if isinstance(value, type):
            return f"class {value.__module__}.{value.__qualname__} {self._class(value)}"
        if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            content, more = self.parts(value)
            return f"function {hashlib.sha256(content).hexdigest()} {more}"
        if isinstance(value, types.BuiltinFunctionType):
            return f"builtin {value.__qualname__}"
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_meta:
            return self.of(_numbers(value)) + str(value.dtype)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"{value.shape} {value.dtype} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
        if isinstance(value, dict | list | tuple | set | frozenset):
            kind = "" if type(value) in (dict, list, tuple, set, frozenset) else self.of(type(value))
            return kind + self._items(value)
        return self._pickled(value)

    def _items(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self.of(each) for each in value) + "]"
        return "{" + ", ".join(sorted(self.of(each) for each in value)) + "}"

    def _pickled(self, value: Any) -> str:
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        try:
            pickler.dump(value)
        except Exception:  # any error at all may come out of a user's __reduce__
            # It cannot be compared with what it was: never take stored scores for it.
            return f"{type(value).__qualname__} {uuid.uuid4().hex}"
        typed = "".join(self.of(each) for each in pickler.reached if not self._reach(sys.modules.get(each.__module__)))
        return f"{type(value).__qualname__} {hashlib.sha256(buffer.getvalue()).hexdigest()}{typed}"

    def _class(self, kind: type) -> str:
        """What a class typed at a prompt consists of; the file of any other counts, if it is the user's own."""
        if self._reach(sys.modules.get(kind.__module__)):
            for base in kind.__mro__:
                self._reach(sys.modules.get(base.__module__))
            return ""
        members = {name: _member(each) for name, each in vars(kind).items() if _is_written(name, each)}
        return self.of(kind.__bases__) + self.of(members)

    def _reach(self, module: types.ModuleType | None) -> bool:
        """Whether a module has a file; one of the user's own is remembered."""
        if (file := own_file(module)) is not None and file not in self.files:
            self.files.append(file)
        return bool(getattr(module, "__file__", None)) or getattr(module, "__name__", "") in sys.builtin_module_names

    def _code(self, code: types.CodeType) -> bytes:
        constants = [self._code(each) if isinstance(each, types.CodeType) else self.of(each) for each in code.co_consts]
        return repr((code.co_code, constants, code.co_names, code.co_varnames)).encode()

    def _globals(self, function: types.FunctionType) -> Iterator[str]:
        """What a function without a file uses of the names around it."""
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                yield f"{name}={self.of(function.__globals__[name])}"


class _Pickler(pickle.Pickler):
    """Notes every class and function that a value holds: a pickle has their names, not their source."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=4)
        self.reached: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type | types.FunctionType) else type(obj)
        if kind not in self.reached:
            self.reached.append(kind)
        return NotImplemented


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inner)


def _numbers(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The entries of a tensor in their own precision."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:  # a type that NumPy does not have
        return np.append(plain.flatten().view(torch.uint8).numpy(), plain.shape)


def _is_written(name: str, member: Any) -> bool:
    """Whether a member of a class was written by its author, and is not Python's own record."""
    if isinstance(member, types.FunctionType | staticmethod | classmethod | property):
        return True
    return not name.startswith(("__", "_abc_")) and not inspect.isdatadescriptor(member)


def _member(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget, member.fset, member.fdel
    if isinstance(member, (staticmethod, classmethod)):
        return type(member).__name__, member.__func__
    return member


# -- the user's own source files ---------------------------------------------------------------------------------------

OWN_PACKAGES = ("riesz", "riesz_lab")


def with_imports(files: Iterable[Path]) -> list[Path]:
    """Files, and every file of the user's own that they import, directly or through others, in a fixed order."""
    seen = [file.resolve() for file in files]
    for current in seen:  # grows
        seen += [path for path in dict.fromkeys(_imports_of(current)) if path not in seen]
    return seen


def own_file(module: object) -> Path | None:
    """The source of a module, if it is the user's own."""
    name = getattr(module, "__file__", None)
    if not name or getattr(module, "__name__", "").partition(".")[0] in OWN_PACKAGES:
        return None
    file = Path(name).resolve()
    return file if file.suffix == ".py" and file.is_file() and _is_local(file) else None


def _imports_of(file: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name, file.parent)
        elif isinstance(node, ast.ImportFrom):
            base = file.parent
            for _ in range(node.level - 1):
                base = base.parent
            for name in ("", *(f".{alias.name}" for alias in node.names)):
                yield from _files(((node.module or "") + name).strip("."), base, relative=node.level > 0)


def _files(dotted: str, folder: Path, relative: bool = False) -> Iterator[Path]:
    """The files of a module and of the packages around it, if they are the user's own."""
    parts = dotted.split(".")
    if not dotted or (parts[0] in OWN_PACKAGES and not relative):
        return
    roots = [folder] if relative else [folder, *(Path(entry or ".") for entry in sys.path)]
    for length in range(1, len(parts) + 1):
        found = next((path for root in roots for path in _candidates(root, parts[:length]) if path.is_file()), None)
        if found is None:  # a finder of an editable install
            loaded = getattr(sys.modules.get(".".join(parts[:length])), "__file__", None)
            found = Path(loaded) if loaded and loaded.endswith(".py") and not relative else None
        if found is not None and _is_local(found.resolve()):
            yield found.resolve()


def _candidates(root: Path, parts: list[str]) -> tuple[Path, Path]:
    path = root.joinpath(*parts)
    return path.with_name(path.name + ".py"), path / "__init__.py"


@functools.cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(Path(path).resolve() for name, path in sysconfig.get_paths().items() if name in names)


def _is_local(file: Path) -> bool:
    inside = any(file.is_relative_to(folder) for folder in _installed())
    return not inside and not {"site-packages", "dist-packages"} & set(file.parts)
