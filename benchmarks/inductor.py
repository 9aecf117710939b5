"""Claim: where there is no Triton backend, `torch.compile` fuses what eager does on a GPU into fewer kernels.

`python -m benchmarks.inductor` writes `benchmarks/results/inductor.csv`: per network and metric, the operators eager
batching calls, and the kernels inductor makes of them for a CUDA device. No GPU is needed: the step is traced on fake
tensors, its graph moved to a device that is not there, and the code generated but not compiled.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import riesz
from benchmarks.networks import NETWORKS, Shape

RESULT = Path(__file__).parent / "results" / "inductor.csv"
METRICS = ("reweighted-l2", "sobolev-tilde", "sobolev", "centralization")
MEASURED = ("ResNet-56", "ResNet-50")


@dataclass(frozen=True)
class Kernels:
    """What one step of directing comes to.

    Attributes:
        gradients, shapes: how many, and how many different.
        operators: calls of torch's operators in eager, views not counted.
        generated: launches of kernels that inductor generates; external: calls of libraries (matrix products, FFTs).
    """

    network: str
    metric: str
    gradients: int
    shapes: int
    operators: int
    generated: int
    external: int


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operators(shapes: Iterable[Shape], metric: riesz.Operator) -> int:
    """Calls of operators that compute or copy."""
    grads = [torch.zeros(shape) for shape in shapes]
    riesz.precondition_(grads, metric, backend="eager")  # factors are made once
    with _Calls() as calls:
        riesz.precondition_(grads, metric, backend="eager")
    return calls.count


def generated_code(shapes: Iterable[Shape], metric: riesz.Operator) -> str:
    """The code inductor writes for a CUDA device to direct gradients of these shapes by eager."""

    def step(*grads: Tensor) -> tuple[()]:
        riesz.precondition_(list(grads), metric, backend="eager")
        return ()

    return code_for_gpu(torch.func.functionalize(step, remove="mutations"), shapes)


def code_for_gpu(step: Callable[..., Any], shapes: Iterable[Shape], numbers: int = 0) -> str:
    """The code inductor writes for a step on a CUDA device.

    Args:
        step: takes gradients of these shapes, and after them, if there are any, `numbers` in a tensor on the CPU.
        shapes: those of the gradients.
        numbers: how many.
    """
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_map

    device = torch.device("cuda", 0)
    fakes = FakeTensorMode(allow_non_fake_inputs=True)

    def moved(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        memory = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return FakeTensor(fakes, memory, device)

    with fakes:
        grads = [torch.empty(shape) for shape in shapes]
        on_cpu = [torch.empty(numbers, dtype=torch.float64)] if numbers else []
        graph = make_fx(step, decomposition_table=select_decomp_table(), tracing_mode="real")(*grads, *on_cpu)
    placeholders = graph.graph.find_nodes(op="placeholder")
    for node in graph.graph.nodes:
        if "val" in node.meta and node.op != "get_attr" and node not in placeholders[len(grads) :]:
            node.meta["val"] = tree_map(moved, node.meta["val"])
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": device}
    inputs: Any = [*map(moved, grads), *on_cpu]
    lowering: Any = GraphLowering(graph, example_inputs=inputs, is_inference=True)
    with _pretended_gpu(), V.set_fake_mode(fakes), V.set_graph_handler(lowering), DebugContext(), torch.no_grad():
        lowering.run(*inputs)
        return str(lowering.codegen()[0].value)


@contextmanager
def _pretended_gpu() -> Iterator[None]:
    """An A100 by its data sheet, for what inductor asks of a device while it generates code."""
    from torch._dynamo import device_interface
    from torch._inductor import scheduler
    from torch._inductor.runtime.hints import DeviceProperties

    sizes = {
        "multi_processor_count": 108,
        "major": 8,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "warp_size": 32,
    }
    hints = DeviceProperties(type="cuda", index=0, cc=80, **sizes)
    properties = SimpleNamespace(**sizes, minor=0, name="A100", total_memory=40 << 30, gcnArchName="")
    interface: Any = device_interface.CudaInterface
    device_interface.register_interface_for_device("cuda:0", interface)
    with ExitStack() as stack:
        for patch in (
            mock.patch.object(DeviceProperties, "create", return_value=hints),
            mock.patch.object(interface.Worker, "get_device_properties", return_value=properties),
            mock.patch.object(scheduler, "has_triton", return_value=True),
            mock.patch("torch.cuda.get_device_properties", return_value=properties),
            mock.patch("torch.cuda.get_device_capability", return_value=(8, 0)),
            mock.patch("torch.cuda.current_device", return_value=0),
            mock.patch("torch.cuda.device_count", return_value=1),
            mock.patch("torch.utils._triton.triton_hash_with_backend", return_value="none"),
        ):
            stack.enter_context(patch)
        yield


def count(network: str, shapes: Sequence[Shape], text: str) -> Kernels:
    metric = riesz.metric(text)
    code = generated_code(shapes, metric)
    generated = len(re.findall(r"^ +triton_\w+\.run\(", code, re.M))
    external = len(re.findall(r"^ +(?:extern_kernels\.\w+\(|\w+ = torch\.ops\.)", code, re.M))
    sizes = (len(shapes), len(set(shapes)))
    return Kernels(network, text, *sizes, operators(shapes, metric), generated, external)


def load(path: Path = RESULT) -> list[Kernels]:
    with path.open(newline="") as file:
        return [
            Kernels(row.pop("network"), row.pop("metric"), **{name: int(value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def main() -> None:
    with RESULT.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Kernels)], lineterminator="\n")
        writer.writeheader()
        for network in MEASURED:
            for text in METRICS:
                kernels = count(network, NETWORKS[network], text)
                writer.writerow(asdict(kernels))
                print(kernels, flush=True)


if __name__ == "__main__":
    main()
