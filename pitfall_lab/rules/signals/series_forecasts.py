"""Trainings that forecast values of a series: from what a prediction was computed, and where its rows are in the
storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import product
from math import prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.element_origins import Origins, Place
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = spellings("sub") | operations_that("difference_loss") | {"cross_entropy", "gaussian_nll_loss", "nll_loss"}
"""The losses, and the difference, that compare a forecast with its target."""
DISTANCES = spellings("abs", "mul", "pow") | {"norm", "square"}
"""Calls that make a distance from a difference."""
CHOICES = {"__getitem__", "select", "narrow", "split", "chunk", "tensor_split", "unbind", "gather", "index_select",
           "take_along_dim", "masked_select", "roll", "flip", "index_add", "scatter"}  # fmt: skip
"""Calls that select, or move, elements: which ones is determined from their position in the storage."""
WHOLE = {":", "-1", "...", "Ellipsis", "None"}
UPWARD, INPUTS = 400, 64


def is_trained(story: Story, loss: Event) -> bool:
    """Whether a backward went through the loss that the call ``loss`` computed; a difference counts only if a call of
    ``DISTANCES`` uses it.
    """
    graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn") if loss.results else None
    if (story.record("nodes", graph) or {}).get("ran") is None:
        return False
    return loss.name not in spellings("sub") or any(use.name in DISTANCES for use in story.uses(loss.results[0]))


def places_of_row(origins: Origins, used: tuple[str, int], axis: int, row: int) -> list[Place]:
    """Return, in order, the storage and index from which each element comes at the index ``row`` of the axis ``axis``
    of the tensor ``used`` (label and step).

    Empty if one is unknown, or if they are in several storages.
    """
    places = list[Place]()
    shape = origins.story.shape(*used) or ()
    for index in product(*(range(n) for n in shape[:axis]), (row,), *(range(n) for n in shape[axis + 1 :])):
        place = origins.place(used[0], index, used[1])
        if place is None or (places and place[0] != places[0][0]):
            return []
        places.append(place)
    return places


def inputs(story: Story, guess: str, step: int) -> Iterator[tuple[str, int]]:
    """Yield the tensors that do not require grad and on which the prediction ``guess`` (a label) depends, each with the
    step of its use, nearest first; parameters are left out.

    The search ends at a call that selects positions (other than only the last one), as its result may depend on a part
    of the input only. At most ``INPUTS`` are found.
    """
    pending, seen, found = deque([(guess, step)]), {guess}, 0
    while pending and len(seen) < UPWARD and found < INPUTS:
        label, at = pending.popleft()
        record = story.tensor(label, at) or {}
        if record.get("kind") == "parameter":
            continue
        if not record.get("requires_grad"):
            found += 1
            yield label, at
            continue
        event = story.event(record.get("born"))
        if event is None or event.kind != "call" or label not in event.results or not _is_whole(story, event, label):
            continue
        for each in (o.label for o in event.operands if o.label is not None):
            if each not in seen:
                seen.add(each)
                pending.append((each, event.step))


def _is_whole(story: Story, event: Event, label: str) -> bool:
    """Whether a call keeps all elements of its operand, or selects the last position only."""
    if event.name not in CHOICES:
        return True
    given = [o.label for o in event.operands if o.label is not None]
    if len(given) == 1 and event.name not in ("roll", "flip"):
        before, after = story.shape(given[0], event.step), story.shape(label, event.step)
        if before is not None and after is not None and prod(before) == prod(after):
            return True
    texts = [o.text for o in event.operands if o.label is None]
    if len(given) != 1 or event.name not in ("__getitem__", "select") or not texts:
        return False
    if event.name == "select":
        return texts[-1] == "-1"
    return all(each.strip() in WHOLE for each in texts[0].strip("()").split(",") if each.strip())
