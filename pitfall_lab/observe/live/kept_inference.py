"""Finds the inference tensor that a failed cell used: the value of a name, or one that a module, a list, a dict or an
object of the notebook holds (:func:`kept_inference`).

A layer that keeps a table from its first forward keeps an inference tensor if that forward ran in inference mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import find
from pitfall_lab.observe.live.object_kinds import is_own


class KeptInference(NamedTuple):
    """A tensor created in inference mode: ``name`` is the expression for it, ``root`` the name with which it begins.

    ``module`` is the expression for the module that has it (or has the list or dict with it), and ``attribute`` the
    name of that attribute; both are empty if no module has it.
    """

    name: str
    root: str
    module: str
    attribute: str


def kept_inference(error: BaseException, namespace: Mapping[str, Any], budget: Budget) -> KeptInference | None:
    """The named inference tensor that shares its storage with an inference tensor in a local variable of the failed
    code; None if there is no such variable, or no name leads to its storage.

    ``error`` is the exception of the code; ``namespace`` has the notebook's names and their objects. ``budget`` is the
    time limit.
    """
    used = {_memory(each) for each in _tensors(error)}
    if not used:
        return None
    found = find(namespace, (), budget)
    for thing in (*found.tensors, *found.parameters):
        if is_own(thing.value) and thing.value.is_inference() and _memory(thing.value) in used:
            owners = [each for each in found.layers if thing.path[: len(each.path)] == each.path]
            owner = max(owners, key=lambda each: len(each.path), default=None)
            if owner is None:
                return KeptInference(thing.text, thing.path[0], "", "")
            return KeptInference(thing.text, thing.path[0], owner.text, thing.path[len(owner.path)])
    return None


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(error: BaseException) -> Iterator[Any]:
    """The inference tensors among the local variables of the functions through which the error passed, and in tuples
    and lists that are local variables.
    """
    step = error.__traceback__
    while step is not None:
        for value in list(step.tb_frame.f_locals.values()):
            for each in value if type(value) is tuple or type(value) is list else (value,):
                if is_own(each) and each.is_inference():
                    yield each
        step = step.tb_next
