"""Everything riesz uses of torch that is not public. A release of torch may change it without notice.

No other module names a private part of torch: a test reads the sources. Each use falls back to a public way, or an
error says what is missing; docs/versions.md has the list, and another test breaks them one by one. Nothing is looked up
on import, and nothing of torch.distributed is imported.
"""

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

# -- tensors -----------------------------------------------------------------------------------------------------------


def copy_all_(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy each source to its target, which may have another dtype or device."""
    try:
        torch._foreach_copy_(targets, sources)
    except (AttributeError, TypeError):
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def dispatch_mode_is_on() -> bool:
    """Whether a dispatch mode, such as that of fake tensors, sees what is computed."""
    try:
        return torch._C._len_torch_dispatch_stack() > 0
    except (AttributeError, TypeError):
        return True


def is_fake(tensor: Tensor) -> bool:
    """Whether it is one of torch's fake tensors."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and type(tensor) is getattr(fakes, "FakeTensor", None)


def compiled_guard(tensors: Sequence[Tensor]) -> Callable[..., bool] | None:
    """A comparison with these tensors in kind, dtype, device, shape and strides; None if torch has none."""
    try:
        tensor_guards: Any = torch._C._dynamo.guards.TensorGuards
        guards = tensor_guards(
            *tensors,
            dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )
        check: Callable[..., bool] = guards.check
        return check if check(*tensors) else None
    except Exception:  # whatever has changed
        return None


def compiles_for_any_sizes() -> bool:
    """Whether a compiler that is tracing now was told dynamic=True."""
    try:
        return not torch._dynamo.config.assume_static_by_default
    except AttributeError:
        return True


_version = attrgetter("_version")


def write_counts(tensors: Sequence[Tensor]) -> list[float]:
    """How often each tensor was written to: an int, or NaN, which equals nothing, if torch does not tell."""
    try:
        return list(map(_version, tensors))
    except AttributeError:
        return [float("nan") for _ in tensors]


# -- DTensors ----------------------------------------------------------------------------------------------------------

_local_tensor, _spec = attrgetter("_local_tensor"), attrgetter("_spec")


def local_tensors(dtensors: Sequence[Any]) -> list[Any]:
    """What each DTensor holds on this rank; perhaps the result of a collective that is still under way."""
    try:
        return list(map(_local_tensor, dtensors))
    except AttributeError:
        with torch.no_grad():  # which makes it the very memory, at twenty times the price
            return [dtensor.to_local() for dtensor in dtensors]


def layouts(dtensors: Sequence[Any]) -> list[Any]:
    """Mesh, placements, shape, strides and dtype of each DTensor, to be compared."""
    try:
        return list(map(_spec, dtensors))
    except AttributeError:
        return [(d.device_mesh, d.placements, d.shape, d.stride(), d.dtype) for d in dtensors]


def strided_shard(placement: Any) -> tuple[int, int] | None:
    """Of a strided shard (FSDP with tensor parallelism), its dim and into how many pieces that is cut; else None."""
    placements = sys.modules["torch.distributed.tensor.placement_types"]
    if type(placement) is not getattr(placements, "_StridedShard", None):
        return None
    pieces = getattr(placement, "split_factor", None)
    return None if pieces is None else (placement.dim, int(pieces))


def default_store() -> Any:
    """The store that all ranks share; None if torch does not hand it out."""
    try:
        return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    except (AttributeError, TypeError):
        return None


# -- modules -----------------------------------------------------------------------------------------------------------


def without_wrappers(name: str) -> str:
    """The name of a parameter in the user's own model, without what DataParallel, FSDP1 and torch.compile put in it."""
    return re.sub(r"\b(module|_orig_mod|_fsdp_wrapped_module)\.", "", name)


# -- optimizers --------------------------------------------------------------------------------------------------------

HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def hook_tables(optimizer: torch.optim.Optimizer) -> dict[str, OrderedDict[Any, Any]]:
    """The tables of hooks by name; wrappers that skip Optimizer.__init__ have some of them, or none."""
    return {name: getattr(optimizer, name) for name in HOOK_TABLES if hasattr(optimizer, name)}


def step_hooks(optimizer: torch.optim.Optimizer) -> OrderedDict[Any, Any]:
    """The hooks that run before a step; empty for a wrapper without a table of its own."""
    hooks: OrderedDict[Any, Any] = optimizer.__dict__.get(HOOK_TABLES[0], OrderedDict())
    return hooks


@lru_cache(maxsize=1)
def _step_code() -> CodeType | None:
    """The code that torch wraps every `step` in, and that runs the hooks; None if it is not what it was."""
    try:
        code: CodeType = torch.optim.Optimizer.profile_hook_step(lambda self: None).__code__
    except (AttributeError, TypeError):
        return None
    return code if "self" in code.co_varnames else None


def runs_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `step` is torch's wrapper, which Optimizer.__init__ puts there, and has a table of hooks to run."""
    step: Any = type(optimizer).step
    # The compiler puts a wrapper of its own around the steps it cannot trace, such as that of LBFGS.
    while getattr(step, "__code__", None) is not _step_code() and hasattr(step, "_torchdynamo_orig_callable"):
        step = step._torchdynamo_orig_callable
    wrapped = _step_code() is None or getattr(step, "__code__", None) is _step_code()
    return wrapped and HOOK_TABLES[0] in optimizer.__dict__


def why_not_hookable(optimizer: torch.optim.Optimizer) -> str | None:
    """Why the hooks of an optimizer would not do what they should in this torch, or None."""
    if HOOK_TABLES[0] not in optimizer.__dict__ and type(optimizer).__module__.startswith("torch.optim."):
        return f"torch {torch.__version__} keeps step hooks in another place than riesz knows"
    steps = [base for base in type(optimizer).__mro__ if "step" in vars(base) and base is not torch.optim.Optimizer]
    if _step_code() is None and len(steps) > 1:
        return (
            f"its step may call that of {steps[1].__name__}, which would direct gradients twice, and riesz cannot see "
            f"steps within steps in torch {torch.__version__}"
        )
    return None


def is_nested(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this step runs inside another step of the same optimizer.

    A subclass whose `step` calls `super().step()` runs its hooks twice, once an instance of the base class was made,
    and the metric would be applied twice. The stack shows it, also after a step that ended with an exception.
    """
    frame: FrameType | None = sys._getframe(1)
    code = _step_code()
    steps = 0
    while code is not None and frame is not None and steps < 2:
        steps += frame.f_code is code and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps >= 2


def overflow_flags(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Where to report an overflow in a fused step under a gradient scaler: set above 0, each of them; else empty.

    The optimizer's own `found_inf` makes the step skip. It is a copy: the scaler lowers its scale by flags of its own,
    and can be reached through the call stack only.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    if not isinstance(found_inf, Tensor):
        return []
    for frame, _ in walk_stack(sys._getframe(1)):
        if frame.f_code is torch.amp.GradScaler.step.__code__ and frame.f_locals.get("optimizer") is optimizer:
            flags = frame.f_locals.get("optimizer_state", {}).get("found_inf_per_device", {})
            return [found_inf, *flags.values()]
    return [found_inf]


def groups_before_sharing() -> list[dict[str, Any]] | None:
    """The groups of the ZeroRedundancyOptimizer that is making its local optimizer now; None outside of one.

    The local optimizer gets this rank's share of the parameters, which may hold nothing to direct.
    """
    zero: Any = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    if zero is None:
        return None
    code = getattr(getattr(zero.ZeroRedundancyOptimizer, "_init_local_optimizer", None), "__code__", None)
    for frame, _ in walk_stack(sys._getframe(1)):
        if frame.f_code is code:
            groups: list[dict[str, Any]] | None = getattr(frame.f_locals.get("self"), "param_groups", None)
            return groups
    return None
