"""What a notebook's kernel gives a cell, for a process that has no kernel: IPython's syntax, ``get_ipython``,
``display``, ``input``. :func:`give` defines the last three, :func:`as_python` returns a cell without such syntax.

A cell that is right in the notebook is right in a class, with ``%time``, ``!ls`` or ``torch.cat?`` in it. IPython's own
transformer turns these into calls of ``get_ipython()``; here such a call does nothing, and the student reads that it
was skipped. In the notebook as well a magic sees the notebook's names and none of the exercise's, so what it leaves out
is nothing that the answer could have used.
"""

# ruff: noqa: PLC0415 - the process for cells imports IPython once, before it is closed in

from __future__ import annotations

import builtins
import re
from typing import Any

_SPECIAL = re.compile(
    r"\A[ \t\n]*[ \t]\S|^[ \t]*(?:[%!?,;/]|>>>|\.\.\.|In \[)|=[ \t]*[%!]|\?[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
"""Found in every text that IPython's transformer may change; a text without it stays as it is."""
MOST_SKIPPED = 5

_ASKING = {"pinfo": "?", "pinfo2": "??", "psearch": "?"}
"""What IPython makes of a question mark after a name."""

skipped: list[str] = []
"""The magics and shell commands that this process has skipped, as the cell writes them."""


def needed(source: str) -> bool:
    """Whether a cell may contain syntax of IPython (``%time``, ``!ls``), which is not Python."""
    return _SPECIAL.search(source) is not None


def prepare() -> None:
    """Import what :func:`as_python` needs, so that each fork finds it."""
    import IPython.core.inputtransformer2  # noqa: F401


def as_python(source: str) -> str:
    """The cell as Python: with the syntax of IPython turned into calls of ``get_ipython()``, as the notebook's kernel
    does it; unchanged where IPython itself cannot read it.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return str(TransformerManager().transform_cell(source))
    except Exception:  # of any kind: ``x = %`` before a line that is not there is an IndexError
        return source


class Shell:
    """What ``get_ipython()`` returns here: every call on it does nothing and is noted."""

    def run_line_magic(self, name: str, line: object = "", *_: object, **__: object) -> None:
        """What ``%name`` and ``thing?`` call: does nothing, and notes the magic as skipped, as the cell writes it
        (for ``thing?``, ``line`` is the name before the question mark).
        """
        _note(f"{line}{_ASKING[name]}" if name in _ASKING else f"%{name}")

    def run_cell_magic(self, name: str, *_: object, **__: object) -> None:
        """What ``%%name`` calls: does nothing, and notes the magic as skipped, with the lines below it."""
        _note(f"%%{name}")

    def system(self, command: str, *_: object, **__: object) -> None:
        """What ``!command`` calls: does nothing, and notes the command as skipped."""
        _note(f"!{command}")

    def getoutput(self, command: str, *_: object, **__: object) -> list[str]:
        """What ``lines = !command`` calls: returns nothing, and notes the command as skipped."""
        _note(f"!{command}")
        return []

    def __getattr__(self, name: str) -> Any:
        """Return a function that does nothing, for every other attribute of a kernel's shell."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _note(what: str) -> None:
    what = " ".join(str(what).split())[:40]
    if what not in skipped and len(skipped) < MOST_SKIPPED:
        skipped.append(what)


def _display(*things: Any, **_: Any) -> None:
    for thing in things:
        print(repr(thing))


def give() -> None:
    """Define in this process what a notebook's kernel defines for every cell:
    ``get_ipython``, ``display`` and ``input``.
    """
    shell = Shell()
    added: dict[str, Any] = {"get_ipython": lambda: shell, "display": _display, "input": lambda *_: ""}
    vars(builtins).update(added)
