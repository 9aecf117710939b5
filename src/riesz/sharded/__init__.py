"""Gradients that are DTensors: FSDP2, HSDP, tensor parallelism. Imported with the first one."""

from riesz.sharded.collectives import DisagreementError, all_finite
from riesz.sharded.direct import Item, PreparedStep, direct_, prepare
from riesz.sharded.layout import check, local_of

__all__ = ["DisagreementError", "Item", "PreparedStep", "all_finite", "check", "direct_", "local_of", "prepare"]
