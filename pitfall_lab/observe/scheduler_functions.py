"""Finds the variables that two equal functions of a ``LambdaLR`` share (:func:`shared_variables`)."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def shared_variables(scheduler: Any) -> tuple[str, ...]:
    """Return the sorted names of the variables that two functions of a ``LambdaLR`` read when they are called, if the
    functions are different objects that always return the same numbers; empty if there are no such functions, or for
    another scheduler.

    The functions have the same code, the same defaults and the same enclosing variables, like those that a loop creates
    with its variable. Names of attributes and built-ins that they use are included.
    """
    given = vars(scheduler).get("lr_lambdas")
    functions = [each for each in given if isinstance(each, FunctionType)] if isinstance(given, list) else []
    for number, one in enumerate(functions):
        for other in functions[number + 1 :]:
            if other is not one and _alike(one, other):
                return tuple(sorted({*one.__code__.co_freevars, *one.__code__.co_names}))
    return ()


def _alike(one: FunctionType, other: FunctionType) -> bool:
    around, there = one.__closure__ or (), other.__closure__ or ()
    same = len(around) == len(there) and all(a is b for a, b in zip(around, there, strict=True))
    return (
        one.__code__ is other.__code__
        and same
        and one.__globals__ is other.__globals__
        and one.__defaults__ is other.__defaults__
    )
