"""A cache for functions that torch.compile may trace."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def memoized(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, with its last 4,096 results kept.

    A trace calls the function itself: the compiler would look through a plain `lru_cache`, and warn the user about it.
    """
    cached = cast(Callable[Arguments, Result], lru_cache(maxsize=4096)(function))

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return function(*args, **kwargs) if torch.compiler.is_compiling() else cached(*args, **kwargs)

    return call
