"""Finds the calls that led to an event: the trace has the names of the functions on the stack, the source
shows where they are called.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
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
    """Yield the statements that were being executed at ``event``, innermost first: its own, then those of its callers,
    as long as the program's text shows the call.

    Nothing for None, or where the first one is unknown. For an event in another file, that is the program's statement
    that led there.
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


def entry(story: Story, event: Event) -> ast.AST | None:
    """Return the program's own expression that led to ``event``, which is in another file: a call, or an import of that
    file; None if it is unknown.
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
    """Return the call in the text of the function ``caller`` (a stack of function names, outermost first) during which
    ``event`` happened; None if the text does not show it.

    None too if ``caller`` is not on the event's stack, or made the event itself.
    """
    scope = tuple(_functions(event))
    if len(scope) <= len(caller) or scope[: len(caller)] != caller:
        return None
    return _call_site(story, scope[len(caller)], caller, event)


def _own(story: Story, event: Event) -> int:
    """Return how many of the outermost functions on the stack of ``event``, without a gap, have the
    name of a function of the program.
    """
    written = {n.name for n in story.program.nodes if isinstance(n, Function)}
    scope = _functions(event)
    return next((i for i, name in enumerate(scope) if name.rsplit(".", 1)[-1] not in written), len(scope))


def _functions(event: Event) -> list[str]:
    """The functions on the stack of ``event``.

    A comprehension (a frame of its own up to Python 3.11) belongs to the one around it.
    """
    return [name for name in event.scope if not name.endswith(COMPREHENSIONS)]


def _between(story: Story, caller: tuple[str, ...], event: Event) -> ast.Call | None:
    """The call in ``caller`` of which no event has the place, between the lines of the caller's
    events before and after ``event``.

    None unless there is exactly one such call that is not inside another one.
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
    """Return ``finding`` with every place in the checked program: a place in another file is replaced by that of the
    call (or import) which led there.

    A place is None where that call is unknown. Reports, editors and ``# pitfall: ignore`` are about one file; the
    related lines' sentences then name the line in the other file.
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
    """The call in ``caller`` (at the top level when empty) of the function with this qualified
    name on the way to ``event``.

    A call inside ``function`` itself does not count. Where the text has none, a ``forward`` may be a call that no event
    records (:func:`_between`); else None.
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
    """Return the calls of variables that hold an object of class ``owner``, as far as the text shows
    it, in the order of the text.
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
    """Return the variables that hold an object of class ``owner``, or a container around one: ``net =
    nn.Sequential(Block(), …)``.
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
    """Return, of several calls of one function in the source, the one that was running at ``event``.

    Each iteration of a loop executes all of them once, in order; if that gives a call outside the lines that the caller
    was executing just before and after, the calls between those lines are counted instead.
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
    """Return the step of the last event before ``event`` that ``caller`` itself made, not a
    function it calls; -1 if there is none.
    """
    steps = story.steps_in.get(caller, [])
    at = bisect_left(steps, event.step)
    return steps[at - 1] if at else -1


def _neighbours(story: Story, caller: tuple[str, ...], event: Event) -> tuple[int, int]:
    """Return the lines at which ``caller`` itself made an event just before and just after ``event`` (0
    and a very large number: none).
    """
    at, steps = _before(story, caller, event), story.steps_in.get(caller, [])
    before = story.span(at) if at >= 0 else None
    later = (story.events[step] for step in islice(steps, bisect_right(steps, event.step), None))
    after = next((e.span for e in later if e.kind == "call"), None)
    return before.line if before else 0, after.line if after else 1 << 30
