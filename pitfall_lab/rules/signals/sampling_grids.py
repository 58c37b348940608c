"""Grids of positions for ``grid_sample``: which call joined their coordinates, and along which axes these vary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.ramps import POINTWISE_NAMES, REGULAR, SAME_AXES, STRETCHED, is_pointwise, moved_axis
from pitfall_lab.rules.signals.value_origins import argument, decimal, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

FURTHER = 40
BLANK = {"empty", "zeros", "empty_like", "zeros_like", "new_empty", "new_zeros"}
"""Calls that allocate a grid that is filled afterwards."""
LAST = -1
PLANE = 2
PRODUCTS = spellings("matmul") | {"bmm", "einsum", "linear"}
"""Products of a grid with a small matrix, which may leave each coordinate almost unchanged."""
NEAR = 0.25
"""How far an element of such a matrix may be from that of the identity."""


@dataclass(frozen=True, slots=True)
class JoinedGrid:
    """A grid whose coordinates were computed separately: ``event`` is the call (``Event``) that joined the coordinates
    ``parts`` (labels) along the grid's axis ``along``: a ``stack``, a ``cat`` or the ``grid[..., i] = …`` of the last
    coordinate.

    ``axes`` are the axes of the rows and columns in each of ``parts``, counted from the end (-1 is the last); for a
    volume the axis of the depth comes first.
    """

    event: Event
    parts: tuple[str, ...]
    axes: tuple[int, ...]
    along: int


Ends = tuple[float, float, int]
"""The first and the last of the evenly spaced values of a coordinate, and how many there are."""


def grid_ends(story: Story, event: Event, place: int) -> Ends | None:
    """Return the first and the last value of the coordinate ``place`` (0 is x) in the grid that ``event``, a
    ``grid_sampler`` call, reads, and how many values there are; tensors that were added to the grid (displacements)
    count as 0.

    None if it was not computed from evenly spaced values (``arange``, ``linspace``, ``affine_grid``) by calls whose
    effect on them is known.
    """
    return _ends(story, event.operands[1].label, event.step, place)


def _ends(story: Story, label: str | None, step: int, place: int | None, depth: int = 0) -> Ends | None:
    """The same for the tensor ``label`` at ``step``; ``place`` is None if the tensor has one coordinate only."""
    event = made_by(story, label, step)
    if event is None or label is None or depth > FURTHER or event.error is not None:
        return None
    storage = str((story.tensor(label, step) or {}).get("storage"))
    given = [o.label for o in event.operands if o.label is not None]
    if event.name in BLANK and place is not None:
        filled = _filled(story, event, label, (0,) * ((story.shape(label, step) or (0,))[LAST]), LAST)
        return None if filled is None else _ends(story, filled.parts[place], filled.event.step, None, depth + 1)
    if story.writes(storage, event.step, step):
        return None
    if event.name in REGULAR:
        return _regular(story, event, label)
    if event.name == "affine_grid_generator" and place is not None:
        sizes, corners = (
            [int(each) for each in re.findall(r"\d+", argument(event, "size", 1) or "")],
            argument(event, "align_corners", 2) == "True",
        )
        n = sizes[LAST - place] if len(sizes) > place + PLANE else 0
        return (1 / n - 1, 1 - 1 / n, n) if n and not corners else (-1.0, 1.0, n) if n else None
    if event.name in spellings("cat") | {"stack"}:
        return None if place is None or len(given) <= place else _ends(story, given[place], event.step, None, depth + 1)
    if event.name in ("meshgrid", "broadcast_tensors"):
        at = event.results.index(label) if label in event.results else len(given)
        return _ends(story, given[at], event.step, place, depth + 1) if at < len(given) else None
    if event.name in POINTWISE_NAMES:
        return _computed(story, event, place, depth)
    if event.name in PRODUCTS and place is not None:
        axes = tuple(range(-(story.shape(label, step) or (0,))[LAST] - 1, 0))
        grid = _multiplied(story, event, label, axes) if len(axes) > PLANE else None
        return _ends(story, grid, event.step, place, depth + 1)
    is_same = given and storage == (story.tensor(given[0], event.step) or {}).get("storage")
    is_kept = is_same or event.name in SAME_AXES | STRETCHED
    return _ends(story, given[0], event.step, place, depth + 1) if given and is_kept else None


def _regular(story: Story, event: Event, label: str) -> Ends | None:
    """The first and last value and the length of an ``arange`` or ``linspace``, from its arguments."""
    n = (story.shape(label, event.step) or (0,))[0]
    numbers = [decimal(o.text) for o in event.operands if o.label is None and o.name in ("", "start", "end", "step")]
    if None in numbers or not numbers or n < PLANE:
        return None
    first, second, *more = [each or 0.0 for each in numbers] if len(numbers) > 1 else [0.0, numbers[0] or 0.0]
    last = second if event.name == "linspace" else first + (n - 1) * (more[0] if more else 1.0)
    return first, last, n


def _computed(story: Story, event: Event, place: int | None, depth: int) -> Ends | None:
    """The first and last value after an element-wise call whose other operand is a number, a known number for each
    coordinate, or, in a sum or difference, a displacement; None for other calls.
    """
    name = event.name.strip("_")
    if any(o.name for o in event.operands) or not 1 <= len(event.operands) <= PLANE:
        return None
    known = [None if o.label is None else _ends(story, o.label, event.step, place, depth + 1) for o in event.operands]
    found = [at for at, each in enumerate(known) if each is not None]
    if len(found) != 1:
        return None
    first, last, n = known[found[0]] or (0.0, 0.0, 0)
    other = event.operands[1 - found[0]] if len(event.operands) == PLANE else None
    by = 0.0 if other is None else _number(story, event, other.label, other.text, place)
    turned = (found[0] == 1) != (name in spellings("sub", "div", exchanged=True) - spellings("sub", "div"))
    if name in spellings("neg"):
        return -first, -last, n
    if by is None and name not in spellings("add", "sub", in_place=True, exchanged=True):
        return None
    by = by or 0.0
    if name in spellings("add", in_place=True):
        return first + by, last + by, n
    if name in spellings("sub", in_place=True, exchanged=True):
        return (by - first, by - last, n) if turned else (first - by, last - by, n)
    if name in spellings("mul", in_place=True):
        return first * by, last * by, n
    if name in spellings("div", in_place=True) and by and not turned:
        return first / by, last / by, n
    return None


def _number(story: Story, event: Event, label: str | None, text: str, place: int | None) -> float | None:
    """The value of an operand for one coordinate: the only one that it has, or the one with the index of the
    coordinate; None if it has others.
    """
    if label is None:
        return decimal(text)
    known = Elements(story, label, event.step)
    if prod(known.shape) == 1:
        return known.at((0,) * len(known.shape))
    if place is None or prod(known.shape) != known.shape[LAST]:
        return None
    return known.at((*(0 for _ in known.shape[1:]), place))


def joined_grid(story: Story, event: Event) -> JoinedGrid | None:
    """Return the call that joined the coordinates of the grid that ``event``, a ``grid_sampler`` call, reads; None if
    none is found, or more than one.
    """
    count = places(story, event)
    return (
        _joined(story, str(event.operands[1].label), event.step, tuple(range(-count - 1, -1)), LAST) if count else None
    )


def places(story: Story, event: Event) -> int:
    """Return the number of spatial axes of the image of a ``grid_sampler`` call, 2 or 3; 0 for a call that failed, or
    whose shapes are unknown.
    """
    count = len(story.shape(event.operands[1].label, event.step) or ()) - 2 if len(event.operands) > 1 else 0
    return count if event.error is None and count >= PLANE and event.results else 0


def _joined(story: Story, label: str, step: int, axes: tuple[int, ...], along: int) -> JoinedGrid | None:
    """The call that joined the coordinates of a grid, looking back through element-wise calls and views; None if there
    is none, or more than one.

    ``axes`` are the spatial axes, ``along`` is the axis of the coordinates, as ``label`` has them.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        storage = (story.tensor(label, step) or {}).get("storage")
        if event is None:
            return None
        if event.name in BLANK:
            return _filled(story, event, label, axes, along)
        if any(not is_pointwise(story, at) for at in story.writes(str(storage), event.step, step)):
            return None
        given = [o.label for o in event.operands if o.label is not None]
        if event.name in spellings("cat") | {"stack"}:
            return _of_join(story, event, axes, along)
        if event.name in POINTWISE_NAMES:
            grids = [each for each in given if _has_axes(story.shape(each, event.step) or (), (*axes, along))]
            found = [one for each in grids if (one := _joined(story, each, event.step, axes, along)) is not None]
            return found[0] if len(found) == 1 else None
        if event.name in PRODUCTS:
            grid = _multiplied(story, event, label, (*axes, along))
            return _joined(story, grid, event.step, axes, along) if grid is not None else None
        if not given or (
            event.name not in SAME_AXES | STRETCHED
            and storage != (story.tensor(given[0], event.step) or {}).get("storage")
        ):
            return None
        moved = [_came_from(story, given[0], label, event, axis) for axis in (*axes, along)]
        if None in moved or len(set(moved)) < len(moved):
            return None
        *places, along = [axis for axis in moved if axis is not None]
        label, step, axes = given[0], event.step, tuple(places)
    return None


def _multiplied(story: Story, event: Event, label: str, axes: tuple[int, ...]) -> str | None:
    """The grid that a product multiplied by a matrix which is, up to small differences, the identity (a small rotation
    or scaling, or an untrained one); None if the product is another one.

    The last of ``axes`` is that of the coordinates.
    """
    given = [o.label for o in event.operands if o.label is not None]
    places = (0, 1) if axes[-1] == LAST else (1, 0)  # the grid's place and the matrix's
    if event.name == "einsum":
        places = _by_letters(event) or (0, 0)
    if len(given) <= max(places) or places[0] == places[1] or (event.name == "linear" and places[0] == 1):
        return None
    grid, matrix = (given[place] for place in places)
    one, other = story.shape(grid, event.step) or (), story.shape(label, event.step) or ()
    is_kept = _has_axes(one, axes) and all(one[axis] == other[axis] for axis in axes)
    return grid if is_kept and _is_near_identity(story, matrix, event.step, len(axes) - 1) else None


def _by_letters(event: Event) -> tuple[int, int] | None:
    """The indices of the grid and of the matrix among the tensors of an ``einsum`` that multiplies each position of the
    grid by the matrix; None if it computes anything else.
    """
    formula = next((o.text for o in event.operands if o.label is None), "").strip("'\"").replace(" ", "")
    inputs, _, out = formula.partition("->")
    letters = inputs.split(",")
    for grid, matrix in ((0, 1), (1, 0)) if len(letters) == PLANE and out else ():
        ends = {letters[grid][-1], out[-1]}
        if letters[grid][:-1] == out[:-1] and len(ends) == PLANE and set(letters[matrix]) == ends:
            return grid, matrix
    return None


def _is_near_identity(story: Story, label: str, step: int, count: int) -> bool:
    """Whether the elements of a matrix, or of each matrix in a batch, are known and near those of the identity."""
    shape = story.shape(label, step) or ()
    known = dict(Elements(story, label, step).known())
    return (
        shape[-2:] == (count, count)
        and len(known) == prod(shape)
        and all(abs(value - (place[-1] == place[-2])) <= NEAR for place, value in known.items())
    )


def _has_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether a shape has all these axes, the last of which has one coordinate for each spatial axis."""
    return len(shape) >= -min(axes) and shape[axes[-1]] == len(axes) - 1


def _came_from(story: Story, source: str, label: str, event: Event, axis: int) -> int | None:
    """The axis of the source of a view or a copy that became ``axis`` of its result; None if it is unknown."""
    count = len(story.shape(source, event.step) or ())
    found = [each for each in range(-count, 0) if moved_axis(story, source, event, label, each) == axis]
    return found[0] if len(found) == 1 else None


def _of_join(story: Story, event: Event, axes: tuple[int, ...], along: int) -> JoinedGrid | None:
    """The coordinates that a ``stack`` joined along the axis ``along``, or a ``cat`` of tensors of length 1 along it;
    None if the call joined anything else.
    """
    given, count = (
        [o.label for o in event.operands if o.label is not None],
        len(story.shape(event.results[0], event.step) or ()),
    )
    axis = whole(argument(event, "dim", len(event.operands) - 1)) or 0
    if axis % count - count != along or len(given) != len(axes):
        return None
    if event.name == "stack":
        return JoinedGrid(event, tuple(given), tuple(axis + 1 if axis < along else axis for axis in axes), along)
    one_each = all((story.shape(each, event.step) or (0,))[along] == 1 for each in given)
    return JoinedGrid(event, tuple(given), axes, along) if one_each else None


def _filled(story: Story, event: Event, label: str, axes: tuple[int, ...], along: int) -> JoinedGrid | None:
    """The coordinates that were written one by one into a new tensor, ``grid[..., 0] = x``; None if they were not."""
    writes = [use for use in story.uses(label) if use.name == "__setitem__" and use.step > event.step]
    parts = {
        use.operands[1].text.strip("()").split(",")[-1].strip(): use for use in writes if len(use.operands) > PLANE
    }
    found = [parts[str(place)] for place in range(len(axes)) if str(place) in parts]
    if along != LAST or len(found) != len(axes) or len(writes) != len(axes):
        return None
    labels = [use.operands[2].label for use in found]
    return (
        None
        if None in labels
        else JoinedGrid(found[-1], tuple(map(str, labels)), tuple(axis + 1 for axis in axes), along)
    )
