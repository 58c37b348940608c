"""Tensors of a list that a program joined in the order of a sort: ``pad_sequence([rows[i] for i in order])``."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import lru_cache

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.signals.takes import TAKES
from pitfall_lab.trace import Event, Span, T

JOINS = ("pad_sequence", "stack", "cat")
FEWEST = 3
READ = {"unbind", "__index__", "__int__", "item", "tolist", "__getitem__", "to", "cpu", "numpy", "__iter__", "__len__"}
"""Calls that only read the entries of an order, as in a loop over it."""


@lru_cache(maxsize=1)
def _sorts(story: Story) -> dict[int, list[Event]]:
    """The calls that sorted a one-dimensional tensor, grouped by its length, in order."""
    found = defaultdict(list)
    for event in story.calls("sort", "argsort"):
        shape = story.shape(event.results[-1], event.step) if event.results and event.error is None else None
        if shape is not None and len(shape) == 1:
            found[shape[0]].append(event)
    return found


def joined_by(story: Story, event: Event) -> Event | None:
    """Return the last sort before ``event`` (a call that joined tensors) of as many values, if the tensors are joined
    in its order and were created in another order; else None.

    There must be at least ``FEWEST`` tensors, each once. The trace has only some entries of a long order: these must
    agree, and the lengths of the tensors must be in ascending or descending order.
    """
    labels = (
        [o.label for o in event.operands if o.label is not None] if event.name in JOINS and event.error is None else []
    )
    if len(labels) < FEWEST or len(set(labels)) != len(labels):
        return None
    sort = next((each for each in reversed(_sorts(story).get(len(labels), ())) if each.step < event.step), None)
    known = story.held(sort.results[-1], sort.step) if sort is not None else {}
    first = sorted(labels, key=lambda label: int(label[1:]))
    if (
        len(known) < FEWEST
        or labels == first
        or any(labels[place] != first[int(taken)] for place, taken in known.items())
    ):
        return None
    lengths = [(story.shape(label, event.step) or (0,))[0] for label in labels]
    return sort if len(known) == len(labels) or lengths in (sorted(lengths), sorted(lengths, reverse=True)) else None


def taken_apart(story: Story, event: Event) -> bool:
    """Whether the call ``event`` joined at least ``FEWEST`` tensors that calls had made, and those of them that were
    made by an index or ``unbind`` (at least one) all come from one tensor, as when results are put back in order.
    """
    labels = [o.label for o in event.operands if o.label is not None] if event.name in JOINS else []
    made = [story.event((story.tensor(label, event.step) or {}).get("born")) for label in labels]
    sources = {
        each.operands[0].label
        for each in made
        if each is not None and each.operands and each.name in ("__getitem__", "unbind")
    }
    return len(labels) >= FEWEST and len(sources) == 1 and None not in made


def is_used_again(story: Story, sort: Event, join: Event, until: int) -> bool:
    """Whether, up to the step ``until``, the order that ``sort`` returned is used for anything but taking the rows that
    ``join`` joins, for instance to put the results back in order.

    Indexing the sorted tensor itself does not count, nor does reading the entries one by one before ``join``.
    """
    by, pending, seen = sort.operands[0].label, [sort.results[-1]], {sort.results[-1]}
    while pending:
        for use in story.uses(pending.pop()):
            if use.step > until:
                break
            if use.step == join.step or (use.name in TAKES and use.operands[0].label == by):
                continue
            if use.name not in READ or use.step > join.step:
                return True
            fresh = (
                [each for each in use.results if each not in seen] if len(seen) < len(join.operands) * FEWEST else []
            )
            seen.update(fresh)
            pending += fresh
    return False


def left_to_packing(story: Story, taken: Event) -> Fix | None:
    """Return the fix that removes the sort and lets ``pack_padded_sequence`` sort by itself, with
    ``enforce_sorted=False``.

    None unless the sort, the packing and the line of ``taken`` (where the rows are taken in that order) are in one
    function, and the order is used there only in ``rows[order]`` and ``[rows[i] for i in order]``.
    """
    program = story.program
    call = program.at(story.span(taken.step)) if program.tree is not None else None
    inside = (
        [node for node in program.nodes if program.function(node) is program.function(call)] if call is not None else []
    )
    packing = [node for node in inside if isinstance(node, ast.Call) and called(node) == "pack_padded_sequence"]
    made = [node for node in inside if isinstance(node, ast.Assign) and sorted_by(node.value) is not None]
    if len(packing) != 1 or len(made) != 1 or any(word.arg in ("enforce_sorted", None) for word in packing[0].keywords):
        return None
    targets = made[0].targets[0].elts if isinstance(made[0].targets[0], ast.Tuple) else made[0].targets[:1]
    source = sorted_by(made[0].value)
    if (
        source is None
        or not all(isinstance(each, ast.Name) for each in (source, *targets))
        or not program.stands_alone(made[0])
    ):
        return None
    order, ordered = program.segment(targets[-1]), program.segment(targets[0]) if len(targets) > 1 else None
    changes = [(node, new) for node in inside if (new := _without(program, node, order)) is not None]
    if (
        len([node for node in inside if isinstance(node, ast.Name) and node.id == order]) != len(changes) + 1
        or not changes
    ):
        return None
    renamed = [
        node for node in inside if isinstance(node, ast.Name) and node.id == ordered and isinstance(node.ctx, ast.Load)
    ]
    if ordered != program.segment(source):
        changes += [(node, program.segment(source)) for node in renamed]
    place = program.place(packing[0])
    end = Span(place.end_line, place.end_column - 1, place.end_line, place.end_column - 1)
    title = T(
        en="Leave the order to the packing: `enforce_sorted=False` sorts, and puts the results back",
        zh="把排序交给打包函数：`enforce_sorted=False` 会排序，并把结果恢复成原来的次序",
    )
    edits = program.splice(*((program.place(node), new) for node, new in changes), (end, ", enforce_sorted=False"))
    merged = merge(edits, program.delete(made[0]))
    return Fix(title, merged, meaning="shape") if merged is not None else None


def sorted_by(call: ast.expr) -> ast.expr | None:
    """Return the expression that is sorted by ``call``: ``a`` of ``a.sort()``, of ``a.argsort()`` and of
    ``torch.sort(a)``; None for other expressions.
    """
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or called(call) not in ("sort", "argsort")
    ):
        return None
    is_torch = isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    return call.func.value if not is_torch else call.args[0] if call.args else None


def _without(program: Program, node: ast.AST, order: str) -> str | None:
    """The source of ``rows`` if ``node`` is ``rows[order]`` or ``[rows[i] for i in order]``; None for any other
    node.
    """
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == order:
        return program.segment(node.value)
    if (
        not isinstance(node, ast.ListComp)
        or len(node.generators) != 1
        or node.generators[0].ifs
        or not isinstance(node.elt, ast.Subscript)
    ):
        return None
    each, taken = node.generators[0], node.elt
    way = (
        each.iter.func.value
        if isinstance(each.iter, ast.Call) and isinstance(each.iter.func, ast.Attribute)
        else each.iter
    )
    one = (
        isinstance(way, ast.Name)
        and way.id == order
        and (way is each.iter or program.segment(each.iter).endswith(".tolist()"))
    )
    same = isinstance(taken.slice, ast.Name) and isinstance(each.target, ast.Name) and taken.slice.id == each.target.id
    return program.segment(taken.value) if one and same else None
