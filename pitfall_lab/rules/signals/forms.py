"""How a tensor depends on another one: its exponential, a power of it, a multiple; and which tensors hold normally
distributed random numbers.
"""

from __future__ import annotations

from collections.abc import Hashable

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

SAME_NUMBERS = (
    spellings("clamp", "expand", "transpose")
    | {"T", "alias", "broadcast_tensors", "clamp_max", "clamp_min", "clone", "contiguous", "detach", "double",
       "expand_as", "flatten", "float", "identity", "mT", "permute", "reshape", "squeeze", "t", "to", "unsqueeze",
       "view", "view_as"}
)  # fmt: skip
"""Calls whose result has the tensor's values, possibly repeated or clamped; none that selects some of them."""
NORMAL = {"randn", "randn_like", "normal", "normal_"}
"""Calls that draw from a normal distribution."""
POWERS = {"sqrt": 0.5, "square": 2.0, "rsqrt": -0.5, "reciprocal": -1.0, "sqrt_": 0.5}
"""The exponent of each call that raises to a power."""
OFFSETS = spellings("add", "sub")
FURTHER = 40
SMALL = 0.01
"""The largest constant that counts as added only to keep a value away from 0."""


def made_by(story: Story, label: str | None, step: int) -> Event | None:
    """Return the call that created the tensor ``label``; None if no call did. Calls that wrote to it later do not
    count.
    """
    event = story.event((story.tensor(label, step) or {}).get("born"))
    return event if event is not None and event.kind == "call" and label in event.results else None


def before(event: Event, label: str) -> str | None:
    """Return the label of the tensor from which ``label``, a result of the call ``event`` of :data:`SAME_NUMBERS`, has
    its values; None if the call has no other tensor operand.
    """
    given = [o.label for o in event.operands if o.label is not None]
    place = event.results.index(label) if event.name == "broadcast_tensors" and label in event.results else 0
    return given[place] if place < len(given) and given[place] != label else None


def same_numbers(story: Story, label: str, step: int) -> str:
    """Return the label of the tensor from which ``label`` has its values, looking back through views, copies and
    clamps; ``label`` itself if there is no other.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        source = before(event, label) if event is not None and event.name in SAME_NUMBERS else None
        if event is None or source is None:
            return label
        label, step = source, event.step
    return label


def key(story: Story, label: str, step: int) -> Hashable:
    """Return a key that is equal for all labels of the same elements of one storage, at ``step``: their storage,
    offset, shape and strides; the label itself if the storage is unknown.
    """
    record = story.tensor(label, step) or {}
    if record.get("storage") is None:
        return label
    return record["storage"], record.get("offset"), tuple(record.get("shape") or ()), tuple(record.get("stride") or ())


def unscaled(story: Story, label: str, step: int) -> tuple[str, float]:
    """Return the tensor of which ``label`` is a multiple, ignoring added constants, clamps, views and copies, and the
    factor.

    If ``label`` is no multiple, the factor is 1, and the tensor the one that these calls lead back to. At most
    ``FURTHER`` calls are followed back.
    """
    by = 1.0
    for _ in range(FURTHER):
        label = same_numbers(story, label, step)
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given or (event.name not in OFFSETS | SCALING.keys() and event.name != "neg"):
            return label, by
        numbers = [constant(story, o.label, o.text, event.step) for o in event.operands if not o.name]
        places = [place for place, number in enumerate(numbers) if number is None]
        if event.name == "neg":
            by = -by
        elif len(numbers) != 2 or len(places) != 1 or (places[0] == 1 and SCALING.get(event.name) == -1):
            return label, by
        elif event.name in SCALING:
            number = numbers[1 - places[0]]
            if not number:
                return label, by
            by *= number ** SCALING[event.name]
        elif event.name in ("sub", "__sub__") and places[0] == 1:
            by = -by
        source = event.operands[0 if event.name == "neg" else places[0]].label
        if source is None:
            return label, by
        label, step = source, event.step
    return label, by


def unshifted(story: Story, label: str, step: int) -> str:
    """Return the label of the tensor to which only small constants (each at most ``SMALL``) were added to give
    ``label``, looking back through views, copies and clamps; ``label`` itself if there is no other.
    """
    for _ in range(FURTHER):
        label = same_numbers(story, label, step)
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or event.name not in OFFSETS or len(given) != 1:
            return label
        added = next(
            (constant(story, None, o.text, event.step) for o in event.operands if o.label is None and not o.name), None
        )
        if added is None or abs(added) > SMALL:
            return label
        label, step = given[0], event.step
    return label


def power(story: Story, label: str, step: int) -> tuple[str, float]:
    """Return the tensor of which ``label`` is a power, looking back through views, copies and clamps, and the exponent;
    the exponent is 1 if no power was taken.
    """
    exponent = 1.0
    for _ in range(FURTHER):
        label = same_numbers(story, label, step)
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given or given[0] is None:
            return label, exponent
        if event.name in POWERS:
            by = POWERS[event.name]
        elif event.name in ("pow", "__pow__") and len(given) == 1 and event.operands[0].label is not None:
            by = constant(story, None, event.operands[-1].text, event.step) or 0.0
        elif event.name in spellings("mul") and len(given) == 2 and given[0] == given[1]:
            by = 2.0
        else:
            return label, exponent
        if not by:
            return label, exponent
        exponent *= by
        label, step = given[0], event.step
    return label, exponent


def exponential(story: Story, label: str, step: int) -> tuple[str, float] | None:
    """Return the tensor ``x`` and the number ``k`` if the tensor ``label`` is ``exp(k * x)``, up to a constant factor;
    None if it is not.
    """
    label, exponent = power(story, label, step)
    event = made_by(story, label, step)
    if event is None or event.name not in ("exp", "exp_") or event.operands[0].label is None:
        return None
    source, by = unscaled(story, event.operands[0].label, event.step)
    return source, exponent * by


def drawn(story: Story, label: str, step: int) -> Event | None:
    """Return the call that drew the values of the tensor ``label`` from a normal distribution, looking back through
    views, copies and clamps; None if there is none.
    """
    label = same_numbers(story, label, step)
    event = made_by(story, label, step)
    return event if event is not None and event.name in NORMAL else None


def recipe(story: Story, label: str, step: int) -> tuple[Hashable, ...] | None:
    """Return a tuple of the calls, with their numeric arguments, by which ``label`` is computed from the result of a
    layer, ended by the storages of the layer's weights.

    Tensors with equal recipes are the same output of a network, for the same or other data. None if there is no layer
    within ``FURTHER`` calls of one tensor each.
    """
    found: list[Hashable] = []
    for _ in range(FURTHER):
        label = same_numbers(story, label, step)
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given:
            return None
        weights = [each for each in given if (story.tensor(each, event.step) or {}).get("kind") == "parameter"]
        if weights:
            place = event.results.index(label)
            return (*found, event.name, place, tuple((story.tensor(each) or {}).get("storage") for each in weights))
        if len(given) != 1:
            return None
        numbers = tuple((o.name, o.text) for o in event.operands if o.label is None)
        found += [event.name, numbers, event.results.index(label)]
        label, step = given[0], event.step
    return None
