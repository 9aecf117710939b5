"""A compiled step on a GPU: what inductor puts into the CUDA graphs it records. Code is generated without a GPU."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch
from benchmarks import inductor

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.filterwarnings("ignore")  # the compiler warns of its own doings
@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="this torch records no graph with CPU tensors")
def test_no_recorded_graph_has_the_operator_since_a_replay_would_keep_old_numbers():
    def step(gradient, weight, numbers):
        gradient.mul_(2)
        torch.ops.riesz.direct_([gradient], [1, 16, 8, 1], 3, False, numbers)
        weight.sub_(gradient)
        return ()

    with torch._inductor.config.patch({"triton.cudagraphs": True, "graph_partition": True}):
        code = inductor.code_for_gpu(step, [(16, 8), (16, 8)], numbers=3)
    recorded = re.findall(r"^def partition_\d+\(args\):\n((?:    .*\n|\n)+)", code, re.M)
    assert len(recorded) == 2
    assert all(".run(" in partition for partition in recorded)
    assert not any("riesz.direct_" in partition for partition in recorded)
    assert code.count("torch.ops.riesz.direct_.default(") == 1
