"""Learning-rate schedulers: the optimizers whose rate they set, and the loops in which they step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.trace import OptimizerMade, Scheduler, Span

DEEPEST = 4
POINTS = 400


def scheduled(story: Story) -> Iterator[tuple[Scheduler, OptimizerMade]]:
    """Yield each learning-rate scheduler whose creation was recorded and whose optimizer is known, with that optimizer;
    nothing if the program was not recorded to its end.
    """
    trace = story.trace
    if trace.stopped is None and trace.outcome.kind == "finished":
        for scheduler in trace.beside.schedulers:
            if scheduler.made and scheduler.optimizer is not None:
                yield scheduler, trace.optimizers[scheduler.optimizer]


def call_of(story: Story, span: Span | None) -> ast.Call | None:
    """Return the call in the source at ``span``, or, if ``span`` marks only a method without its parentheses (as for a
    look-up of the method), the call of that method; None if there is none.
    """
    node = story.program.at(span)
    parent = story.program.parents.get(node) if isinstance(node, ast.Attribute) else node
    return parent if isinstance(parent, ast.Call) else None


Loop = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def loops_around(program: Program, node: ast.AST | None, depth: int = 0) -> list[Loop]:
    """Return the loops and comprehensions in which ``node`` runs, innermost first, including those around the only call
    of its function; empty for None.

    ``depth`` is how many calls were followed already; at most ``DEEPEST``.
    """
    if node is None or depth > DEEPEST:
        return []
    loops = [a for a in program.ancestors(node) if isinstance(a, Loop)]
    function = program.function(node)
    if function is None:
        return loops
    own = [loop for loop in loops if program.function(loop) is function]
    site = only_call(program, function)
    return own + (loops_around(program, site, depth + 1) if site is not None else [])


def only_call(program: Program, function: Function) -> ast.Call | None:
    """Return the one call of ``function``, by its name, outside the function itself; None if there is none, or
    several.
    """
    sites = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and called(n) == function.name and program.function(n) is not function
    ]
    return sites[0] if len(sites) == 1 else None


def made_as(story: Story, span: Span | None) -> tuple[ast.Assign, str] | None:
    """Return the assignment of what was created at ``span``, and the source of its target; None if that is no
    assignment to a single target.
    """
    call = call_of(story, span)
    statement = story.program.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        return None
    return statement, story.program.segment(statement.targets[0])


def rate_facts(optimizer: OptimizerMade) -> tuple[Fact, Fact]:
    """Return the facts from which the learning rate of ``optimizer`` is drawn: ``curve``, a list of ``[update, rate]``
    with the update from which on each rate was used, and ``updates``, the number of updates.

    Of more than ``POINTS`` rates some are left out, but never the first, the last, the highest or the lowest.
    """
    rates = list(optimizer.rates)
    if len(rates) > POINTS:
        values = [rate for _, rate in rates]
        kept = {
            0,
            len(rates) - 1,
            values.index(max(values)),
            values.index(min(values)),
            *range(0, len(rates), len(rates) // POINTS + 1),
        }
        rates = [rates[at] for at in sorted(kept)]
    return Fact("curve", [list(each) for each in rates]), Fact("updates", optimizer.steps)
