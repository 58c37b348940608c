"""Runs a call in the shadow before torch runs it, or returns why the shadow has no prediction for it
(:func:`predict`).
"""

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


def predict(world: World, call: Call) -> str:
    """Run the call in the shadow engine; return the reason why the engine cannot predict it, or an empty string.

    The result is stored in ``call.memory``: what the engine ``applied``, or the error that it ``predicted``. Reasons
    are also settings of the program (autocast, dispatch modes), tensors that the engine does not have, and operands on
    several devices.
    """
    reason = _unsuitable(call) or _strange_gradient(world, call)
    if reason:
        return reason

    def shadow(real: Any) -> ShadowTensor:
        record = world.records.find(real)
        if record is None or record.shadow is None:
            raise argument_values.Unconvertible(tensor_facts.opacity(real) or "a tensor whose memory cannot be read")
        if record.shadow.counter is None and not record.shadow.inference:
            raise argument_values.Unconvertible(
                "an inference tensor whose storage belongs to a normal tensor: some torch functions treat "
                "it as one, some do not"
            )
        if devices and record.shadow.device != devices[0]:
            raise argument_values.Unconvertible(
                f"tensors on different devices ({devices[0][:]} and {record.shadow.device[:]})"
            )
        devices.append(record.shadow.device)
        return record.shadow

    devices: list[Device] = []
    call_args = (
        (call.args[0], None) if call.name in HOOKS and len(call.args) == 2 else call.args
    )  # the shadow does not run hooks
    world.engine.default_float = DType(tensor_facts.default_dtype())
    try:
        args, kwargs = (argument_values.convert(part, shadow, DType, Device) for part in (call_args, call.kwargs))
        if call.dispatching:
            return "a dispatch mode of the program may handle operations itself"
        call.memory["applied"] = world.engine.call(call.name, args, kwargs)
    except argument_values.Unconvertible as unknown:
        return str(unknown)
    except Unmodelled as unknown:
        return unknown.reason
    except ShadowError as predicted:
        # Its traceback would keep this frame, and so the call's tensors, alive until the cyclic garbage collector runs.
        call.memory["predicted"] = predicted.with_traceback(None)
    return ""


MODES = re.compile(r"\bforward AD\b|\binside of vmap\b")
"""Errors about forward-mode gradients and about vmap: neither has a model, and a tensor's facts do not show whether
they apply to it.
"""


def undecided(world: World, call: Call, message: str) -> str:
    """Return the reason why the shadow could not predict the error ``message`` that torch raised, if that depends on
    what it does not have (values, forward-mode gradients, vmap); else "".
    """
    if MODES.search(message):
        return "torch computes forward-mode gradients or batches here, which have no model"
    entry = ENTRIES.get(call.name)
    if entry is None or not entry.numbers or not re.search(entry.numbers, message):
        return ""
    operands = [world.records.find(real) for real in argument_values.tensors((call.args, call.kwargs))]
    unknown = any(record is None or record.shadow is None or record.shadow.window() is None for record in operands)
    applied: Applied | None = call.memory.get("applied")
    unknown |= applied is not None and any(run.gradient is None for run in applied.ran)
    return "whether torch raises this error depends on values that this recording does not have" if unknown else ""


def _strange_gradient(world: World, call: Call) -> str:
    """The reason why a backward, or reading ``.grad``, has no model, because a gradient has no strided memory; else "".

    Assigning another gradient ends that state.
    """
    strange = world.records.strange_gradients
    if strange and call.name in BACKWARD:
        return next(filter(None, map(_strange, map(world.records.by_mark.get, strange))), "")
    record = world.records.find(call.args[0]) if strange and call.name in {GRAD, "torch.Tensor.grad.__set__"} else None
    if record is None or record.mark not in strange:
        return ""
    return strange[record.mark] if call.name == GRAD else strange.pop(record.mark) and ""


def _strange(record: TensorRecord | None) -> str:
    """The reason why accumulating into a tensor's gradient cannot be modelled, or an empty string."""
    real = None if record is None else record()
    gradient = None if real is None else tensor_facts.grad_of(real)
    return "" if gradient is None else tensor_facts.opacity(gradient)


def _unsuitable(call: Call) -> str:
    """The reason why the program's settings, or the class of an operand, make torch behave differently from the shadow;
    or "".
    """
    if tensor_facts.autocasting():
        return "autocast decides the dtypes of the operands"
    entry = ENTRIES.get(call.name)
    if entry is not None and "deterministic" in entry.traits and tensor_facts.deterministic():
        return "torch.use_deterministic_algorithms chose another algorithm"
    own = next(filter(None, map(tensor_facts.own_class, argument_values.tensors((call.args, call.kwargs)))), "")
    if own and call.name not in BACKWARD:
        return f"a tensor of class {own}, which may handle operations itself"
    if call.name in BACKWARD and tensor_facts.distributed():
        return "torch.distributed may change gradients during backward"
    return ""
