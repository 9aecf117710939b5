"""Whether a function without arguments can be a `build`, by its source alone: it is not run to find out."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Any

NUMBERS = ("float", "int", "round", "bool", "str", "dict", "len", "sum", "abs")
"""What a call or an annotation of these names gives is no model."""
TO_NUMBERS = ("item",)
"""Methods that give a number."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def why_no_build(call: Any) -> str:
    """Why a function cannot return model, (train, test), loss, in words; empty if it can."""
    function = _source(call)
    if function is None:
        return ""
    body = list(_own_nodes(function))
    if any(isinstance(node, ast.Call) and _method(node) == "backward" for node in ast.walk(function)):
        return "calls backward()"
    if isinstance(function, ast.AsyncFunctionDef) or any(isinstance(node, ast.Yield | ast.YieldFrom) for node in body):
        return "is no plain function"
    returned = _returned(function, body)
    if not returned:
        return "returns nothing"
    if (annotation := _annotation(function)) in NUMBERS:
        return f"is annotated to return {annotation}"
    if all(_Scope(call, body).is_no_triple(node) for node in returned):
        return f"returns {ast.unparse(returned[-1])[:60]}"
    return ""


def _source(call: Any) -> Function | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(call)).lstrip("."))
    except (OSError, TypeError, SyntaxError):
        return None
    if isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return tree.body[0]
    # Of several lambdas on a line it is not known which one is meant.
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    return lambdas[0] if len(lambdas) == 1 else None


def _returned(function: Function, body: list[ast.AST]) -> list[ast.expr]:
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [node.value for node in body if isinstance(node, ast.Return) and node.value is not None]


def _annotation(function: Function) -> str:
    returns = None if isinstance(function, ast.Lambda) else function.returns
    return "" if returns is None else ast.unparse(returns).strip("'\"")


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


class _Scope:
    """What the names in a function's source stand for."""

    def __init__(self, call: Any, body: list[ast.AST], callers: tuple[Any, ...] = ()):
        self.call, self.body, self.callers = call, body, (*callers, call)

    def is_no_triple(self, node: ast.expr, following: tuple[str, ...] = ()) -> bool:
        """Whether an expression is surely something else than three values."""
        if isinstance(node, ast.Tuple | ast.List):
            return len(node.elts) != 3 and not any(isinstance(each, ast.Starred) for each in node.elts)
        if isinstance(node, ast.Call):
            return _method(node) in TO_NUMBERS or self._calls_no_build(node.func)
        if isinstance(node, ast.Name) and node.id not in following:
            values = self._assigned(node.id)
            return bool(values) and all(self.is_no_triple(each, (*following, node.id)) for each in values)
        if isinstance(node, ast.BinOp):
            return not self._adds_tuples(node)
        return isinstance(node, ast.Constant | ast.UnaryOp | ast.Compare | ast.Dict | ast.JoinedStr)

    def _adds_tuples(self, node: ast.expr, following: tuple[str, ...] = ()) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._adds_tuples(node.left, following) or self._adds_tuples(node.right, following)
        if isinstance(node, ast.Name) and node.id not in following:
            return any(self._adds_tuples(each, (*following, node.id)) for each in self._assigned(node.id))
        return isinstance(node, ast.Tuple | ast.List)

    def _assigned(self, name: str) -> list[ast.expr]:
        """All values that a local name is given; none if it is also bound in another way, by a loop or unpacked."""
        values: list[ast.expr] = []
        bound = 0
        for node in self.body:
            bound += isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and value is not None:
                values += [value for target in targets if isinstance(target, ast.Name) and target.id == name]
        return values if len(values) == bound else []

    def _calls_no_build(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Name):
            return False
        if function.id in NUMBERS:
            return True
        called = getattr(self.call, "__globals__", {}).get(function.id)
        if not isinstance(called, types.FunctionType) or called in self.callers:
            return False
        source = _source(called)
        if source is None or isinstance(source, ast.AsyncFunctionDef) or getattr(source, "decorator_list", []):
            return False
        body = list(_own_nodes(source))
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in body):
            return False
        inner = _Scope(called, body, self.callers)
        return _annotation(source) in NUMBERS or all(inner.is_no_triple(node) for node in _returned(source, body))
