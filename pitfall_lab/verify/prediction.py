"""Prediction: the shadow does a call before torch does."""

from __future__ import annotations

import re
from typing import Any

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import BACKWARD, GRAD, Call
from pitfall_lab.shadow import Applied, Device, DType, ShadowError, ShadowTensor, Unmodelled
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World

HOOKS = frozenset({"torch.Tensor.register_hook", "torch.Tensor.register_post_accumulate_grad_hook"})


#: What ``torch.use_deterministic_algorithms(True)`` changes on the CPU: fresh memory is filled, which a later resize or a composite made
#: of ``at::empty`` counts; gradients of what gives values with indices are put in place by another kernel; some calls are refused.
OTHERWISE_DETERMINISTIC = frozenset((
    "resize_", "resize_as_", "put_", "copysign", "copysign_", "cummax", "cummin", "kthvalue", "max", "min", "median", "nanmedian", "mode",
    "msort", "sort", "topk", "trace", "one_hot", "max_pool1d", "max_pool1d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
))  # fmt: skip


def predict(world: World, call: Call) -> str:
    """Run the call in the shadow. Returns why it cannot, or an empty string.

    What the shadow did is left in the call's memory: ``applied``, or the error that torch will raise as ``predicted``.
    """
    reason = _unsuitable(call) or _strange_gradient(world, call)
    if reason:
        return reason

    def shadow(real: Any) -> ShadowTensor:
        record = world.records.find(real)
        if record is None or record.shadow is None:
            raise argument_values.Unconvertible(tensor_facts.opacity(real) or "a tensor whose memory cannot be looked at")
        if record.shadow.counter is None and not record.shadow.inference:
            raise argument_values.Unconvertible(
                "a tensor of inference mode on memory that is not: some of torch takes it for one, some does not"
            )
        if devices and record.shadow.device != devices[0]:
            raise argument_values.Unconvertible(f"tensors on different devices ({devices[0][:]} and {record.shadow.device[:]})")
        devices.append(record.shadow.device)
        return record.shadow

    devices: list[Device] = []
    call_args = (call.args[0], None) if call.name in HOOKS and len(call.args) == 2 else call.args  # what a hook does is torch's to tell
    world.engine.default_float = DType(tensor_facts.default_dtype())
    try:
        args, kwargs = (argument_values.convert(part, shadow, DType, Device) for part in (call_args, call.kwargs))
        if call.dispatching:
            return "a dispatch mode of the program's may handle operations itself"
        call.memory["applied"] = world.engine.call(call.name, args, kwargs)
    except argument_values.Unconvertible as unknown:
        return str(unknown)
    except Unmodelled as unknown:
        return unknown.reason
    except ShadowError as predicted:
        # Its traceback holds this frame, and with it the call's tensors, until the cyclic collector runs.
        call.memory["predicted"] = predicted.with_traceback(None)
    return ""


def undecided(world: World, call: Call, message: str) -> str:
    """Why the shadow could not say whether the call would fail: torch refuses numbers that are not followed here. Else an empty string."""
    entry = ENTRIES.get(call.name)
    if entry is None or not entry.numbers or not re.search(entry.numbers, message):
        return ""
    operands = [world.records.find(real) for real in argument_values.tensors((call.args, call.kwargs))]
    unknown = any(record is None or record.shadow is None or record.shadow.window() is None for record in operands)
    applied: Applied | None = call.memory.get("applied")
    unknown |= applied is not None and any(run.gradient is None for run in applied.ran)
    return "whether torch refuses this depends on numbers, which are not followed here" if unknown else ""


def _strange_gradient(world: World, call: Call) -> str:
    """Why the gradient that is asked for has no model; assigning another one ends that."""
    strange = world.records.strange_gradients
    if strange and call.name in BACKWARD:
        return next(filter(None, map(_strange, map(world.records.by_mark.get, strange))), "")
    record = world.records.find(call.args[0]) if strange and call.name in {GRAD, "torch.Tensor.grad.__set__"} else None
    if record is None or record.mark not in strange:
        return ""
    return strange[record.mark] if call.name == GRAD else strange.pop(record.mark) and ""


def _strange(record: TensorRecord | None) -> str:
    """Why what is added to the gradient of a tensor cannot be followed, if that is so."""
    real = None if record is None else record()
    gradient = None if real is None else tensor_facts.grad_of(real)
    return "" if gradient is None else tensor_facts.opacity(gradient)


def _unsuitable(call: Call) -> str:
    """Why the program's settings make torch do something else than the shadow would, if they do."""
    if tensor_facts.autocasting():
        return "autocast decides the types of operands"
    if tensor_facts.deterministic() and call.name.rsplit(".", 1)[-1] in OTHERWISE_DETERMINISTIC:
        return "torch.use_deterministic_algorithms chose another algorithm"
    own = next(filter(None, map(tensor_facts.own_class, argument_values.tensors((call.args, call.kwargs)))), "")
    if own and call.name not in BACKWARD:
        return f"a tensor of class {own}, which may handle operations itself"
    if call.name in BACKWARD and tensor_facts.distributed():
        return "torch.distributed may change gradients on their way"
    return ""
