"""Finds submodules and methods of an encoder layer that the program overrides and that are not called, as torch
computes the layer in one operation from the weights of its submodules (:func:`skipped_parts`).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple

import torch

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.recorder import Call

WHOLE = "torch._transformer_encoder_layer_fwd"
"""The call that computes an encoder layer in one operation."""
FORWARD: CodeType = torch.nn.TransformerEncoderLayer.forward.__code__
METHODS = ("_sa_block", "_ff_block")
"""The methods of the layer that are not called either."""
READ_ANYWAY = frozenset({"self_attn.out_proj"})
"""Submodules whose weights torch reads directly in each mode."""
WEIGHTS = {"self_attn": 3, "norm1": 10, "norm2": 12, "linear1": 14, "linear2": 16}
"""The index of the argument of the call that is the weight of each submodule."""

Asks = Literal["", "branch", "mode"]
"""Whether a function computes something else in some cases: never, depending on a branch, or depending on the mode."""


class SkippedPart(NamedTuple):
    """A function of the program that was not called, as torch computed the layer in one operation;
    :class:`pitfall_lab.trace.Skipped` stores the same together with a step.

    ``part`` is the name of the submodule (such as ``linear1``) and ``kind`` its class; for a method of the layer itself
    ``part`` is empty and ``kind`` the layer's class. ``function`` is the qualified name, ``asks`` whether it computes
    something else in some cases (:data:`Asks`), ``own`` are the attributes that it reads and that torch's class does
    not have. ``weight`` is the submodule's weight as passed to the call, None if it has none.
    """

    part: str
    kind: str
    function: str
    asks: Asks
    own: tuple[str, ...]
    weight: Any


def skipped_parts(call: Call, is_user: Callable[[str], bool]) -> list[SkippedPart]:
    """Return the submodules of the encoder layer that ``call`` computed in one operation whose ``forward`` is the
    program's (``is_user`` of its file name) and was not called, and such methods of the layer (:data:`METHODS`); an
    empty list if there are none.

    A submodule is left out if its weight as passed to the call is no ``Parameter``, or if a parameter that only the
    program reads is still all zeros. Must be called while the layer's ``forward`` runs.
    """
    layer = _layer(call.frame)
    if layer is None:
        return []
    found = []
    for name in METHODS:
        function = getattr(type(layer), name, None)
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType) and is_user(code.co_filename):
            found.append(SkippedPart("", type(layer).__name__, code.co_qualname, _asks(code), _own(layer, code), None))
    for name, part, code in _own_parts(layer, is_user):
        weight = call.args[WEIGHTS[name]] if name in WEIGHTS and len(call.args) > WEIGHTS[name] else None
        # a weight that the part computes has everything in it; where a factor is zero, nothing is added
        if (weight is None or type(weight) is torch.nn.Parameter) and not _adds_nothing(part):
            found.append(
                SkippedPart(name, type(part).__name__, code.co_qualname, _asks(code), _own(part, code), weight)
            )
    return found


def _layer(end: FrameType) -> Any:
    """The layer whose ``forward`` is running, between here and the frame of the program; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not end:
        if frame.f_code is FORWARD:
            return variables(frame).get("self")
        frame = frame.f_back
    return None


def _own_parts(layer: Any, is_user: Callable[[str], bool]) -> Iterator[tuple[str, Any, CodeType]]:
    """The submodules of a layer whose ``forward`` is the program's, with their names and its code; modules inside such
    a submodule are left out.
    """
    inside: list[str] = []
    for name, part in layer.named_modules():
        if not name or name in READ_ANYWAY or any(name.startswith(f"{each}.") for each in inside):
            continue
        function = vars(part).get("forward", getattr(type(part), "forward", None))
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType) and is_user(code.co_filename):
            inside.append(name)
            yield name, part, code


def _adds_nothing(part: Any) -> bool:
    """Whether a parameter of the submodule, other than those that the layer reads, is still all zeros."""
    own = [each for name, each in part.named_parameters() if name.rpartition(".")[2] not in ("weight", "bias")]
    return any(each.numel() and each.device.type == "cpu" and not bool(each.detach().any()) for each in own)


def _asks(code: CodeType) -> Asks:
    if "training" in code.co_names:
        return "mode"
    return (
        "branch" if any("JUMP" in each.opname and "_IF_" in each.opname for each in dis.get_instructions(code)) else ""
    )


def _own(part: Any, code: CodeType) -> tuple[str, ...]:
    """The attributes of the submodule that its ``forward`` reads and that torch's class does not have."""
    base = next((each for each in type(part).__mro__ if each.__module__.startswith("torch.")), torch.nn.Module)
    usual = {"weight", "bias", *getattr(base, "__constants__", ())}
    held = {*vars(part), *(name for kind in ("_parameters", "_buffers", "_modules") for name in vars(part)[kind])}
    return tuple(name for name in code.co_names if name in held and name not in usual)
