"""How this package starts other programs (:func:`start`, :func:`run`, :func:`pool`): here and nowhere else, so that no
file beside the user runs in a module's place.

``python -c`` and ``python -m`` look for modules in the current folder first. A process of ours that was started so
would run a ``torch.py`` from wherever the user is, with the user's rights. So each Python is started with ``-P``, which
leaves that folder out, and without the entries of ``PYTHONPATH`` that mean it (empty and relative ones). It runs this
very file, which loads this very package from where it is: nothing is put on the path for that.
"""

# ruff: noqa: PLC0415 - a command that starts no pool does not import multiprocessing

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT, CompletedProcess, Popen, SubprocessError, TimeoutExpired
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

__all__ = ["PIPE", "STDOUT", "CompletedProcess", "Popen", "SubprocessError", "TimeoutExpired"]
__all__ += ["code", "entries", "environment", "forget_current_folder", "installed", "ours", "pool", "run", "start"]

_PACKAGE = Path(__file__).absolute().parent


def ours(module: str, *words: str) -> list[str]:
    """The command line of a Python that runs ``main()`` of one of this package's modules (``pitfall_lab.check``), with
    the arguments ``words``.
    """
    return [sys.executable, "-P", str(_PACKAGE / "processes.py"), module, *words]


def code(text: str, *words: str) -> list[str]:
    """The command line of a Python that runs the source ``text``, with the arguments ``words``."""
    return [sys.executable, "-P", "-c", text, *words]


def installed(name: str) -> str | None:
    """The full path of an installed program; None if there is none, or only one in the current folder."""
    found = shutil.which(name)
    return found if found and Path(found).is_absolute() else None


def start(command: Sequence[str], *, variables: Mapping[str, str] | None = None, **options: Any) -> Popen[str]:
    """Start a program whose standard files are text (UTF-8) and return it while it runs; ``variables`` are its whole
    environment (default: this process's), in either case without the current folder in ``PYTHONPATH``. ``options`` are
    passed on to ``Popen``.
    """
    return subprocess.Popen(command, text=True, encoding="utf-8", env=environment(variables), **options)


def run(command: Sequence[str], *, variables: Mapping[str, str] | None = None, **options: Any) -> CompletedProcess[str]:
    """Run a program to its end, with the environment that :func:`start` gives it; ``options`` are passed on to
    ``subprocess.run``. An exit status other than 0 raises nothing unless ``check=True`` is given.
    """
    more = {"text": True, "encoding": "utf-8", "check": False, **options}
    return subprocess.run(command, env=environment(variables), **more)  # noqa: PLW1510 - it is in ``more``


@contextlib.contextmanager
def pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A context that gives an executor of ``jobs`` processes, which run functions of this package; at its end, calls
    that have not begun are cancelled.

    The processes take over this one's path, and its environment as it is while they start.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    kept = dict(os.environ)
    _set_environment(
        {**environment(), "PYTHONSAFEPATH": "1"}
    )  # multiprocessing has no other way to start Python with -P
    made = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield made
    finally:
        made.shutdown(cancel_futures=True)
        _set_environment(kept)


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """``variables`` (default: this process's) without the entries of ``PYTHONPATH`` that mean the current folder."""
    made = dict(os.environ if variables is None else variables)
    given = made.pop("PYTHONPATH", "")
    if kept := [entry for entry in given.split(os.pathsep) if Path(entry).is_absolute()]:
        made["PYTHONPATH"] = os.pathsep.join(kept)
    return made


def entries(pythonpath: str) -> list[str]:
    """The absolute paths that Python puts on its path for the text of a ``PYTHONPATH``, where an empty entry is the
    current folder; an empty list for an empty text.
    """
    return [os.path.abspath(entry) for entry in pythonpath.split(os.pathsep)] if pythonpath else []  # noqa: PTH100 - it resolves ".."


def forget_current_folder() -> None:
    """Take the entries that ``PYTHONPATH`` has for the current folder off this process's path.

    Modules that Python itself imported from there before our first line ran are not affected. This package stays
    importable, from where it was loaded: processes that take over the path look for it there.
    """
    meant = set(entries(os.environ.get("PYTHONPATH", ""))) - set(entries(environment().get("PYTHONPATH", "")))
    sys.path[:] = [entry for entry in sys.path if Path(entry).is_absolute() and entry not in meant]
    home = str(_PACKAGE.parent)
    if home not in sys.path:
        sys.path.append(home)


def _main() -> None:
    """In a Python that :func:`ours` has started: load the package that this file belongs to, and run a module of it."""
    spec = importlib.util.spec_from_file_location("pitfall_lab", _PACKAGE / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["pitfall_lab"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    importlib.import_module(sys.argv.pop(1)).main()


if __name__ == "__main__":
    _main()
