"""How torch optimizers run their step hooks."""

import sys
from collections import OrderedDict
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch
from torch import Tensor

STEP_CODE = torch.optim.Optimizer.profile_hook_step(lambda self: None).__code__
"""The code that torch wraps every `step` in, and that runs the hooks."""


def runs_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `step` is torch's wrapper, which Optimizer.__init__ puts there, and has a table of hooks to run."""
    step: Any = type(optimizer).step
    # The compiler puts a wrapper of its own around the steps it cannot trace, such as that of LBFGS.
    while getattr(step, "__code__", None) is not STEP_CODE and hasattr(step, "_torchdynamo_orig_callable"):
        step = step._torchdynamo_orig_callable
    return getattr(step, "__code__", None) is STEP_CODE and "_optimizer_step_pre_hooks" in optimizer.__dict__


def is_nested(optimizer: torch.optim.Optimizer) -> bool:
    """Whether this step runs inside another step of the same optimizer.

    A subclass whose `step` calls `super().step()` runs its hooks twice, once an instance of the base class was made,
    and the metric would be applied twice. The stack shows it, also after a step that ended with an exception.
    """
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None and steps < 2:
        steps += frame.f_code is STEP_CODE and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps >= 2


SCALER_CODE = torch.amp.GradScaler.step.__code__
"""The code of a gradient scaler's step, which runs the step of a fused optimizer."""


def overflow_flags(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Where to report an overflow in a fused step under a gradient scaler: set above 0, each of them; else empty.

    The optimizer's own `found_inf` makes the step skip. It is a copy: the scaler lowers its
    scale by flags of its own, and can be reached through the call stack only.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    if not isinstance(found_inf, Tensor):
        return []
    for frame, _ in walk_stack(sys._getframe(1)):
        if frame.f_code is SCALER_CODE and frame.f_locals.get("optimizer") is optimizer:
            return [found_inf, *frame.f_locals["optimizer_state"]["found_inf_per_device"].values()]
    return [found_inf]


def groups_before_sharing() -> list[dict[str, Any]] | None:
    """The groups of the ZeroRedundancyOptimizer that is making its local optimizer now; None outside of one.

    The local optimizer gets this rank's share of the parameters, which may hold nothing to direct.
    """
    zero: Any = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    for frame, _ in walk_stack(sys._getframe(1)) if zero is not None else ():
        if frame.f_code is zero.ZeroRedundancyOptimizer._init_local_optimizer.__code__:
            groups: list[dict[str, Any]] = frame.f_locals["self"].param_groups
            return groups
    return None


def hook_tables(optimizer: torch.optim.Optimizer) -> dict[str, OrderedDict[Any, Any]]:
    """The tables we register in; wrappers that skip Optimizer.__init__ may have some of them only."""
    names = (
        "_optimizer_step_pre_hooks",
        "_optimizer_step_post_hooks",
        "_optimizer_load_state_dict_pre_hooks",
        "_optimizer_load_state_dict_post_hooks",
    )
    return {name: getattr(optimizer, name) for name in names if hasattr(optimizer, name)}


def own_copy_method(optimizer: torch.optim.Optimizer) -> str | None:
    """The method by which a class copies its instances itself, without our hooks; None if it does not."""
    methods = ("__deepcopy__", "__reduce__", "__reduce_ex__")
    own = (name for name in methods if getattr(type(optimizer), name, None) is not getattr(object, name, None))
    return next(own, None)
