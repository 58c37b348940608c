"""Needless arguments of backward: ``retain_graph=True`` or ``create_graph=True`` that nothing makes use of."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_true
from pitfall_lab.trace import Event, Span, T


class NeedlessArgument(NamedTuple):
    """A call of ``backward`` or ``grad`` in the source with a needless argument: ``backwards`` are its executions
    (``Event``), ``call`` is the call, ``flag`` the keyword argument (``retain_graph=True``).
    """

    backwards: list[Event]
    call: ast.Call
    flag: ast.keyword


def needless_arguments(story: Story, name: str, is_used: Callable[[Event], bool]) -> Iterator[NeedlessArgument]:
    """Yield the calls of ``backward`` or ``grad`` in a finished program that have a literal ``name=True`` for which
    ``is_used``, asked for each backward that they ran, is always False.

    A value that is not the literal ``True`` may be intended.
    """
    if story.trace.outcome.kind != "finished" or story.program.tree is None:
        return
    found: dict[Span | None, list[Event]] = defaultdict(list)
    for backward in story.backwards():
        if any(o.name == name and o.text == "True" for o in backward.operands):
            found[story.span(backward.step)].append(backward)
    for span, backwards in found.items():
        call = story.program.at(span)
        if isinstance(call, ast.Call) and called(call) in ("backward", "grad"):
            flag = next((k for k in call.keywords if k.arg == name and is_true(k.value)), None)
            if flag is not None and not any(map(is_used, backwards)):
                yield NeedlessArgument(backwards, call, flag)


def finding(  # noqa: PLR0917 - its texts
    rule: Rule, story: Story, found: NeedlessArgument, message: T, explanation: T, kept: T, title: T
) -> Finding:
    """Return the finding of ``rule`` about the call ``found``; its fix, with the title ``title``, removes the argument.

    ``message`` and ``explanation`` are the finding's texts; ``kept`` is the text of a related line that says what is
    kept in memory.
    """
    program, step = story.program, found.backwards[0].step
    call, rest = found.call, [each for each in (*found.call.args, *found.call.keywords) if each is not found.flag]
    new = f"{program.segment(call.func)}({', '.join(program.segment(each) for each in rest)})"
    return rule.finding(
        program.place(call),
        step,
        message,
        explanation,
        related=[story.related("kept", step, kept)],
        fixes=unique(program.text, [Fix(title, program.replace((call, new)))]),
        facts=[Fact("backwards", len(found.backwards), story.by(step))],
    )
