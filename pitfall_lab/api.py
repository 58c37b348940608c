"""The few functions that notebooks and scripts call; see the package's own text for what they are for."""

# ruff: noqa: PLC0415 - `import pitfall_lab` brings no torch: the engines are imported by the first call

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pitfall_lab.trace import Language, Trace

if TYPE_CHECKING:
    from pitfall_lab.widgets.explorer import Explorer


def record(
    source: str | Callable[[], Any], name: str = "program.py", *, values: bool = True, every_round: bool = True
) -> Trace:
    """Run a program (its text, or a function without arguments) on torch and the shadow, and return the Trace.

    The program's own errors are part of the result; they are not raised. With ``values=False`` no numbers are
    followed (metadata mode): shapes, strides, types, versions, aliasing, the graph, saved tensors and errors are,
    at a fraction of the cost. Without ``every_round``, rounds that repeat earlier ones are left out of a long
    recording, as under ``%%pitfall``, with a note.

    Raises:
        TypeError: ``source`` is neither text nor a Python function.
    """
    from pitfall_lab.verify import for_drawing, trace_callable, trace_program

    sampling = None if every_round else for_drawing()
    if isinstance(source, str):
        return trace_program(source, name, values=values, sampling=sampling)
    if callable(source):
        return trace_callable(source, values=values, sampling=sampling)
    raise TypeError(f"record() needs a program as text or a function, not {type(source).__name__}.")


def explore(source: Trace | str | Callable[[], Any], language: Language = "en") -> Explorer:
    """Show a program, or a trace of one, in the Explorer: its lines, graph, memory and versions, step by step.

    Of a program of many steps, rounds of loops that repeat earlier ones are left out;
    ``explore(record(source))`` shows every one.

    Raises:
        TypeError: ``source`` is no trace, no text and no function.
    """
    from pitfall_lab.rules import find
    from pitfall_lab.widgets.explorer import Explorer

    if isinstance(source, str):
        from pitfall_lab.check import Subject
        from pitfall_lab.notebook.fix_runs import Lab, bench

        bench().start()  # it imports torch while the program is recorded
        recorded = record(source, every_round=False)
        lab = Lab(bench(), Subject(source, recorded.sources[0].name), recorded, find(recorded))
        *_, last = lab.trials()
        return Explorer(recorded, findings=last.findings, language=language, lab=lab)
    recorded = source if isinstance(source, Trace) else record(source, every_round=False)
    return Explorer(recorded, findings=find(recorded), language=language)
