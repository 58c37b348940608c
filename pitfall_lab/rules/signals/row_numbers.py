"""Vectors with one element for each row of a batch, which are combined with the columns of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event

LIMIT = 200
LAYERS = {"linear", "conv1d", "conv2d", "conv3d"}
"""Layers whose input has one row for each example."""
STANDING = {"unsqueeze", "__getitem__", "view", "reshape"}
"""Calls that make a column from a vector."""


def looked_up(story: Story, label: str, step: int) -> Event | None:
    """Return the call that indexed a table by an index of the shape of the vector ``label``, and so gave it its values;
    None if there is none.

    Calls with one tensor operand that keep the shape may follow it.
    """
    length = story.shape(label, step)
    for _ in range(LIMIT):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        given = (
            [o.label for o in made.operands if o.label is not None]
            if made is not None and label in made.results
            else []
        )
        if made is None or not given or story.shape(label, step) != length:
            return None
        if made.name in ("__getitem__", "index_select", "gather", "take") and len(given) == 2:
            return made if story.shape(given[1], made.step) == length else None
        if len(given) != 1:
            return None
        label, step = given[0], made.step
    return None


def belongs_to_rows(story: Story, event: Event, full: str, index: str) -> bool:
    """Whether the entries of the tensor ``index`` belong to the rows of the tensor ``full``, or of a tensor computed
    from its rows; both are labels, at the call ``event``.

    They do if ``index`` is combined as a column with such a tensor, or is looked up in an embedding that is. The
    columns of ``full`` must be features (one of the tensors is the input or output of a layer): in a table of pairs,
    both axes are examples.
    """
    rows = set(_rows(story, full, event.results[0]))
    return _has_features(story, rows, story.shape(full, event.step) or ()) and any(
        other in rows for other in _partners(story, index) if other != event.results[0]
    )


def reduced_from_rows(story: Story, event: Event, full: str, source: str) -> bool:
    """Whether each row of the tensor ``source`` was computed from the same row of a table as the row of ``full`` (both
    labels, at the call ``event``), as two windows of one table are.

    One of the tensors must have different numbers of rows and columns: in a table of pairs, both axes are examples.
    """
    rows = set(_rows(story, full, event.results[0], windows=True))
    return source in rows and any(
        shape[0] != shape[1] for shape in (story.shape(label) for label in rows) if shape and len(shape) == 2
    )


def _closure(story: Story, start: list[str], follow: Callable[[Event], bool]) -> Iterator[str]:
    """Yield the tensors that are connected with those in ``start``, as operands or results, by calls for which
    ``follow`` returns True.
    """
    pending, seen = list(start), set(start)
    while pending and len(seen) < LIMIT:
        label = pending.pop(0)
        yield label
        made = story.event((story.tensor(label) or {}).get("born"))
        around = ([made] if made is not None and label in made.results else []) + story.uses(label)
        for event in around:
            if event.error is None and event.results and follow(event):
                new = [o.label for o in event.operands if o.label is not None] + list(event.results)
                fresh = [each for each in dict.fromkeys(new) if each not in seen]
                seen.update(fresh)
                pending += fresh


def _rows(story: Story, full: str, result: str, *, windows: bool = False) -> Iterator[str]:
    """Yield the tensors with two or more axes that have the rows of ``full``: element-wise calls, layers and ``cat`` of
    columns keep rows; with ``windows``, views of some of the columns do too.
    """
    count = (story.shape(full) or (0,))[0]

    def keeps_rows(event: Event) -> bool:
        shape = story.shape(event.results[0], event.step)
        if not shape or len(shape) < 2 or shape[0] != count:
            return False
        if event.name in LAYERS:
            return True
        if event.name == "cat":
            return whole(argument(event, "dim", len(event.operands) - 1)) in (1, -1)
        shapes = [story.shape(o.label, event.step) for o in event.operands if o.label is not None]
        return all(each == shape for each in shapes) or (windows and _is_window(story, event))

    kinds = (label for label in _closure(story, [full, result], keeps_rows))
    return (label for label in kinds if len(story.shape(label) or ()) > 1 and (story.shape(label) or (0,))[0] == count)


def _is_window(story: Story, event: Event) -> bool:
    """Whether the call returned a view of some columns of a matrix, with all its rows in their order."""
    given = story.tensor(event.operands[0].label, event.step) if event.operands else None
    made = story.tensor(event.results[0], event.step)
    if given is None or made is None or any(len(each.get("shape") or ()) != 2 for each in (given, made)):
        return False
    if given.get("storage") != made.get("storage") or given["shape"][0] != made["shape"][0]:
        return False
    row, same = (next(iter(each.get("stride") or (0,))) for each in (given, made))
    return row == same and row > 1 and 0 <= int(made.get("offset") or 0) - int(given.get("offset") or 0) < row


def _has_features(story: Story, rows: set[str], shape: tuple[int, ...]) -> bool:
    """Whether one of the tensors ``rows`` that has at least as many columns as ``shape`` is the input or the output of
    a layer.
    """
    for label in rows:
        if (story.shape(label) or (0,))[-1] < shape[-1]:
            continue
        made = story.event((story.tensor(label) or {}).get("born"))
        if any(use.name in LAYERS and use.operands[0].label == label for use in story.uses(label)) or (
            made and made.name in LAYERS
        ):
            return True
    return False


def _partners(story: Story, index: str) -> Iterator[str]:
    """Yield the tensors with which ``index``, as a column or as an embedding or linear layer of it, is combined, and
    the results.
    """
    count = (story.shape(index) or (0,))[0]
    pending, seen = [index], {index}
    while pending and len(seen) < LIMIT:
        label = pending.pop(0)
        shape = story.shape(label) or ()
        for use in story.uses(label):
            result = use.results[0] if use.results and use.error is None else None
            to = story.shape(result, use.step) if result is not None else None
            if result is None or not to or to[0] != count or result in seen:
                continue
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            if len(shape) > 1 and len(to) > 1 and others and use.name not in ("linear", "embedding"):
                yield from (o for o in others if o not in seen)
                yield result
                continue
            alone = not others and (len(shape) > 1 or len(to) == 1 or use.name in STANDING)
            if alone or use.name in ("embedding", "linear"):
                seen.add(result)
                pending.append(result)
