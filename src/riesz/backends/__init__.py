"""Backends: how a metric gradient is computed in place. `registry` says what a backend must offer."""

from riesz.backends.cpu import CPU
from riesz.backends.dispatch import FastPathCache, direct_
from riesz.backends.eager import EAGER
from riesz.backends.reference import REFERENCE
from riesz.backends.registry import Backend, Status, backends, check_name, choose, register
from riesz.backends.triton.backend import TRITON

register(CPU)
register(TRITON)
register(EAGER)
register(REFERENCE)

__all__ = ["Backend", "FastPathCache", "Status", "backends", "check_name", "choose", "direct_", "register"]
