"""Threads, forked processes and compilers on the compiled backend."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

import riesz
from cases import relative_error
from kernel_oracle import METRIC, by_fft, expected
from riesz.backends import native

pytestmark = pytest.mark.skipif(isinstance(native.load(), str), reason="the compiled library is not here")


def test_threads_do_not_disturb_each_other():
    f = [torch.randn(64, 32, 3, 3), torch.randn(70_000), torch.randn(5, 300)]
    wanted = [expected(x, METRIC) if x.dim() > 1 else by_fft(METRIC, x) for x in f]
    wrong = []

    def work():
        for _ in range(20):
            grads = [x.clone() for x in f]
            riesz.precondition_(grads, METRIC, backend="cpu")
            wrong.extend(i for i in range(3) if not relative_error(grads[i], wanted[i]) <= 5e-6)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes_and_does_not_hang():
    script = """
import os, torch, riesz
grads = [torch.randn(64, 64, 3, 3), torch.randn(200_000)]
metric = riesz.Sobolev(0.1)
before = [g.clone().share_memory_() for g in grads]
riesz.precondition_(grads, metric, backend="cpu")
child = os.fork()
if child == 0:
    riesz.precondition_(before, metric, backend="cpu")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
# Compared by the parent: torch's own operators hang in the child.
assert all(torch.equal(a, b) for a, b in zip(grads, before))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_compiled_step_calls_the_operator_and_a_new_strength_recompiles_nothing():
    compiles = []

    def count(graph, inputs):
        compiles.append([str(node.target) for node in graph.graph.nodes])
        return graph.forward

    metric = METRIC.as_tensors()
    torch._dynamo.reset()
    step = torch.compile(lambda grads: riesz.precondition_(grads, metric), backend=count, fullgraph=True)
    for lam in (0.1, 0.5, 2.0):
        metric.lam.fill_(lam)
        f = [torch.randn(8, 3, 3), torch.randn(5, 4)]
        wanted = [expected(x, riesz.SobolevTilde(lam)) for x in f]
        step(f)
        assert all(relative_error(x, w) <= 5e-6 for x, w in zip(f, wanted, strict=True))
    assert len(compiles) == 1
    assert any("riesz" in target and "direct_" in target for target in compiles[0])


def test_the_operator_passes_torchs_own_checks():
    views = [torch.randn(4, 6), torch.randn(3, 5).t()]
    arguments = (views, [1, 4, 6, 1, 1, 5, 3, 1], 3, False, torch.tensor([0.1, 1.0, 1.0], dtype=torch.float64))
    torch.library.opcheck(torch.ops.riesz.direct_.default, arguments)
