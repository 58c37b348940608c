"""Finds attributes that the program set on a tensor, module or optimizer under a name that torch never reads
(``require_grad``) (:func:`of_tensors`, :func:`of_modules` and :func:`of_optimizer`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from types import FrameType
from typing import Any, Literal

import torch

from pitfall_lab.observe.namespace import NO_MODULES, scopes

PLAIN = (torch.Tensor, torch.nn.Parameter)
LIKE = 0.85
"""How similar a name must be to the intended one: ``require_grad`` to ``requires_grad`` is 0.96, ``train`` to
``training`` 0.77.
"""
OTHERWISE = {"trainable": "requires_grad", "learning_rate": "lr"}
"""Names in other libraries for attributes that torch names differently."""


@dataclass(frozen=True, slots=True)
class FoundStray:
    """An attribute without effect that the program set on an object of torch.

    ``owner`` is the tensor, module or optimizer (``kind``), ``attribute`` the name that was set and ``value`` its
    value; ``meant`` is the name of the attribute or option that torch reads instead, ``actual`` the value of that.
    ``tensors`` are those concerned: the tensor, or the parameters of the module or optimizer; empty if ``meant`` is
    ``training``.
    """

    kind: Literal["tensor", "module", "optimizer"]
    owner: Any
    attribute: str
    meant: str
    value: Any
    actual: Any
    tensors: tuple[Any, ...]


def parameters(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters of a module and its submodules, without calling functions of the program. Modules that
    ``torch.jit`` compiled are left out.
    """
    for each in _inside(module, set()):
        yield from (p for p in _table(each, "_parameters").values() if p is not None)


def named(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters of a module and its submodules, each after its dotted name, without calling functions of the
    program.
    """
    for path, each in _named(module, "", set()):
        yield from ((f"{path}{name}", p) for name, p in _table(each, "_parameters").items() if p is not None)


def plain_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a module and its submodules that were simply assigned to attributes, each after its dotted
    name.

    Parameters, buffers and tensors of other classes are not among them.
    """
    for path, each in _named(module, "", set()):
        for name, value in each.__dict__.items():
            if type(value) is torch.Tensor:
                yield f"{path}{name}", value


def unsaved_buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers of a module and its submodules that ``persistent=False`` leaves out of every ``state_dict``,
    each after its dotted name.
    """
    for path, each in _named(module, "", set()):
        for name in each.__dict__.get("_non_persistent_buffers_set", ()):
            value = _table(each, "_buffers").get(name)
            if type(value) is torch.Tensor:
                yield f"{path}{name}", value


def _table(module: torch.nn.Module, name: str) -> dict[str, Any]:
    """The module's own dict of parameters, buffers or submodules; empty for one that ``torch.jit`` compiled, and for
    one whose ``__init__`` has not run.
    """
    found = module.__dict__.get(name)
    return found if isinstance(found, dict) else {}


def _named(module: torch.nn.Module, path: str, known: set[int]) -> Iterator[tuple[str, torch.nn.Module]]:
    known.add(id(module))
    yield path, module
    for name, part in _table(module, "_modules").items():
        if part is not None and id(part) not in known:
            yield from _named(part, f"{path}{name}.", known)


def of_tensors(tensors: Iterable[Any]) -> Iterator[FoundStray]:
    """Yield the attributes that the program has set on tensors under a name like ``requires_grad`` (``require_grad``,
    say) that torch does not read, if their value is a bool that differs from the tensor's ``requires_grad``.
    """
    for each in tensors:
        for name, value in each.__dict__.items() if type(each) in PLAIN else ():
            if isinstance(value, bool) and value != each.requires_grad and _means(name, "requires_grad"):
                yield FoundStray("tensor", each, name, "requires_grad", value, each.requires_grad, (each,))


def of_modules(frame: FrameType | None) -> Iterator[FoundStray]:
    """Yield bool attributes of the program's modules whose names are like ``requires_grad`` or ``training``, for which
    they were probably intended.

    Only modules in a variable of ``frame`` or the frames around it count, with their submodules, and only where the
    value differs from ``training``, or from the ``requires_grad`` of every parameter.
    """
    known: set[int] = set()
    for scope in scopes(frame):
        for value in scope.values():
            if type(value) not in NO_MODULES and isinstance(value, torch.nn.Module):
                for module in _inside(value, known):
                    yield from _of_module(module)


def _of_module(module: torch.nn.Module) -> Iterator[FoundStray]:
    for name, value in list(module.__dict__.items()):
        if not isinstance(value, bool) or name == "training":
            continue
        if name in ("train", "eval") or _means(name, "training"):
            meant = value if name != "eval" else not value
            if meant != module.training:
                yield FoundStray("module", module, name, "training", value, module.training, ())
        elif name == "requires_grad" or _means(name, "requires_grad"):
            held = tuple(parameters(module))
            actual = {p.requires_grad for p in held}
            if actual == {not value}:
                yield FoundStray("module", module, name, "requires_grad", value, not value, held)


def of_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[FoundStray]:
    """Yield the attributes of an optimizer of a torch class that are numbers and have the name of one of its options,
    if the value differs from the option's in each of ``param_groups``.
    """
    if not type(optimizer).__module__.startswith("torch.optim"):
        return
    for name, value in list(vars(optimizer).items()):
        meant = OTHERWISE.get(name, name)
        actual = (
            [group.get(meant) for group in optimizer.param_groups]
            if meant in optimizer.defaults and _is_number(value)
            else []
        )
        if actual and all(_is_number(each) and each != value for each in actual):
            held = tuple(parameter for group in optimizer.param_groups for parameter in group["params"])
            yield FoundStray("optimizer", optimizer, name, meant, value, actual[0], held)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


@cache
def _means(name: str, meant: str) -> bool:
    if name == meant or name.startswith("_"):
        return False
    return OTHERWISE.get(name) == meant or SequenceMatcher(None, name, meant).ratio() >= LIKE


def _inside(module: torch.nn.Module, known: set[int]) -> Iterator[torch.nn.Module]:
    """Yield the module and its submodules that are not ``known`` yet.

    A scripted module, whose ``_parameters`` and ``_modules`` are not dicts, is left out.
    """
    work = [module]
    while work:
        each = work.pop()
        tables = [each.__dict__.get(name) for name in ("_parameters", "_modules")]
        if id(each) not in known and all(type(table) is dict for table in tables):
            known.add(id(each))
            yield each
            work += [child for child in tables[1].values() if child is not None]  # type: ignore[union-attr]
