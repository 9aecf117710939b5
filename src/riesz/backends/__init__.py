"""Ways to compute a metric gradient in place; `registry` says what one must offer."""

from riesz.backends.eager import EAGER
from riesz.backends.reference import REFERENCE
from riesz.backends.registry import Backend, Status, backends, check_name, choose, register

register(EAGER)
register(REFERENCE)

__all__ = ["Backend", "Status", "backends", "check_name", "choose", "register"]
