"""What functions of Python's, torch's and tqdm's refuse to a cell: attributes and copies under a name that
the cell has worked out. :func:`close` puts this in their place, once, before any cell runs.

The words of a cell are read for names of Python's inside (:mod:`pitfall_lab.classroom.unneeded`), and a text of which
the letters are put together while it runs is not among them. A few functions take such a text for the name of an
attribute, or for a part of a program: an enumeration that a call makes, the field of a dataclass, the memo of
``copy.deepcopy``, the state of a scheduler, a file that ``torch.load`` reads, the template of a progress bar. What
their documentation shows works as before; a name such as ``__array_interface__``, by which NumPy would take numbers of
the cell's for a place in memory, is refused there with PermissionError.
"""

# ruff: noqa: PLC0415 - imported in the process from which runs are forked, where torch and tqdm are needed anyway

from __future__ import annotations

import copy
import ctypes
import dataclasses
import enum
import functools
import gc
import importlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pitfall_lab.classroom import kept_indices
from pitfall_lab.classroom.unneeded import reaches_inside

_CALLABLES = ("lr_lambdas", "_scale_fn_custom")
"""Keys of a scheduler's state under which there are attributes of other objects, one or a list of them."""
_HARMLESS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__hash__", "__slots__"}) - {"__annotations__"}
"""What ``functools.update_wrapper`` sets, and what a dataclass may declare: nothing is reached by that."""
_MEMOS = 4
"""How many memos that a cell has given to ``deepcopy`` are remembered, with what the copying has put in."""


def close() -> None:
    """Have some functions of Python, torch and tqdm refuse names of Python's inside, such as ``__globals__``, with a
    PermissionError, in this process and its forks: those for enumerations, dataclass fields, ``deepcopy``, the states
    of schedulers, ``torch.load``, progress bars, and all of torch's that set an attribute under a name that they are
    given. No class with ``__array_interface__`` or the like can be defined, and the backward of max pools
    and embeddings checks its saved indices.
    """
    kept_indices.check()
    _close_attributes()
    _close_classes()
    _close_enumerations()
    _close_fields()
    _close_copies()
    _close_states()
    _close_loads()
    _close_bars()


def _is_pythons(name: object) -> bool:
    """Whether this is a name of Python's own inside, such as ``__globals__``; the text may be of any class."""
    if not issubclass(type(name), str):
        return False
    text = str.__str__(name)
    return text.startswith("__") and text.endswith("__") and text not in _HARMLESS


def _refused(name: object, what: str) -> PermissionError:
    return PermissionError(f"{name!r:.40} is not available to an exercise as {what}.")


def _replace(owner: Any, name: str, put: Any) -> None:
    """Give ``owner`` the function ``put`` in the place of one of its own, which is called as that one was."""
    was = getattr(owner, name)
    for each in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(put, each, getattr(was, each))
    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(put) if is_static else put)


def _replace_everywhere(owner: types.ModuleType, name: str, put: Any) -> None:
    """Replace a function as :func:`_replace` does, also in every module that has imported it under the same name."""
    was = vars(owner)[name]
    _replace(owner, name, put)
    for module in [*sys.modules.values()]:
        if isinstance(module, types.ModuleType) and vars(module).get(name) is was:
            vars(module)[name] = put


def _without_subclasses(kind: type) -> None:
    """Refuse classes that are derived from this one: they could have a ``name`` of their own."""

    def refuse(_: Any, /, **__: object) -> None:
        raise PermissionError(f"a class derived from {kind.__name__} is not available to an exercise.")

    kind.__init_subclass__ = classmethod(refuse)  # type: ignore[assignment, method-assign]


# --- attributes and classes -------------------------------------------------------------------------------------------


def _close_attributes() -> None:
    """Have ``setattr`` in torch's Python modules, and ``nn.Module.__setattr__``, refuse names such as ``__globals__``.

    Many of torch's classes set an attribute under a name that is given to them as a string.
    """
    torch = sys.modules["torch"]
    put = setattr

    def set_attribute(owner: Any, name: Any, value: Any, /) -> None:
        if _is_pythons(name) and not _may_have(owner, name):
            raise _refused(name, "the name of an attribute")
        put(owner, _letters(name), value)

    for name, module in [*sys.modules.items()]:
        if name.startswith("torch.") and isinstance(module, types.ModuleType) and "setattr" not in vars(module):
            vars(module)["setattr"] = set_attribute
    keep = torch.nn.Module.__setattr__

    def __setattr__(self: Any, name: Any, value: Any) -> None:  # noqa: N807 - in the place of torch's
        if _is_pythons(name) and name != "__class__":  # a lazy module and a parametrized one become of another
            raise _refused(name, "the name of an attribute")
        keep(self, name, value)

    _replace(torch.nn.Module, "__setattr__", __setattr__)


def _may_have(owner: Any, name: Any) -> bool:
    """Whether ``setattr`` of torch may set the double-underscore attribute ``name``.

    On a class, any may be set but those in ``_MEMORY``; on a module, only ``__class__``; on other objects, none.
    """
    if issubclass(type(owner), type):
        return str.__str__(name) not in _MEMORY
    return str.__str__(name) == "__class__" and issubclass(type(owner), sys.modules["torch"].nn.Module)


_MEMORY = frozenset({"__array_interface__", "__array_struct__", "__cuda_array_interface__", "__buffer__", "__dlpack__"})
"""What NumPy and torch ask an object for in order to use its memory, wherever that is."""


def _close_classes() -> None:
    """Have ``object.__init_subclass__`` refuse a class that says where in memory an array is (``__array_interface__``).

    Reading the cell's source does not find it: ``type(kind)(name, (), names)`` makes such a class without that word. A
    module that is being imported may define one.
    """
    held = gc.get_referents(vars(object))[0]
    was = held["__init_subclass__"]

    def __init_subclass__(cls: Any, /, **named: Any) -> None:  # noqa: N807 - in the place of Python's
        was.__get__(None, cls)(**named)
        names = type.__dict__["__dict__"].__get__(cls)
        found = next((name for name in _MEMORY if name in names), "")
        if found and not _is_imported(names.get("__module__")):
            raise _refused(found, "the name of an attribute")

    held["__init_subclass__"] = classmethod(__init_subclass__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(object))


def _is_imported(name: Any) -> bool:
    """Whether a module of this name is being imported now."""
    module = sys.modules.get(name) if type(name) is str else None
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


# --- enumerations -----------------------------------------------------------------------------------------------------


def _close_enumerations() -> None:
    """Have ``Enum("Box", {name: value})`` refuse members with names such as ``__globals__``, and enumerations
    of dicts.
    """
    kind: Any = enum.EnumType
    make = kind._create_

    def create(cls: Any, class_name: Any, names: Any, *, module: Any = None, **more: Any) -> Any:
        base: Any = more.get("type")
        if issubclass(type(base), type) and issubclass(base, dict):  # it would be a layer, too: one that NumPy reads
            raise PermissionError("an enumeration of dicts is not available to an exercise.")
        if module is None:
            module = sys._getframe(2).f_globals.get("__name__")  # noqa: SLF001 - so it asks itself, one call nearer
        return make(cls, class_name, _members(names), module=module, **more)

    _replace(kind, "_create_", create)
    _keep_names(enum.property)


def _members(names: Any) -> Any:
    """The names or pairs of an enumeration as a list, dict or None, read once, since the cell's object may change
    later.

    Raises ``PermissionError`` for a name such as ``__globals__``.
    """
    if names is None:
        return names
    found: Any
    if issubclass(type(names), str):
        found = str.__str__(names).replace(",", " ").split()
        words = found
    elif issubclass(type(names), Mapping):
        found = {_letters(name): names[name] for name in names}
        words = [*found]
    else:
        found = [_letters(each) if issubclass(type(each), str) else (*each,) for each in names]
        found = [each if type(each) is str else (_letters(each[0]), *each[1:]) for each in found]
        words = [each if type(each) is str else each[0] for each in found]
    for name in words:
        if _is_pythons(name):
            raise _refused(name, "the name of a member")
    return found


def _letters(name: Any) -> Any:
    return str.__str__(name) if issubclass(type(name), str) else name


def _keep_names(kind: Any) -> None:
    """Have a property of an enumeration keep its ``name``, and refuse names such as ``__globals__`` and derived
    classes.
    """

    def read(self: Any) -> Any:
        if "name" not in vars(self):
            raise AttributeError("name")
        return vars(self)["name"]

    def write(self: Any, name: Any) -> None:
        if _is_pythons(name):
            raise _refused(name, "the name of an attribute")
        vars(self)["name"] = _letters(name)

    kind.name = property(read, write)
    _without_subclasses(kind)


# --- dataclasses ------------------------------------------------------------------------------------------------------


def _close_fields() -> None:
    """Have a dataclass field refuse a name that is no ordinary identifier, and a change of its name.

    A dataclass writes the names of its fields into the text of its methods, and sets attributes by them.
    """
    kind: Any = dataclasses.Field
    place = kind.name  # the slot

    def read(self: Any) -> Any:
        return place.__get__(self)

    def write(self: Any, name: Any) -> None:
        had = getattr(self, "name", None)
        if name is not None and not (type(name) is str and name.isidentifier() and not _is_pythons(name)):
            raise _refused(name, "the name of a field")
        if had is not None and had != name:
            raise PermissionError(f"the name of the field {had} cannot be changed in an exercise.")
        place.__set__(self, name)

    kind.name = property(read, write)
    _without_subclasses(kind)


# --- copies -----------------------------------------------------------------------------------------------------------


def _close_copies() -> None:
    """Have ``copy.deepcopy`` refuse a memo that replaces objects by arbitrary others, and attributes such as
    ``__globals__``.

    A memo gives, by an object's ``id``, what is put in its place in the copy. Allowed entries are the object itself,
    tensors, modules, and what an earlier copy with the same memo put in.
    """
    torch = sys.modules["torch"]
    deepcopy, rebuild = copy.deepcopy, copy._reconstruct  # type: ignore[attr-defined]  # noqa: SLF001 - where copied attributes are set
    kinds = (torch.Tensor, torch.nn.Module)
    running: list[Any] = []
    filled: list[tuple[Any, dict[Any, int]]] = []

    def copied(x: Any, memo: Any = None, *more: Any) -> Any:
        is_cells = memo is not None and not any(each is memo for each in running)
        if is_cells and not _is_sound(memo, kinds, filled):
            raise PermissionError("a memo with other objects is not available to an exercise.")
        memo = {} if memo is None else memo
        running.append(memo)
        try:
            return deepcopy(x, memo, *more)
        finally:
            running.pop()
            if is_cells:
                filled[:] = [*filled[1 - _MEMOS :], (memo, {key: id(value) for key, value in memo.items()})]

    def rebuilt(x: Any, memo: Any, *more: Any, **named: Any) -> Any:
        made = None
        try:
            made = rebuild(x, memo, *more, **named)
        finally:  # where it raises, the memo has what it made
            _strip(dict.get(memo, id(x)) if type(memo) is dict else made, _held(x))
        return made

    _replace(copy, "_reconstruct", rebuilt)
    _replace_everywhere(copy, "deepcopy", copied)


def _is_sound(memo: Any, kinds: tuple[type, ...], filled: Iterable[tuple[Any, dict[Any, int]]]) -> bool:
    """Whether each entry of a memo is under its own id, is of one of these ``kinds``, or was made by copying."""
    if type(memo) is not dict:
        return False
    known = next((entries for each, entries in filled if each is memo), {})
    return all(
        key == id(value) or issubclass(type(value), kinds) or (type(key) is int and known.get(key) == id(value))
        for key, value in memo.items()
    )


def _held(value: Any) -> dict[Any, Any]:
    """The attributes in an object's own ``__dict__``; empty if it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _strip(made: Any, had: Mapping[Any, Any]) -> None:
    """Remove from the new object ``made`` all attributes such as ``__globals__`` that are not in ``had``.

    ``had`` are the attributes of the object that was copied. Raises ``PermissionError`` if any was removed.
    """
    held = _held(made)
    found = [key for key in held if _is_pythons(key) and key not in had]
    for key in found:
        del held[key]
    if found:
        raise _refused(found[0], "the name of an attribute")


# --- states -----------------------------------------------------------------------------------------------------------


def _close_states() -> None:
    """Have torch's ``load_state_dict`` methods that write into ``__dict__``, as schedulers' do, refuse ``__globals__``
    etc.
    """
    importlib.import_module("torch.optim.swa_utils")
    for name, module in [*sys.modules.items()]:
        for kind in [*vars(module).values()] if name.startswith("torch.") else ():
            if isinstance(kind, type) and kind.__module__ == name:
                load = vars(kind).get("load_state_dict")
                if isinstance(load, types.FunctionType) and "__dict__" in load.__code__.co_names:
                    _replace(kind, "load_state_dict", _loading(load))


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    def load_state_dict(self: Any, state_dict: Any) -> Any:
        """Load a copy of the state as a plain dict: code of a dict that the cell made could run between two
        attributes.
        """
        state = _attributes(state_dict)
        for key in _CALLABLES:
            inner = state.get(key)
            if inner is not None:
                is_list = issubclass(type(inner), (list, tuple))
                read = [each if each is None else _attributes(each) for each in (inner if is_list else [inner])]
                state[key] = read if is_list else read[0]
        return load(self, state)

    return load_state_dict


def _attributes(state: Any) -> dict[Any, Any]:
    """The state as a dict of names and values; raises PermissionError if one of them is of Python's inside."""
    found = {_letters(key): value for key, value in dict(state).items()}
    for name in found:
        if _is_pythons(name):
            raise _refused(name, "the name of an attribute")
    return found


# --- files ------------------------------------------------------------------------------------------------------------


def _close_loads() -> None:
    """Have ``torch.load`` refuse a result in which an object has an attribute such as ``__globals__``."""
    torch = sys.modules["torch"]
    read = torch.serialization.load

    def load(*values: Any, **named: Any) -> Any:
        found = read(*values, **named)
        waiting, seen = [found], {0}
        while waiting:
            each = waiting.pop()
            if id(each) not in seen:
                seen.add(id(each))
                _strip(each, {})
                waiting += _held(each).values()
                waiting += dict.values(each) if issubclass(type(each), dict) else ()
                waiting += each if type(each) in (list, tuple, set) else ()
        return found

    _replace_everywhere(torch.serialization, "load", load)


# --- progress bars ----------------------------------------------------------------------------------------------------


def _close_bars() -> None:
    """Have tqdm refuse a template (``bar_format``) that reads attributes of Python's inside; nothing if tqdm is
    missing.
    """
    try:
        from tqdm.std import tqdm as kind
    except ImportError:
        return
    draw = kind.format_meter
    place = draw.__code__.co_varnames.index("bar_format")

    def format_meter(*values: Any, **named: Any) -> Any:
        template = named.get("bar_format", values[place] if len(values) > place else None)
        if issubclass(type(template), str) and reaches_inside(str.__str__(template)):
            raise _refused(template, "the template of a progress bar")
        return draw(*values, **named)

    _replace(kind, "format_meter", format_meter)
