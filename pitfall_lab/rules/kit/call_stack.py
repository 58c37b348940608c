"""Finds the calls that led to an event: the trace has the names of the functions on the call stack, and the source
shows where they are called.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pitfall_lab.rules.kit.finding import Finding, Related
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.trace import Event, Span, T

COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


def call_chain(story: Story, event: Event | None) -> Iterator[ast.stmt]:
    """Yield the statements that were being executed at ``event``, innermost first: the event's own statement, then the
    statement that called its function, and so on, as long as the calls are found in the program's source.

    For an event in another file, the first statement is the program's own one that led to that file. Yields nothing if
    ``event`` is None or its own statement is unknown.
    """
    if event is None:
        return
    program, scope = story.program, _functions(event)
    statement = program.statement_at(event.span)
    if event.span is not None and event.span.source != 0:
        scope = scope[: _own(story, event)]
        statement = program.statement(entry(story, event))
    while statement is not None:
        yield statement
        function = program.function(statement)
        if function is None:
            return
        if scope and scope[-1].rsplit(".", 1)[-1] == function.name:
            scope.pop()
        owner = program.parents.get(function)
        name = f"{owner.name}.{function.name}" if isinstance(owner, ast.ClassDef) else function.name
        statement = program.statement(_call_site(story, name, tuple(scope), event, function))


def leading_calls(story: Story, steps: Iterable[int | None], later: int | None) -> list[Related]:
    """Return the calls that led to each of ``steps`` as related lines: ``score = discriminator(fake)`` around
    ``return self.last(h)``. At most three for each step, the innermost ones.

    Calls that also led to the step ``later`` (``main()``) are left out, as both have them in common.
    """
    common = list(call_chain(story, story.line_event(later)))[1:]
    lines: dict[Span, list[T]] = {}
    for step in steps:
        there = story.span(step)
        for statement in list(call_chain(story, story.line_event(step)))[1:4] if there is not None else ():
            if statement not in common:
                lines.setdefault(story.program.place(statement), []).append(at_line(story, there))
    return [
        Related(
            "forward",
            place,
            None,
            T(
                en=f"leads to {' and to '.join(dict.fromkeys(each.en for each in found))}",
                zh=f"通向{'和'.join(dict.fromkeys(each.zh for each in found))}",
            ),
        )
        for place, found in lines.items()
    ]


def entry(story: Story, event: Event) -> ast.AST | None:
    """Return the program's own expression that led to ``event``, an event in another file: the call that reached that
    file, or the import of it; None if neither is found.
    """
    program, own, scope = story.program, _own(story, event), tuple(_functions(event))
    caller = scope[:own]
    for name in scope[own:]:
        if (site := _call_site(story, name, caller, event)) is not None:
            return site
    if scope[own:]:
        return _between(story, caller, event)
    module = Path(story.trace.sources[event.span.source].name).stem if event.span is not None else ""
    imports = (n for n in program.nodes if isinstance(n, ast.Import | ast.ImportFrom))
    return next(
        (n for n in imports if module in {getattr(n, "module", None), *(alias.name for alias in n.names)}), None
    )


def call_in(story: Story, caller: tuple[str, ...], event: Event) -> ast.Call | None:
    """Return the call in the source of the function ``caller`` (a stack of function names, outermost first) during
    which ``event`` happened.

    None if ``caller`` is not on the event's stack, made the event itself, or shows no such call in its source.
    """
    scope = tuple(_functions(event))
    if len(scope) <= len(caller) or scope[: len(caller)] != caller:
        return None
    return _call_site(story, scope[len(caller)], caller, event)


def _own(story: Story, event: Event) -> int:
    """Return how many functions on the event's stack, counted from the outermost one, have the name of a function of
    the program before the first one that has not.
    """
    written = {n.name for n in story.program.nodes if isinstance(n, Function)}
    scope = _functions(event)
    return next((i for i, name in enumerate(scope) if name.rsplit(".", 1)[-1] not in written), len(scope))


def _functions(event: Event) -> list[str]:
    """The names of the functions on the stack of ``event``, outermost first.

    Frames of comprehensions (which exist up to Python 3.11) are left out: they belong to the function around them.
    """
    return [name for name in event.scope if not name.endswith(COMPREHENSIONS)]


def _between(story: Story, caller: tuple[str, ...], event: Event) -> ast.Call | None:
    """The one call in ``caller`` that no event was recorded for, on the lines between the caller's own events before
    and after ``event``.

    None unless exactly one such call is not inside another one.
    """
    program = story.program
    low, high = _neighbours(story, caller, event)
    own = {e.span for e in story.calls() if e.span is not None and e.span.source == 0}
    calls = (
        n for n in program.nodes if isinstance(n, ast.Call) and low <= n.lineno <= high and program.place(n) not in own
    )
    inside = caller[-1].rsplit(".", 1)[-1] if caller else None
    found = [n for n in calls if (f.name if (f := program.function(n)) else None) == inside]
    outer = [n for n in found if not any(n is not other and n in ast.walk(other) for other in found)]
    return outer[0] if len(outer) == 1 else None


def at_home(story: Story, finding: Finding) -> Finding:
    """Return ``finding`` with all its spans in the checked program: a span in another file is replaced by that of the
    program's call (or import) that led there, or by None if that call is unknown.

    Reports, editors and ``# pitfall: ignore`` are about one file. The message of a related line then names the line in
    the other file.
    """
    span = _home(story, finding.span, finding.step)
    related = tuple(_related_at_home(story, each) for each in finding.related)
    return (
        finding if span == finding.span and related == finding.related else replace(finding, span=span, related=related)
    )


def _related_at_home(story: Story, related: Related) -> Related:
    if related.span is None or related.span.source == 0:
        return related
    there = at_line(story, related.span)
    text = T(en=f"{related.message.en} ({there.en})", zh=f"{related.message.zh}（{there.zh}）")
    return replace(related, span=_home(story, related.span, related.step), message=text)


def _home(story: Story, span: Span | None, step: int | None) -> Span | None:
    if span is None or span.source == 0:
        return span
    event = story.line_event(step)
    node = entry(story, event) if event is not None and event.span == span else None
    return story.program.place(node) if node is not None else None


def _call_site(
    story: Story, qualified: str, caller: tuple[str, ...], event: Event, function: Function | None = None
) -> ast.Call | None:
    """The call, in ``caller`` (the top level if empty), of the function with the name ``qualified`` that led to
    ``event``.

    A call inside ``function`` itself does not count. If the source shows no such call of a ``forward`` or ``__call__``,
    the result is that of :func:`_between`; otherwise None.
    """
    program = story.program
    inside = caller[-1].rsplit(".", 1)[-1] if caller else None
    owner, _, name = qualified.rpartition(".")
    owner = owner.rsplit(".", 1)[-1]
    names = {name}
    if name in ("forward", "__call__"):  # called through an object: look for the names assigned to objects of its class
        names = _objects(program, owner) if owner else set()
    elif name == "__init__":
        name = owner
    calls = {id(call): call for one in {name, f".{name}", *names} for call in program.calls.get(one, ())}
    if not calls:  # handed to a call that calls it: `net.apply(begin)`
        calls = {id(call): call for call in program.handed_to.get(name, ())}
    sites = []
    for call in sorted(calls.values(), key=lambda n: (n.lineno, n.col_offset)):
        around = program.function(call)
        if (around.name if around else None) == inside and (around is None or around is not function):
            sites.append(call)
    if not sites and owner and qualified.endswith((".forward", ".__call__")):
        sites = [
            call for call in _calls_of(story, owner) if (f.name if (f := program.function(call)) else None) == inside
        ]
    if not sites and name in ("forward", "__call__"):  # what is called cannot be seen in the text
        return _between(story, caller, event)
    return _which(story, sites, caller, event) if sites else None


def _calls_of(story: Story, owner: str) -> list[ast.Call]:
    """Return the calls of variables that hold an object of class ``owner``, as far as the source shows it, in the order
    of the source.
    """
    if owner not in story.calls_of:
        calls = (
            n for n in story.program.nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name | ast.Attribute)
        )
        made = [
            n
            for n in calls
            if any(isinstance(o, ast.Call) and called(o) == owner for o in origins(story.program, n.func))
        ]
        story.calls_of[owner] = sorted((n for n in made if called(n) != owner), key=lambda n: (n.lineno, n.col_offset))
    return story.calls_of[owner]


def _objects(program: Program, owner: str) -> set[str]:
    """Return the expressions that are assigned an object of class ``owner``, or anything built with one: ``net`` in
    ``net = nn.Sequential(Block(), …)``.
    """
    found = set()
    for node in program.nodes:
        for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
            if any(isinstance(n, ast.Call) and called(n) == owner for n in ast.walk(value)):
                found.add(program.segment(target))
    return found


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return the (target, value) pairs of an assignment: ``g, d = Generator(), Discriminator()`` gives two."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(node.value, ast.Tuple)
            and len(target.elts) == len(node.value.elts)
        ):
            pairs += zip(target.elts, node.value.elts, strict=True)
        else:
            pairs.append((target, node.value))
    return pairs


def _which(story: Story, sites: list[ast.Call], caller: tuple[str, ...], event: Event) -> ast.Call:
    """Return, of the calls ``sites`` of one function in the source, the one that was running at ``event``.

    Each iteration of a loop is assumed to execute all of them once, in order. If that gives a call outside the lines
    between the caller's own events just before and after ``event``, only the calls between these lines are counted.
    """
    low, high = _neighbours(story, caller, event)
    passes = story.steps_at[event.span, event.op]
    until = bisect_right(passes, event.step)
    site = sites[(max(until, 1) - 1) % len(sites)]
    if low <= site.lineno <= high or high < low:  # the last line of a loop is followed by its first
        return site
    near = [other for other in sites if low <= other.lineno <= high] or sites
    since = until - bisect_right(passes, _before(story, caller, event))
    return near[min(max(since, 1), len(near)) - 1]


def _before(story: Story, caller: tuple[str, ...], event: Event) -> int:
    """Return the step of the last event before ``event`` made by ``caller`` itself (not by a function it calls); -1 if
    there is none.
    """
    steps = story.steps_in.get(caller, [])
    at = bisect_left(steps, event.step)
    return steps[at - 1] if at else -1


def _neighbours(story: Story, caller: tuple[str, ...], event: Event) -> tuple[int, int]:
    """Return the lines of the events that ``caller`` itself made last before ``event`` (0 if none) and first after it
    (a very large number if none).
    """
    at, steps = _before(story, caller, event), story.steps_in.get(caller, [])
    before = story.span(at) if at >= 0 else None
    later = (story.events[step] for step in islice(steps, bisect_right(steps, event.step), None))
    after = next((e.span for e in later if e.kind == "call"), None)
    return before.line if before else 0, after.line if after else 1 << 30
