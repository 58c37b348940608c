"""The views as vector figures for handouts: ``handout.memory(program).savefig("memory.pdf")``.

Each function takes a :class:`~pitfall_lab.trace.Trace`, a program's text or a function (a program is run, a trace is
not) and returns a ``matplotlib.figure.Figure``, 16 cm wide, the text block of an A4 page; no letter on it is smaller
than 8 pt, and black and white will do. matplotlib's own ``savefig`` writes it as ``.pdf``, ``.svg`` or ``.png``. pyplot
is not used: no figure of yours is touched or kept alive. What does not fit on paper is left out, and the figure says
how much. The computation graph prints through graphviz: ``show_graph(loss).save("graph.pdf")``.
"""

# ruff: noqa: PLC0415 - matplotlib is slow to import: a handout imports it for its one picture

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pitfall_lab.trace import Language, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Source = Trace | str | Callable[[], Any]


def memory(source: Source, *, language: Language = "en") -> Figure:
    """Live bytes over the program's steps, a band for each storage, with the peak and what
    kept each storage alive then.

    Raises:
        TypeError: ``source`` is no trace, no text and no function.
    """
    from pitfall_lab.views.memory import paper, project, show_largest

    facts = _facts(source)
    scene = project(facts.trace, facts)
    show_largest(scene, facts)
    return paper.draw(scene, facts, language)


def storage(source: Source, *, step: int | None = None, language: Language = "en") -> Figure:
    """A figure of the elements of the storages that matter most, with each tensor over them, after ``step`` (from 0;
    the last one when ``None``).

    Raises:
        TypeError: ``source`` is no trace, no text and no function.
    """
    from pitfall_lab.views.storage import paper, project

    facts = _facts(source)
    return paper.draw(project(facts.trace, facts), facts, language, step)


def versions(source: Source, *, language: Language = "en") -> Figure:
    """A figure of the version counters over the program's steps: the writes that increased them, which tensors were
    saved for backward at which version, and which of these a later write made useless.

    Raises:
        TypeError: ``source`` is no trace, no text and no function.
    """
    from pitfall_lab.views.versions import paper, project

    facts = _facts(source)
    return paper.draw(project(facts.trace, facts), facts, language)


def broadcast(source: Source, *, language: Language = "en") -> Figure:
    """A figure of how operands of different shapes meet: what stretches, what backward sums again, and where sizes do
    not meet.

    Raises:
        TypeError: ``source`` is no trace, no text and no function.
    """
    from pitfall_lab.views.broadcast import paper, project

    facts = _facts(source)
    return paper.draw(project(facts.trace, facts), facts, language)


def _facts(source: Source) -> Any:
    from pitfall_lab.api import record
    from pitfall_lab.views.label_history import gather

    return gather(source if isinstance(source, Trace) else record(source))
