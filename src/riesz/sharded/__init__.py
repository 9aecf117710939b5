"""Gradients that are DTensors: FSDP2, HSDP, tensor parallelism. Imported with the first one."""

from riesz.sharded.collectives import all_finite
from riesz.sharded.direct import Item, PreparedStep, PreparedSteps, agree, direct_
from riesz.sharded.groups import DisagreementError
from riesz.sharded.layout import check, local_of

__all__ = [
    "DisagreementError",
    "Item",
    "PreparedStep",
    "PreparedSteps",
    "agree",
    "all_finite",
    "check",
    "direct_",
    "local_of",
]
