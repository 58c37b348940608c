"""Finds lists and dicts that a forward hook has filled, after the model with the hook was created again: the new model
has no such hook, and the contents are still those from the earlier model (:meth:`LeftHooks.compare`).

Stored are a hash of each hook's code, the names of the lists and dicts that it uses, and the ids of their contents.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, is_shown
from pitfall_lab.observe.live.held_functions import code_mark
from pitfall_lab.observe.live.object_kinds import Kinds
from pitfall_lab.observe.live.repeated_hooks import hook_tables

_FORWARD = ("_forward_hooks", "_forward_pre_hooks")
MARKED = 32
"""Of how many entries of a list or dict the ids are stored at most."""


class LeftHook(NamedTuple):
    """A list or dict that a forward hook uses, after the model with the hook was created again without the hook.

    ``filled`` is the name of the list or dict, ``function`` the hook's name, ``model`` the model's name, ``place`` the
    expression for the module that had the hook. The hook was first seen after cell ``since``; cell ``again`` created
    the model again. Cells are given by their numbers.
    """

    filled: str
    function: str
    model: str
    place: str
    since: int
    again: int


class _SeenHook(NamedTuple):
    """A hook on a module of a model: the id of the model, the hash of the hook's code, and by name the ids of the lists
    and dicts that it uses, with those of their contents.
    """

    model: int
    code: int
    marks: dict[str, tuple[int, ...]]
    said: LeftHook


class LeftHooks:
    """Remembers the forward hooks of models and, by id, the contents of the lists and dicts that these hooks use."""

    def __init__(self) -> None:
        self._hooks: dict[tuple[str, int], _SeenHook] = {}
        self._left: dict[tuple[str, int], _SeenHook] = {}

    def compare(self, found: Found, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[LeftHook]:
        """The lists and dicts used by forward hooks of the notebook whose model has since been created again without
        the hook, if they are not empty and have not changed since the hook was last seen.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``now`` is the number of the last
        cell, ``namespace`` has the notebook's names and their objects, ``found`` is what these lead to.
        """
        if not (self._hooks or self._left or any(_of_forward(found, budget))):
            return []
        hooks: dict[tuple[str, int], _SeenHook] = {}
        for place, root, function in _of_forward(found, budget):
            names = _filled(function, namespace)
            if names:
                key, code = (root, code_mark(function)), code_mark(function)
                was = self._hooks.get(key)
                model = id(namespace.get(root))
                since = was.said.since if was is not None and was.model == model else now
                marks = {name: _mark(namespace.get(name)) for name in names}
                hooks[key] = _SeenHook(model, code, marks, LeftHook("", function.__name__, root, place, since, now))
        if budget.spent:
            return []
        live = {each.code for each in hooks.values()}
        kinds = Kinds()
        for key, was in self._hooks.items():
            value = namespace.get(key[0])
            if was.code not in live and kinds.of(value) == "module" and id(value) != was.model:
                self._left[key] = was._replace(model=id(value), said=was.said._replace(again=now))
        self._hooks, said = hooks, list[LeftHook]()
        for key, left in list(self._left.items()):
            same = [name for name, mark in left.marks.items() if mark and _mark(namespace.get(name)) == mark]
            if not same or left.code in live or kinds.of(namespace.get(key[0])) != "module":
                del self._left[key]
                continue
            said += [left.said._replace(filled=name) for name in same]
        return said


def _of_forward(found: Found, budget: Budget) -> Iterator[tuple[str, str, types.FunctionType]]:
    """For each function of the notebook that is a forward hook: the expression for the module with the hook, the
    model's name, the function.
    """
    for thing, table, hooks in hook_tables(found, budget, modules_only=True):
        for hook in hooks if table in _FORWARD else ():
            function = hook.function.func if type(hook.function) is functools.partial else hook.function
            if type(function) is types.FunctionType and function.__globals__.get("__name__") == "__main__":
                yield thing.text, thing.path[0], function


def _filled(function: types.FunctionType, namespace: Mapping[str, Any]) -> list[str]:
    """The names of the lists and dicts that a function uses, by a global name or as variables of an enclosing
    function.
    """
    names = [name for name in function.__code__.co_names if is_shown(name) and _is_group(namespace.get(name))]
    around = set[int]()
    for each in function.__closure__ or ():
        try:
            around.add(id(each.cell_contents))
        except ValueError:  # not bound yet
            continue
    some = around and [name for name, each in list(namespace.items()) if id(each) in around and _is_group(each)]
    return list(dict.fromkeys([*names, *(name for name in some or () if type(name) is str and is_shown(name))]))


def _is_group(value: Any) -> bool:
    return type(value) is dict or type(value) is OrderedDict or type(value) is list


def _mark(value: Any) -> tuple[int, ...]:
    """The id and length of a list or dict and the ids of its first entries; empty if it has no entries or is
    neither.
    """
    if not _is_group(value) or not len(value):
        return ()
    inside = value if type(value) is list else value.values()
    return (id(value), len(value), *(id(each) for each in islice(list(inside), MARKED)))
