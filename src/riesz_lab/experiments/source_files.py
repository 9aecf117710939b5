"""The user's own source files: which modules a file imports, directly or through others."""

import ast
import functools
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

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
