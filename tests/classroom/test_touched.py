"""Which namespaces are read again after a piece of a cell: those whose dictionary is not in memory as it was."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pitfall_lab.classroom import room


class Owner:
    one = staticmethod(len)
    two = staticmethod(max)


def module() -> types.ModuleType:
    made = types.ModuleType("made")
    vars(made).update({f"name{n}": object() for n in range(40)})
    return made


def looked(owner: Any, *, closed: bool = False) -> Callable[[], list[room.Compared]]:
    """What looks at all names of ``owner``; none may come if it is ``closed``."""
    space = vars(owner)
    names = [*space]
    whole = ("owner", space, names, [space[name] for name in names], frozenset(space) if closed else None)
    assert room._entries(whole, np.asarray(room._Words())) is not None
    return room._touched(room._at_once([whole]))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "another value": lambda made: setattr(made, "name7", len),
    "a value that is equal": lambda made: setattr(made, "name8", float("1.5")),
    "gone": lambda made: delattr(made, "name9"),
    "gone and there again": lambda made: (vars(made).pop("name3"), setattr(made, "name3", max)),
    "emptied": lambda made: vars(made).clear(),
    "many more": lambda made: vars(made).update({f"more{n}": n for n in range(500)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_namespace_that_was_changed_is_read_again(change: str) -> None:
    made = module()
    made.name8 = float("1.5")
    touched = looked(made)
    assert not touched()
    CHANGES[change](made)
    assert [space for (space, *_), *_ in touched()] == ["owner"]


def test_a_name_that_comes_matters_where_none_may() -> None:
    made = module()
    open_one, closed = looked(made), looked(made, closed=True)
    made.another = 1
    assert not open_one()
    assert closed()


def test_what_is_read_and_called_meanwhile_changes_nothing() -> None:
    made, touched = module(), looked(Owner)
    of_module = looked(made)
    assert Owner.one("abc") + Owner.two(1, 2) == 5
    held = [getattr(made, name) for name in vars(made)]
    assert not touched()
    assert not of_module()
    assert held


def test_the_attribute_of_a_class_is_watched() -> None:
    touched, meant = looked(Owner), Owner.two
    Owner.two = staticmethod(min)
    try:
        assert touched()
    finally:
        Owner.two = staticmethod(meant)


def test_a_dictionary_whose_values_are_elsewhere_is_read_each_time() -> None:
    class Held:
        def __init__(self) -> None:
            self.value = len

    space = vars(Held())
    whole = ("held", space, ["value"], [len], None)
    touched = room._touched(room._at_once([whole]))
    if room._entries(whole, np.asarray(room._Words())) is None:
        assert touched()
    else:
        assert not touched()
        space["value"] = max
        assert touched()
