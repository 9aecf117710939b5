"""Ways to compute a metric gradient in place; `registry` says what one must offer."""

from riesz.backends.cpu import CPU
from riesz.backends.eager import EAGER
from riesz.backends.reference import REFERENCE
from riesz.backends.registry import Backend, Planned, Status, backends, check_name, choose, register

register(CPU)
register(EAGER)
register(REFERENCE)

__all__ = ["Backend", "Planned", "Status", "backends", "check_name", "choose", "register"]
