"""Gradients that are DTensors: FSDP2, HSDP, tensor parallelism. Imported when the first one is met."""

from riesz.sharded.finite import all_finite
from riesz.sharded.placement import check, local_of
from riesz.sharded.solver import Item, direct_
from riesz.sharded.wire import DisagreementError

__all__ = ["DisagreementError", "Item", "all_finite", "check", "direct_", "local_of"]
