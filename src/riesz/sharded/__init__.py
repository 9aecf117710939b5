"""Gradients that are DTensors: FSDP2, HSDP, tensor parallelism. Imported with the first one.

FSDP2 shards the axis that is smoothed along, so each rank holds some rows of every column. What goes over the wire in a
step, for M columns of n rows in float32 on W ranks, and the class that sends it:

| metric                      | what a rank lacks       | class, collective              | bytes that arrive           |
| --------------------------- | ----------------------- | ------------------------------ | --------------------------- |
| ReweightedL2                | the sum of each column  | ReducedSums, all-reduce        | 16 M (W-1)/W                |
| SobolevTilde                | 3 sums of each shard    | GatheredSums, all-gather       | 16 M (W-1); 24 if n > 256   |
| Sobolev, LaplacianSmoothing | 2 sums of each shard    | GatheredSums, all-gather       | 16 M (W-1)                  |
| the last three, where that  | the other rows          | ExchangedColumns, all-to-all   | 8 M n/W (W-1)/W             |
| is fewer bytes; all others  |                         | there and back                 |                             |
| Centralization              | the mean of each output | OutputMeans, all-reduce        | 16 (W-1)/W per output       |
| Identity                    | nothing                 |                                | 0                           |

Nothing travels where the axis is whole on each rank; Centralization asks for that of the others. All parameters of a
mesh share one collective for each class.

| file           | what it holds                                                                             |
| -------------- | ----------------------------------------------------------------------------------------- |
| layout.py      | from placements to the rows that each rank holds: `RowPartition`, `LocalShard`            |
| columns.py     | `Strategy`, what the classes above have in common; `ColumnBatch`; `ExchangedColumns`      |
| sums.py        | `ReducedSums`, `GatheredSums`, `OutputMeans`, and where they call kernels                 |
| collectives.py | all-gather, all-reduce and all-to-all of prepared buffers; reductions of whole gradients  |
| agreement.py   | groups of ranks, and how they notice that their work differs                              |
| step.py        | a step: the strategies of all parameters, chosen once, started and finished at every step |

Why a few sums suffice is in `riesz/metrics/low_rank.py`; the kernels' interface is in `riesz/backends/shards.py`.
"""

from riesz.sharded.agreement import DisagreementError
from riesz.sharded.collectives import all_finite
from riesz.sharded.layout import check, local_of
from riesz.sharded.step import PreparedStep, ShardedGradient, StepCache, agree, direct_

__all__ = [
    "DisagreementError",
    "PreparedStep",
    "ShardedGradient",
    "StepCache",
    "agree",
    "all_finite",
    "check",
    "direct_",
    "local_of",
]
