"""Batches that a ``DataLoader`` puts together from single examples: which rows of which storage each batch has."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.trace import DataPass, Event, Span, T

UPWARD = 2000
CUTS = ("__getitem__", "narrow", "split", "chunk", "tensor_split")
"""Calls that make views of some rows."""
ORDERED = {"sampler", "batch_sampler", "shuffle"}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of rows of one storage: ``event`` is the call (``Event``) that put it together, ``rows`` are the offsets,
    counted in elements, at which its rows begin in the storage ``storage`` (``"S3"``).

    ``began`` is the pass over a loader to which the batch belongs; None if that was not determined.
    """

    event: Event
    storage: str
    rows: tuple[int, ...]
    began: DataPass | None = None


def batch(story: Story, event: Event) -> Batch | None:
    """Return the batch that ``event``, a ``stack``, made of two or more examples that were indexed out of one storage.

    None for every other call, and if all examples begin at the same offset.
    """
    if event.name != "stack" or len(event.operands) < 2 or event.error is not None:
        return None
    records = [story.tensor(o.label, event.step) or {} for o in event.operands if o.label is not None]
    storages = {record.get("storage") for record in records}
    rows = tuple(record.get("offset") or 0 for record in records)
    born = {getattr(story.event(record.get("born")), "name", "") for record in records}
    if len(storages) != 1 or born != {"__getitem__"} or len(set(rows)) < 2:
        return None
    return Batch(event, str(storages.pop()), rows)


def loaded(story: Story) -> Iterator[Batch]:
    """Yield the batches that a ``DataLoader`` put together, in order, each with its pass; nothing if no pass was
    recorded.

    Only batches as :func:`batch` finds them (stacked from examples that were indexed out of one storage), whose stack
    ran on the line that began the pass.
    """
    passes = sorted(story.trace.beside.passes, key=lambda each: each.step)
    for event in story.calls("stack") if passes else ():
        found = batch(story, event)
        began = next((each for each in reversed(passes) if each.step <= event.step), None)
        if found is not None and began is not None and _is_around(event.span, began.span):
            yield Batch(event, found.storage, found.rows, began)


def _is_around(batch: Span | None, began: Span | None) -> bool:
    """Whether the line that makes the batch is also the line that began the pass: the header of a loop, or
    ``next(iter(loader))``.
    """
    if batch is None or began is None or batch.source != began.source:
        return False
    return batch.line <= began.line <= batch.end_line


def behind(story: Story, label: str, step: int, *, cut: bool = False) -> Iterator[Batch]:
    """Yield the batches that the tensor ``label``, at ``step``, was computed from, in the order of the operands; the
    search stops at parameters and at batches.

    With ``cut``, a view of some rows of a larger table, as in ``x[i : i + 32]``, counts as a batch too. At most
    ``UPWARD`` tensors are searched.
    """
    pending, seen = deque([label]), {label}
    while pending and len(seen) < UPWARD:
        here = pending.pop()
        event = story.event((story.tensor(here, step) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results:
            continue
        found = batch(story, event) or (cut_rows(story, event, here) if cut else None)
        if found is not None:
            yield found
            continue
        for operand in reversed(event.operands):
            if (
                operand.label is not None
                and operand.label not in seen
                and (story.tensor(operand.label) or {}).get("kind") != "parameter"
            ):
                seen.add(operand.label)
                pending.append(operand.label)


def cut_rows(story: Story, event: Event, label: str) -> Batch | None:
    """Return the batch ``label`` that ``event`` selected from a table as a view: two or more of its rows, but not all.

    None for other calls, and if the table requires grad.
    """
    source = event.operands[0].label if event.operands and event.name in CUTS else None
    table, part = (story.tensor(each, event.step) or {} for each in (source, label))
    before, after = tuple[int, ...](table.get("shape") or ()), tuple[int, ...](part.get("shape") or ())
    strides = tuple[int, ...](part.get("stride") or (0,))
    is_part = len(before) == len(after) > 0 and before[1:] == after[1:] and 1 < after[0] < before[0]
    if not is_part or part.get("storage") != table.get("storage") or table.get("requires_grad") or not strides[0]:
        return None
    start = part.get("offset") or 0
    return Batch(event, str(part["storage"]), tuple(range(start, start + after[0] * strides[0], strides[0])))


def loaders(story: Story) -> list[ast.Call]:
    """The calls of ``DataLoader`` in the program's source."""
    return [node for node in story.program.nodes if isinstance(node, ast.Call) and called(node) == "DataLoader"]


def shuffled(story: Story, call: ast.Call) -> Fix | None:
    """Return the fix that makes the loader created by ``call`` draw a new order in each pass (``shuffle=True``).

    None if the call has a sampler, ``shuffle``, ``**`` or more than two positional arguments.
    """
    if any(keyword.arg in ORDERED or keyword.arg is None for keyword in call.keywords) or len(call.args) > 2:
        return None
    text = story.program.segment(call).rstrip()
    if not text.endswith(")"):
        return None
    new = f"{text[:-1].rstrip().removesuffix(',')}, shuffle=True)"
    title = T(
        en="Let the loader draw other examples each time: `shuffle=True`", zh="让加载器每次抽取别的样本：`shuffle=True`"
    )
    return Fix(title, story.program.replace((call, new)), meaning="later")
