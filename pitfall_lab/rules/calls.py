"""From an event to the calls that led to it: a trace names the functions around an event, the text says where they are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.source import Function, Program
from pitfall_lab.rules.story import Story
from pitfall_lab.rules.syntax import called
from pitfall_lab.trace import Event


def call_chain(story: Story, event: Event | None) -> Iterator[ast.stmt]:
    """The statements being executed at ``event``, innermost first: its own, then the calls that led there, as far as the text tells."""
    if event is None:
        return
    program, scope = story.program, list(event.scope)
    statement = program.statement_at(event.span)
    while statement is not None:
        yield statement
        function = program.function(statement)
        if function is None:
            return
        if scope and scope[-1].rsplit(".", 1)[-1] == function.name:
            scope.pop()
        statement = _call_site(story, function, tuple(scope), event)


def _call_site(story: Story, function: Function, caller: tuple[str, ...], event: Event) -> ast.stmt | None:
    """The statement in ``caller`` (at the top level when empty) that called ``function`` on the way to ``event``."""
    program = story.program
    inside = caller[-1].rsplit(".", 1)[-1] if caller else None
    names = {function.name}
    if function.name in ("forward", "__call__"):  # called through an object: by the names that objects of its class were given
        owner = program.parents.get(function)
        names = _objects(program, owner.name) if isinstance(owner, ast.ClassDef) else set()
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and (called(n) == function.name or program.segment(n.func) in names)]
    sites = []
    for call in sorted(calls, key=lambda n: (n.lineno, n.col_offset)):
        around = program.function(call)
        if (around.name if around else None) == inside and around is not function:
            sites.append(call)
    return program.statement(_which(story, sites, caller, event)) if sites else None


def _objects(program: Program, owner: str) -> set[str]:
    """The names of objects of class ``owner``, or of containers built around one: ``net`` in ``net = nn.Sequential(Block(), …)``."""
    found = set()
    for node in program.nodes:
        for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
            if any(isinstance(n, ast.Call) and called(n) == owner for n in ast.walk(value)):
                found.add(program.segment(target))
    return found


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: ``g, d = Generator(), Discriminator()`` is two assignments."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
            pairs += zip(target.elts, node.value.elts, strict=True)
        else:
            pairs.append((target, node.value))
    return pairs


def _which(story: Story, sites: list[ast.Call], caller: tuple[str, ...], event: Event) -> ast.Call:
    """Of several calls of one function, the one that led to ``event``.

    Every round of a loop passes all of them once, in their order; if that leads outside the lines that the caller was
    executing just before and after, the calls between those lines are counted instead.
    """
    before = next((e for e in reversed(story.events[: event.step]) if e.scope == caller and e.span), None)
    after = next((e for e in story.events[event.step + 1 :] if e.scope == caller and e.span and e.kind == "call"), None)
    low = before.span.line if before and before.span else 0
    high = after.span.line if after and after.span else 1 << 30
    passes = [e.step for e in story.events[: event.step + 1] if e.span == event.span and e.op == event.op]
    site = sites[(max(len(passes), 1) - 1) % len(sites)]
    if low <= site.lineno <= high or high < low:  # the end of a loop is followed by its beginning
        return site
    near = [other for other in sites if low <= other.lineno <= high] or sites
    since = sum(step > (before.step if before else -1) for step in passes)
    return near[min(max(since, 1), len(near)) - 1]
