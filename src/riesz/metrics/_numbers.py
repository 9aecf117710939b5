"""Checks on the numbers a metric is built from."""

import math
from numbers import Real


def checked(owner: str, name: str, value: object, allowed: str) -> float:
    """Return `value` as a finite float, or raise an error that says what is `allowed`.

    Booleans and tensors are refused: the first are almost always a misplaced flag, the second would make a metric
    mutable, unhashable and tied to a device.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{owner}: expected a real number ({allowed}) for {name}, got {value!r} of type {type(value).__name__}"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{owner}: expected a finite {name} ({allowed}), got {number}")
    return number


SMALLEST, LARGEST = 1e-30, 1e30
"""Strengths beyond these would leave the range of float32 on the way, for any gradient."""


def positive(owner: str, name: str, value: object) -> float:
    number = checked(owner, name, value, f"{name} > 0")
    if number <= 0:
        raise ValueError(f"{owner}: expected {name} > 0, got {number}")
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{owner}: expected {SMALLEST} <= {name} <= {LARGEST}, got {number}")
    return number


def not_negative(owner: str, name: str, value: object) -> float:
    number = checked(owner, name, value, f"{name} >= 0")
    if number < 0:
        raise ValueError(f"{owner}: expected {name} >= 0, got {number}")
    return number


def length(owner: str, n: object) -> int:
    """The length of an axis: an int of at least one."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"{owner}: expected an int for the axis length n, got {n!r} of type {type(n).__name__}")
    if n < 1:
        raise ValueError(f"{owner}: expected an axis length n >= 1, got {n}")
    return n
