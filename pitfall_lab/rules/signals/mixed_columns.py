"""Follows the columns of an input to a result: whether a nonlinear function of several of them was computed."""

from __future__ import annotations

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

LINEAR = (
    spellings("add", "cat", "expand", "neg", "transpose", "vstack") | spellings("sub", exchanged=True)
    | operations_that("matrix_product")
    | {"T", "__getitem__", "__rmatmul__", "addmm", "baddbmm", "chunk", "clone", "contiguous", "detach", "dot",
       "double", "flatten", "float", "hstack", "linear", "mT", "mean", "narrow", "permute", "reshape", "select",
       "split", "squeeze", "stack", "sum", "t", "to", "unbind", "unsqueeze", "view"}
)  # fmt: skip
"""Operations that are linear in an operand, if the others do not depend on the input."""
SCALED = spellings("div", "mul")
"""Products, which are linear if only one factor depends on the input."""
JOINING = operations_that("matrix_product") | {
    "__rmatmul__",
    "addmm",
    "baddbmm",
    "cumsum",
    "dot",
    "linear",
    "mean",
    "norm",
    "prod",
    "sum",
}
"""Operations of which each element depends on several columns of the operand."""
PICKING = {"__getitem__", "select", "narrow", "unbind", "split", "chunk"}
"""Calls that select some columns."""
MOST = 600

Columns = frozenset[object]
"""The columns on which the elements of a result depend; ``EACH`` if every element depends only on the element in its
own column.
"""
EACH: Columns = frozenset(["each"])


def mixes(story: Story, given: str, result: str, until: Event) -> bool:
    """Whether the tensor ``result`` was computed from the matrix ``given`` (both labels) by a nonlinear operation on
    values that depend on different columns.

    If not, as for a sum of functions of single columns, mixed derivatives are 0. Only calls before ``until``, at most
    ``MOST`` of them, are read.
    """
    state: dict[str, Columns] = {given: EACH}
    curved: set[str] = set()
    steps = sorted({use.step for use in story.uses(given)})
    walked = 0
    while steps and walked < MOST:
        event = story.events[steps.pop(0)]
        walked += 1
        if event.step >= until.step or event.kind != "call" or event.error is not None:
            continue
        known = [o.label for o in event.operands if o.label in state]
        for label in event.results if known else ():
            if label is None or label in state:
                continue
            columns, bends = _of(event, [str(k) for k in known], state)
            state[label] = (
                frozenset([label]) if len(event.results) > 1 and event.name in PICKING and columns != EACH else columns
            )
            if bends or any(k in curved for k in known):
                curved.add(label)
            steps = sorted({*steps, *(use.step for use in story.uses(label) if use.step > event.step)})
    return result in curved


def _of(event: Event, known: list[str], state: dict[str, Columns]) -> tuple[Columns, bool]:
    """The columns that a call's result depends on, and whether the call is a nonlinear function of several of them."""
    columns = frozenset().union(*(state[label] for label in known))
    name = event.name.strip("_") if event.name not in LINEAR | SCALED | PICKING else event.name
    if event.name in PICKING and columns == EACH:
        return frozenset([event.operands[-1].text or event.results]), False
    whole = frozenset(["several"]) if name in JOINING and columns == EACH else columns
    several = len(whole) > 1 or "several" in whole
    if name in LINEAR and len(set(known)) == 1:
        return whole, False
    if name in LINEAR and name not in JOINING:
        return whole if whole == EACH or len(whole) == 1 else frozenset(["several"]), False
    if name in SCALED and len(set(known)) == 1 and known.count(known[0]) == 1:
        return whole, False
    return (frozenset(["several"]) if several else whole), several
