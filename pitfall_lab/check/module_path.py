"""``sys.path`` while a program runs: its own folder first, as for ``python FILE``, but only for the program's own
imports (:func:`as_for_python`).

What this package, torch and NumPy import while the program runs is searched for on the path as it was without the
program's folder: a ``json.py`` beside the program is imported by the program only. (Modules imported before are shared
with the program.)
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
    """Set ``sys.path`` as for ``python FILE`` in ``folder`` with ``pythonpath`` as ``PYTHONPATH``, until the ``with``
    block ends; then it is as before.

    If ``PYTHONSAFEPATH`` is set, the folder is not on the path.
    """
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
    """Import finder for imports that our own modules and libraries make while the program runs.

    ``theirs`` are the program's folders on ``sys.path``. A module that was imported before the program began does not
    find its imports there, so that the program's ``random.py`` is not taken for Python's. Modules found this way are
    treated like those imported before.
    """

    def __init__(self, theirs: set[str]) -> None:
        self._theirs = theirs
        self._known = {name.partition(".")[0] for name in sys.modules} - {"__main__"}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a top-level module outside the program's folders, if one of our modules imports it.

        None (Python then searches as usual) if the program imports it, for a submodule, and if no such module is found.
        """
        if path is not None or _importer() not in self._known:
            return None
        found = PathFinder.find_spec(name, [entry for entry in sys.path if entry not in self._theirs], target)
        if found is None or found.loader is None:
            return None
        self._known.add(name)
        return found


def _importer() -> str:
    """The top-level name of the module that imports something now, found by walking up the stack from
    :meth:`Ours.find_spec`.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - there is no other way to see who imports
    while frame.f_back is not None and _name(frame.f_globals) in ("importlib", "_frozen_importlib"):
        frame = frame.f_back
    return _name(frame.f_globals)


def _name(names: dict[str, object]) -> str:
    return str(names.get("__name__", "__main__")).partition(".")[0]
