"""What makes a function the same function: stored scores are used for it alone.

The identity is a hash of the function's file; of every file of the user's own that this one imports, directly or
through others; of the arguments of a `functools.partial`; of what a closure encloses; of the object that a method
belongs to. A function typed at a prompt has no file: its code counts, and all that it uses there, with the user's own
files that these come from. Installed packages do not count, nor do data files.
"""

import ast
import functools
import hashlib
import inspect
import pickle
import sys
import sysconfig
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

OWN_PACKAGES = ("riesz", "riesz_lab")
SIMPLE = (type(None), bool, int, float, complex, str, bytes, Path)
HEAP_TYPE = 1 << 9
"""Set in `__flags__` of every class but those built into the interpreter."""


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
    content, more = _parts(call, {})
    digest = hashlib.sha256(content)
    for part in more:
        digest.update(b"\0" + part.encode())
    return f"{file.name or 'own'}:{name}@{digest.hexdigest()[:12]}"


def _parts(call: Any, seen: dict[int, Any]) -> tuple[bytes, list[str]]:
    """The function's own source, and all else that it is made of."""
    more: list[str] = []
    while not isinstance(call, types.FunctionType):
        if isinstance(call, functools.partial):
            more += [_describe(call.args, seen), _describe(call.keywords, seen)]
            call = call.func
        elif isinstance(call, types.MethodType):
            more.append(_describe(call.__self__, seen))
            call = call.__func__
        else:
            more.append(_describe(call, seen))
            inner = underlying(call)
            if not isinstance(inner, types.FunctionType):
                return b"", more
            call = inner
    for cell in call.__closure__ or ():
        try:
            more.append(_describe(cell.cell_contents, seen))
        except ValueError:  # not assigned yet
            more.append("empty")
    file = Path(call.__code__.co_filename)
    typed = not file.is_file()  # at a prompt
    if typed or "<locals>" in call.__qualname__:
        more += [_describe(each, seen) for each in (call.__defaults__, call.__kwdefaults__) if each]
    if typed:
        return _code(call.__code__).encode(), more + list(_globals(call, seen))
    return file.read_bytes(), more + _contents(_imported(file))


def _contents(files: list[Path]) -> list[str]:
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def _code(code: types.CodeType) -> str:
    constants = [_code(each) if isinstance(each, types.CodeType) else _describe(each, {}) for each in code.co_consts]
    return repr((code.co_code, constants, code.co_names))


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inner)


def _globals(function: Any, seen: dict[int, Any]) -> Iterator[str]:
    """What a function without a file uses of the names around it."""
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield f"{name}={_describe(value, seen)}"
            if not isinstance(value, types.FunctionType):  # whose file is described with it
                yield from _contents(_files_of(value))


def _files_of(value: Any) -> list[Path]:
    """The user's own files that a module, a class or an object comes from."""
    kind = value if isinstance(value, types.ModuleType | type) else type(value)
    module = kind if isinstance(kind, types.ModuleType) else sys.modules.get(kind.__module__)
    file = Path(getattr(module, "__file__", None) or "").resolve()
    if not file.is_file() or not _is_local(file) or module.__name__.split(".")[0] in OWN_PACKAGES:  # type: ignore[union-attr]
        return []
    return [file, *_imported(file)]


def _describe(value: Any, seen: dict[int, Any]) -> str:
    """A value as text, the same in every process. The order of a dict counts: what loops over it depends on it."""
    if isinstance(value, SIMPLE):
        return repr(value)
    if id(value) in seen:
        return f"again {list(seen).index(id(value))}"
    seen[id(value)] = value  # kept, so that no other object takes its address
    if isinstance(value, torch.Tensor):
        narrow = value.is_floating_point() and value.itemsize < 4  # numpy does not know all of these
        return _describe((value.float() if narrow else value).numpy(force=True), seen) + str(value.dtype)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.shape} {value.dtype} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_describe(k, seen)}: {_describe(v, seen)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_describe(each, seen) for each in value) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(_describe(each, seen) for each in value)) + "}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__} {_class(value, seen)}"
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        content, more = _parts(value, seen)
        return f"function {hashlib.sha256(content).hexdigest()} {more}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"builtin {value.__qualname__}"
    return _pickled(value, seen)


def _pickled(value: Any, seen: dict[int, Any]) -> str:
    try:
        content = hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()
        kind = type(value)
        return f"{kind.__qualname__} {content}" + (_class(kind, seen) if kind.__flags__ & HEAP_TYPE else "")
    except Exception:  # any error at all may come out of a user's __reduce__
        # It cannot be compared with what it was: never take stored scores for it.
        return f"{type(value).__qualname__} {uuid.uuid4().hex}"


def _class(kind: type, seen: dict[int, Any]) -> str:
    """All that a class typed at a prompt is made of; of others, their files count."""
    if not kind.__flags__ & HEAP_TYPE:
        return "{}"
    if getattr(sys.modules.get(kind.__module__), "__file__", None):
        return ""
    return _describe([kind.__bases__, dict(_members(kind))], seen)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        if isinstance(member, staticmethod | classmethod):
            yield name, (type(member).__name__, member.__func__)
        elif isinstance(member, property):
            yield name, ("property", member.fget, member.fset, member.fdel)
        elif isinstance(member, functools.cached_property):
            yield name, ("cached_property", member.func)
        elif isinstance(member, types.FunctionType) or name in ("__annotations__", "__slots__"):
            yield name, member
        elif not (name.startswith("__") or name == "_abc_impl" or isinstance(member, types.MemberDescriptorType)):
            yield name, member  # the others are Python's own notes


def _imported(file: Path) -> list[Path]:
    """Every file of the user's own that this one imports, directly or through others, in a fixed order."""
    seen: list[Path] = [file.resolve()]
    for current in seen:  # grows
        seen += [path for path in dict.fromkeys(_imports_of(current)) if path not in seen]
    return seen[1:]


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
