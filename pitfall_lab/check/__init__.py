"""``pitfall-lab check``: run programs, report the pitfalls in them, and offer only fixes that were
applied and re-run successfully.

A program never runs in this process. It runs, as often as there are repairs to try, in forks of one worker process
(:mod:`.worker`, started by :mod:`.workshop`), which returns a trace or a witness of values as JSON. :mod:`.scripts`
reads files and notebooks, :mod:`.settings` and :mod:`.ignores` say what is to be reported, :mod:`.examine` checks
one file, :mod:`.trials` tries the fixes, :mod:`.terminal`, :mod:`.sarif` and :mod:`.github` print, and
:mod:`.command` is the command line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pitfall_lab.check.examine import Checked, check_file, document, examine
from pitfall_lab.check.observed import unobserved
from pitfall_lab.check.scripts import parsed
from pitfall_lab.check.trials import Trial, keeps_what_was_right, recorded, tried
from pitfall_lab.check.workshop import TIMEOUT, Subject, Unchecked, Workshop
from pitfall_lab.rules import Finding
from pitfall_lab.trace import Note

__all__ = [
    "TIMEOUT",
    "Checked",
    "Subject",
    "Trial",
    "Unchecked",
    "Workshop",
    "check",
    "check_file",
    "document",
    "examine",
    "judged",
    "keeps_what_was_right",
    "prelude",
    "recorded",
    "tried",
]


class _CallableModule(ModuleType):
    """Makes ``pitfall_lab.check`` both this package and a function, whichever was imported first."""

    def __call__(self, source: str, name: str = "program.py") -> list[Finding]:
        return check(source, name)


sys.modules[__name__].__class__ = _CallableModule


def check(source: str, name: str = "program.py", *, timeout: float = TIMEOUT) -> list[Finding]:
    """The findings in the program text ``source``, each with the fixes that removed it when they were applied and
    re-run.

    ``name`` is what messages call the program; ``timeout`` is in seconds for each run. The program runs in a process of
    its own. Raises :class:`Unchecked` if that is not possible, or if observation stopped before the program ended; the
    exception's ``findings`` are those found until then. Calls that were not observed although observation continued are
    not reported here (:func:`judged` returns notes on them).

    >>> [finding.rule for finding in check("import torch; w = torch.ones(2, requires_grad=True); w += 1")]
    ['PL201']
    """
    return judged(source, name, timeout=timeout)[0]


def judged(
    source: str, name: str, *, timeout: float = TIMEOUT, every_round: bool = True
) -> tuple[list[Finding], tuple[Note, ...]]:
    """The findings of :func:`check`, and a note for each thing that was not observed although observation continued.

    Raises :class:`Unchecked` if the program could not be run, or observation stopped before it ended: the exception's
    ``findings`` are those found until then. Without ``every_round``, iterations of a loop that repeat what was recorded
    are not recorded, as on the command line.
    """
    parsed(source, name)
    with Workshop(timeout, every_round=every_round) as shop:
        subject = Subject(source, name)
        trace = recorded(shop, subject)
        findings, stopped = tried(shop, subject, trace), unobserved(name, None, trace)
    if stopped is not None:
        stopped.findings = tuple(findings)
        raise stopped
    return findings, trace.unseen


def prelude(source: str, names: Mapping[str, Any]) -> str:
    """Return imports for what ``source`` uses of ``names`` (a notebook's namespace) and
    another process can import as well.

    These are modules, and functions and classes that are found under their own name in a module other than
    ``__main__``. Empty if ``source`` is not valid Python.

    >>> prelude("y = dumps(x)", {"dumps": __import__("json").dumps, "x": 3})
    'from json import dumps as dumps'
    """
    try:
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return ""
    lines = []
    for name in sorted(used & set(names)):
        value = names[name]
        module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(value, ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif (
            own.isidentifier()
            and module not in (None, "__main__")
            and getattr(sys.modules.get(module), own, None) is value
        ):
            lines.append(f"from {module} import {own} as {name}")
    return "\n".join(lines)
