"""The module path of a program that is run: its own folder first, as for ``python FILE``, for the program and for nothing of ours.

What this package, torch and NumPy import while the program runs is looked for where it was before the program's folder was on the
path: a ``json.py`` beside the program is the program's to import, not theirs. (What they have imported already, the program gets as it is.)
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from pitfall_lab.processes import entries, environment


@contextlib.contextmanager
def as_for_python(folder: str, pythonpath: str) -> Iterator[None]:
    """Make the path what it is for ``python FILE`` in ``folder`` with this ``PYTHONPATH``, while the program runs."""
    given = entries(pythonpath)
    safe = set(entries(environment({"PYTHONPATH": pythonpath}).get("PYTHONPATH", "")))
    own = [] if os.environ.get("PYTHONSAFEPATH") else [folder]
    kept, ours = sys.path[:], Ours({"", ".", folder, *given} - safe)
    sys.path[:] = dict.fromkeys([*own, *given, *kept])
    sys.meta_path.insert(sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0, ours)
    try:
        yield
    finally:
        sys.path[:] = kept
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(ours)


class Ours(MetaPathFinder):
    """Looks outside ``theirs``, the program's folders, for what is imported by a module that was there before the program began.

    A module that is found so is one of those from then on.
    """

    def __init__(self, theirs: set[str]) -> None:
        self._theirs = theirs
        self._known = {name.partition(".")[0] for name in sys.modules} - {"__main__"}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module of this name outside the program's folders, for one of ours that imports it; else ``None``: as always."""
        if path is not None or _importer() not in self._known:
            return None
        found = PathFinder.find_spec(name, [entry for entry in sys.path if entry not in self._theirs], target)
        if found is None or found.loader is None:
            return None
        self._known.add(name)
        return found


def _importer() -> str:
    """The top-level name of the module that imports, seen from :meth:`Ours.find_spec`."""
    frame = sys._getframe(2)  # noqa: SLF001 - there is no other way to see who imports
    while frame.f_back is not None and _name(frame.f_globals) in ("importlib", "_frozen_importlib"):
        frame = frame.f_back
    return _name(frame.f_globals)


def _name(names: dict[str, object]) -> str:
    return str(names.get("__name__", "__main__")).partition(".")[0]
