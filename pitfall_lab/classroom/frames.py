"""Which code may read stack frames: the libraries and the code that observes the cell, but not the cell.
:func:`keep_frames` installs this rule in the process.

Through a frame the cell could reach the code that observes it, and change its answers. So Python reports
(``sys.addaudithook``) all code that gets a frame, traces, profiles or lists all objects. Code may do so if it existed
before the cell, or is in a library's file and names the function that it calls. The cell may not, whatever file name it
was compiled under, nor may it through a function of a library that returns frames, or what they hold, or that calls its
argument. Nor may it have a second interpreter, where nothing is reported, or let the garbage collector keep what it
finds. Machine code reports nothing either, so none is loaded but that of packages which an exercise may use: greenlet
hands out frames, cffi all of Python. The cell's own attempts are recorded.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from pitfall_lab.classroom.fence import libraries


def _beside(package: str, *path: str) -> str:
    """The path of a file of a package, as text, whether the package has been imported or not;
    empty if it is not installed.
    """
    spec = importlib.util.find_spec(package)
    return str(Path(spec.origin or "").with_name(path[0]).joinpath(*path[1:])) if spec else ""


_EVENTS = frozenset(
    {
        "sys._getframe",
        "sys._current_frames",
        "sys._current_exceptions",
        "sys.settrace",
        "sys.setprofile",
        "sys.addaudithook",
    }
    | {"import", "cpython.PyInterpreterState_New"}
    | {
        "sys.monitoring.register_callback",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
        "object.__getattr__",
        "ctypes.dlsym",
    }
)
_ATTRIBUTES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
_SHUT = frozenset({"_xxsubinterpreters", "_interpreters", "_testcapi", "_testinternalcapi"})
"""Modules that a cell may not import.

The collector is there already: only a cell that has taken it out of the list imports it again.
"""
_HAND_ON = {
    inspect.__file__: {"currentframe", "stack", "trace", "getinnerframes", "getouterframes"}
    | {"getgeneratorlocals", "getcoroutinelocals", "getasyncgenlocals"},
    traceback.__file__: {"walk_stack", "walk_tb", "_walk_tb_with_full_positions"}
    | {"extract", "extended_frame_gen", "_extract_from_extended_frame_gen"},
    logging.__file__: {"<lambda>", "currentframe"},
    _beside("asyncio", "base_tasks.py"): {"_task_get_stack"},
    _beside("torch", "_jit_internal.py"): {"createResolutionCallbackFromFrame"},
    _beside("IPython", "utils", "frame.py"): {"extract_module_locals", "extract_vars"},
}
"""Library functions, by file, that return another function's frame, or its variables, to their caller:
the caller is the one checked.
"""
_DEBUGGERS = ("bdb.py", "pdb.py", "trace.py", "profile.py", "cProfile.py")
_WORDS = (
    frozenset(event.rpartition(".")[2] for event in _EVENTS)
    | _ATTRIBUTES
    | {"pythonapi"}
    | {name for s in _HAND_ON.values() for name in s}
)
_OF_MACHINE_CODE = frozenset(
    {"torch", "torchvision", "torchaudio", "functorch", "triton", "numpy", "matplotlib", "contourpy", "kiwisolver"}
    | {
        "pandas",
        "pyarrow",
        "bottleneck",
        "numexpr",
        "scipy",
        "sklearn",
        "skimage",
        "PIL",
        "markupsafe",
        "gmpy2",
        "yaml",
    }
)
"""Packages whose compiled modules may be loaded, besides Python's own: torch, NumPy, and what draws and tables."""


def _folders(*names: str) -> tuple[str, ...]:
    """The folders with these ``names`` in ``sysconfig``, each with a separator at its end, as given and with links
    resolved.
    """
    paths = {sysconfig.get_path(name) for name in names}
    return tuple(f"{folder}{os.sep}" for path in paths for folder in {path, os.path.realpath(path)})


_PACKAGES, _PYTHONS = _folders("purelib", "platlib"), _folders("stdlib", "platstdlib")
_LIBRARIES = tuple(f"{folder}{os.sep}" for path in libraries() for folder in (path, os.path.realpath(path)))

Known = dict[int, CodeType]


def known() -> Known:
    """The code objects, by ``id``, of all existing functions that may reach stack frames.

    These are functions, and functions defined within them, that use one of the names by which frames are reached, or
    that are in a library file with functions that return frames.
    """
    found: Known = {}
    for function in gc.get_objects():
        if type(function) is FunctionType:
            _collect(function.__code__, found)
    return found


def _collect(code: CodeType, found: Known) -> None:
    if not _WORDS.isdisjoint(code.co_names) or code.co_filename in _HAND_ON:
        found[id(code)] = code
    for inner in code.co_consts:
        if type(inner) is CodeType:
            _collect(inner, found)


def keep_frames(trusted: Known, reached: list[str]) -> None:
    """Install an audit hook, for good, that raises ``PermissionError`` where code of the cell reaches for stack frames.

    The same holds where it traces or profiles, lists objects, or imports a module that it may not have, and
    ``gc.set_debug`` raises from now on. Allowed is code in ``trusted`` (from :func:`known`), and code that names the
    function and really is in the library file that it claims. The name of a refused event is appended to ``reached``,
    unless the code has a library's file name.
    """
    frame_of, compiles, reads, mine = sys._getframe, compile, Path.read_bytes, [False]  # noqa: SLF001 - there is no other way to see who calls

    def hook(event: str, details: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        if mine[0] and event == "sys._getframe":  # the call below, in this function
            mine[0] = False
            return
        if (word := _word(event, details)) is None:
            return
        mine[0] = True
        caller: FrameType | None = frame_of(1)
        handed = False
        while caller is not None and caller.f_code.co_name in _HAND_ON.get(caller.f_code.co_filename, ()):
            caller, handed = caller.f_back, True
        if caller is None:
            return
        code = caller.f_code
        names = set(code.co_names)
        meant = not names.isdisjoint(_WORDS) or code.co_filename in _HAND_ON if handed else word in names
        if (
            meant
            and not code.co_filename.endswith(_DEBUGGERS)
            and (id(code) in trusted or _is_in_its_file(code, compiles, reads))
        ):
            return
        if not code.co_filename.startswith(_LIBRARIES):
            reached.append(f"{event} ({word})" if event == "object.__getattr__" else event)
        raise PermissionError(f"{word} is not available to an exercise.")

    def keeps(_: int) -> None:
        reached.append("gc.set_debug")
        raise PermissionError("set_debug is not available to an exercise.")

    vars(gc)["set_debug"] = keeps
    sys.addaudithook(hook)


def _refuse_machine_code(file: Any) -> None:
    """Raise ``PermissionError`` for a compiled module that is neither Python's own nor of a package that exercises may
    use.

    ``file`` is the module's path; None, for a module that is not compiled, is allowed. The path may be of a class that
    the cell defined, so it is read with ``str``'s own methods.
    """
    if file is None:
        return
    path = str.__str__(file) if issubclass(type(file), str) else ""
    inside = next((path.removeprefix(folder) for folder in _PACKAGES if path.startswith(folder)), None)
    package = "" if inside is None else inside.partition(os.sep)[0].partition(".")[0]
    own = inside is None and path.startswith(_PYTHONS)
    if "/../" in path or not (own or package in _OF_MACHINE_CODE):
        raise PermissionError("this module is not available to an exercise.")


def _word(event: str, details: tuple[Any, ...]) -> str | None:
    """The name of what the audited event reaches for, as a program would write it; None if the event is harmless.

    Raises ``PermissionError`` for the import of a compiled module that is not allowed (:func:`_refuse_machine_code`).
    """
    if event == "object.__getattr__":
        return str(details[1]) if details[1] in _ATTRIBUTES else None
    if event == "import":
        _refuse_machine_code(details[1])
        name = str(details[0])
        return name if name == "gc" or name.rpartition(".")[2] in _SHUT else None
    if event == "ctypes.dlsym":
        return "pythonapi" if str(details[1]).lstrip("_").startswith("Py") else None
    return event.rpartition(".")[2]


def _is_in_its_file(code: CodeType, compiles: Any, reads: Any) -> bool:
    """Whether this code really is in a library that was imported later: any code can be compiled
    under a library's file name.
    """
    if not code.co_filename.startswith(_LIBRARIES):
        return False
    try:
        waiting = [compiles(reads(Path(code.co_filename)), code.co_filename, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return False
    while waiting:
        each = waiting.pop()
        if each == code:
            return True
        waiting += [inner for inner in each.co_consts if type(inner) is CodeType]
    return False
