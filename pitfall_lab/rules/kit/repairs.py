"""Candidate repairs, built from the syntax tree, smallest first.

No function here decides whether a candidate is right: :mod:`pitfall_lab.check` runs it to find out, so a candidate may
be one that helps only sometimes.

Repairs that silence torch without repairing the program (``.data``, ``retain_graph=True``, ``detach()``, setting every
``inplace`` to False) are never candidates.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pitfall_lab.rules.kit.finding import Edit, Fix
from pitfall_lab.rules.kit.reordering import is_leaf_memory, order_repairs
from pitfall_lab.rules.kit.saving_repairs import alias_repairs, saving_repairs
from pitfall_lab.rules.kit.source import Program, apply, merge, parses
from pitfall_lab.rules.kit.story import Clash, Story
from pitfall_lab.rules.kit.writing_repairs import changing_repairs


def repairs(story: Story, clash: Clash) -> tuple[Fix, ...]:
    """Return fixes that may repair ``clash``, a write between saving a tensor and its backward: changes of the writing
    line first, then copies, then another order of lines.

    If a leaf is on the written storage, the other order comes before the copies. Of fixes that give equal programs only
    the first is returned. Empty if the program cannot be parsed, or if no such fix can be written.
    """
    sources = story.trace.sources
    if not sources:
        return ()
    program = story.program
    if program.tree is None:
        return ()
    candidates: list[Fix | None] = []
    for step in clash.changed_at[:3]:
        candidates += changing_repairs(program, story, step)
    # an update of parameters is intended: first try to move it
    copies = (alias_repairs, saving_repairs)
    for maker in (order_repairs, *copies) if is_leaf_memory(story, clash.storage) else (*copies, order_repairs):
        candidates += maker(program, story, clash)
    return unique(program.text, candidates)


def outside(program: Program, statement: ast.stmt) -> ast.stmt | None:
    """Return what makes ``statement`` run more than once: the outermost loop around it in its function, else the
    function; None if there is none.
    """
    function = program.function(statement)
    loops = [
        a
        for a in program.ancestors(statement)
        if isinstance(a, ast.For | ast.While) and program.function(a) is function
    ]
    return loops[-1] if loops else function


def moved_out(program: Program, statement: ast.stmt) -> tuple[Edit, ...] | None:
    """Return the edits that move ``statement`` before the loop or function that makes it run more than once (see
    :func:`outside`).

    None if there is no such loop or function, if the block contains nothing but ``statement``, or if both are on one
    line.
    """
    place = outside(program, statement)
    if place is None or program.block(statement) == [statement]:
        return None
    return merge(program.delete(statement), program.insert_before(place, program.segment(statement)))


def unique(text: str, candidates: Iterable[Fix | None]) -> tuple[Fix, ...]:
    """Return the candidates whose edits turn ``text`` into a different program that parses, only the first one for each
    resulting program; candidates that are None are left out.
    """
    seen = {text}
    kept = []
    for fix in candidates:
        if fix is None or not fix.edits:
            continue
        result = apply(text, fix.edits)
        if result not in seen and parses(result):
            seen.add(result)
            kept.append(fix)
    return tuple(kept)
