"""Gradients that are DTensors: FSDP2, HSDP, tensor parallelism. Imported with the first one."""

from riesz.sharded.collectives import all_finite
from riesz.sharded.direct import Item, PreparedStep, agree, direct_, prepare
from riesz.sharded.layout import check, local_of
from riesz.sharded.watch import DisagreementError

__all__ = [
    "DisagreementError",
    "Item",
    "PreparedStep",
    "agree",
    "all_finite",
    "check",
    "direct_",
    "local_of",
    "prepare",
]
