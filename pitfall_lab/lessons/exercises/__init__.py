"""The exercises of all chapters, one file each: ``c05_copies_and_views.py`` holds those of chapter 5.

How to write one is said at :mod:`pitfall_lab.lessons.exercise`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from pitfall_lab.lessons.exercise import Exercise


@cache
def exercises() -> dict[str, Exercise]:
    """Return all exercises by key, in the order of the chapters.

    Raises ``ValueError`` if two exercises have one key.

    >>> exercises()["5.1"].kind
    'repair'
    """
    found: dict[str, Exercise] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        for exercise in importlib.import_module(f"{__name__}.{module.name}").EXERCISES:
            if exercise.key in found:
                raise ValueError(f"two exercises are called {exercise.key}")
            found[exercise.key] = exercise
    return found
