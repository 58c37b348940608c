"""Reads which options and averages of an optimizer a state that is being loaded replaces, which no torch call shows
(:func:`replaced` and :func:`misplaced`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.frame_variables import variables

ABOVE = 4
"""How many frames are examined, the given one included: a subclass of an optimizer calls the method of its base
class.
"""
LIKE_PARAMETER = frozenset(
    {
        "acc_delta",
        "ax",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "grad_avg",
        "max_exp_avg_sq",
        "momentum_buffer",
        "prev",
        "square_avg",
        "step_size",
        "sum",
    }
)
"""Names under which torch's optimizers keep values of the parameter's shape for each parameter; under other names they
keep sums of rows, or vectors.
"""


class LoadedState(NamedTuple):
    """What ``load_state_dict`` is about to store in an optimizer: ``groups``, the parameter groups with their options,
    and ``averages``, for each parameter the dict of the values kept for it (such as ``exp_avg``), by name.

    ``given`` are these dicts as they were passed: those of an optimizer itself if the state was not copied.
    """

    groups: list[dict[str, Any]]
    averages: dict[Any, Any]
    given: tuple[Any, ...] = ()


class MisplacedState(NamedTuple):
    """The first parameter of an optimizer that gets the averages of another one;
    :class:`pitfall_lab.trace.MisplacedAverages` stores the same together with its position in the program.

    ``parameter`` is the parameter, ``number`` its number (from 0, through all groups), ``entry`` the name of its
    average (such as ``exp_avg``), ``loaded`` the shape of the average and ``shape`` the parameter's. ``wrong`` of the
    ``of`` parameters with averages are misplaced. ``groups`` is, for each group of the state, the number of the group
    to which it belongs; empty if unknown. ``names`` are the names that the state and the optimizer have for the
    parameter, if these differ; else empty.
    """

    parameter: torch.Tensor
    number: int
    entry: str
    loaded: tuple[int, ...]
    shape: tuple[int, ...]
    wrong: int
    of: int
    groups: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


def loaded_state(optimizer: torch.optim.Optimizer, frame: FrameType) -> LoadedState | None:
    """Return what ``load_state_dict`` is about to store in the optimizer; None if it is not running in ``frame`` or one
    of the three frames above it, or runs for another optimizer (a copy of an optimizer is made by the same method).
    """
    code = getattr(inspect.unwrap(torch.optim.Optimizer.load_state_dict), "__code__", None)
    here: FrameType | None = frame
    for _ in range(ABOVE):
        if here is None:
            return None
        if here.f_code is code:
            held = variables(here)
            new, averages = held.get("param_groups"), held.get("state")
            if held.get("self") is not optimizer or not isinstance(new, list):
                return None
            source = held.get("state_dict")
            kept = source.get("state") if isinstance(source, dict) else None
            given = tuple(kept.values()) if isinstance(kept, dict) else ()
            return LoadedState(new, averages if isinstance(averages, dict) else {}, given)
        here = here.f_back
    return None


def averages(state: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the tensor of each average in a state with a dict for each parameter; only those with names in
    ``LIKE_PARAMETER`` whose writes are counted (no inference tensors).
    """
    for entries in list(state.values()) if isinstance(state, dict) else ():
        for name, value in list(entries.items()) if isinstance(entries, dict) else ():
            if name in LIKE_PARAMETER and isinstance(value, torch.Tensor) and not value.is_inference():
                yield name, value


def replaced(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[str, float, float, float | None]]:
    """Yield the options that the loaded parameter groups ``new`` change in the groups ``old``: the name, the number
    before and after, and, for ``lr``, the loaded group's ``initial_lr`` (the rate from which a scheduler started; None
    without one, and for other options).

    For ``lr`` the number before is the old group's ``initial_lr`` if it has one. Each option is yielded once, for the
    first group where it differs; only options that are plain finite numbers are compared.
    """
    told = set()
    for one, other in zip(old, new, strict=False):
        for name in (each for each in one if each in other):
            is_rate = name == "lr"
            before = number(one.get("initial_lr", one[name]) if is_rate else one[name])
            after = number(other[name])
            if before is not None and after is not None and before != after and name not in told:
                told.add(name)
                yield name, before, after, number(other.get("initial_lr")) if is_rate else None


def number(value: Any) -> float | None:
    """Return an option as a float; None for a tensor, a tuple, a bool or a value that is not finite."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def usual(optimizer: torch.optim.Optimizer, name: str) -> float | None:
    """Return the default of the optimizer's class for the option ``name``; None if that is no plain finite number, or
    there is no such option.
    """
    parameter = inspect.signature(type(optimizer).__init__).parameters.get(name)
    return number(parameter.default) if parameter is not None else None


def misplaced(old: list[dict[str, Any]], state: LoadedState) -> MisplacedState | None:
    """Return the first parameter of the groups ``old`` for which the loaded ``state`` has averages of another shape, or
    averages of its shape under another name; None if there is none.

    Names are those that a group has for its parameters (``param_names``), or an option of the groups that is a string;
    they count if the state has the same names in another order.
    """
    parameters = [parameter for group in old for parameter in group["params"]]
    loaded = [_average(state.averages.get(parameter)) for parameter in parameters]
    known = [
        (number, parameter, *average)
        for number, (parameter, average) in enumerate(zip(parameters, loaded, strict=True))
        if average is not None
    ]
    wrong = [each for each in known if each[3] != tuple(each[1].shape)]
    if wrong:
        number, parameter, entry, shape = wrong[0]
        order = _order(old, [average[1] if average is not None else None for average in loaded])
        return MisplacedState(parameter, number, entry, shape, tuple(parameter.shape), len(wrong), len(known), order)
    return _renamed(old, state.groups, known)


def _average(entries: Any) -> tuple[str, tuple[int, ...]] | None:
    """The name and shape of the first of a parameter's averages that has the parameter's shape in a correct state; None
    if there is none.
    """
    return next(
        (
            (name, tuple(value.shape))
            for name, value in (entries.items() if isinstance(entries, dict) else ())
            if name in LIKE_PARAMETER and isinstance(value, torch.Tensor)
        ),
        None,
    )


def _order(old: list[dict[str, Any]], loaded: list[tuple[int, ...] | None]) -> tuple[int, ...]:
    """For each group of the state the group that has its shapes; empty if there is not exactly one for each."""
    shapes = [[tuple(parameter.shape) for parameter in group["params"]] for group in old]
    order, at = [], 0
    for group in shapes:
        given = loaded[at : at + len(group)]
        at += len(group)
        fits = [place for place, own in enumerate(shapes) if own == given]
        if len(fits) != 1:
            return ()
        order.append(fits[0])
    return tuple(order) if len(set(order)) == len(order) else ()


def _renamed(
    old: list[dict[str, Any]], new: list[dict[str, Any]], known: list[tuple[int, torch.Tensor, str, tuple[int, ...]]]
) -> MisplacedState | None:
    """The first parameter whose averages, of the right shape, have another parameter's name; None if there is none."""
    order: tuple[int, ...] = ()
    own, saved = _parameter_names(old), _parameter_names(new)
    if not _is_other_order(own, saved):
        texts = ([[group.get(key) for group in each] for each in (old, new)] for key in (old[0] if old else ()))
        named = next(((one, other) for one, other in texts if _is_other_order(one, other)), None)
        if named is None:
            return None
        order = tuple(named[0].index(name) for name in named[1])
        shapes = [[parameter.shape for parameter in group["params"]] for group in old]
        if any(shapes[place] != shapes[at] for place, at in enumerate(order)):
            return None  # the state fits as it comes, and would not fit in the order of the names
        own, saved = ([name for name, group in zip(each, old, strict=True) for _ in group["params"]] for each in named)
    wrong = [each for each in known if own[each[0]] != saved[each[0]]]
    if not wrong:
        return None
    number, parameter, entry, shape = wrong[0]
    names = saved[number], own[number]
    return MisplacedState(parameter, number, entry, shape, shape, len(wrong), len(known), order, names)


def _parameter_names(groups: list[dict[str, Any]]) -> list[Any]:
    return [name for group in groups for name in group.get("param_names") or ()]


def _is_other_order(own: list[Any], saved: list[Any]) -> bool:
    """Whether both are the same names, each once, in another order."""
    if own == saved or not all(isinstance(name, str) for name in (*own, *saved)):
        return False
    return len(set(own)) == len(own) and sorted(own) == sorted(saved)
