"""Values that are sums of differences in bins, such as a calibration error: what each bin contributes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

ADDS = spellings("add")
WRITES = ("add_", "__iadd__")
ZEROS = ("new_zeros", "zeros_like")
PRODUCTS = spellings("mul")
DIFFERENCES = ("sub", "__sub__")
DISTANCES = spellings("abs")
COMPARES = spellings("bitwise_and", "eq", "ge", "gt", "le", "logical_and", "lt")  # fmt: skip
NEAR, PAIR, FURTHER = 1e-3, 2, 200

Bin = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BinnedGap:
    """The difference of the means of two tensors over the rows of one bin, in one batch: ``apart`` is the difference
    with its sign, ``count`` the number of rows.

    ``bin`` identifies the bin by the comparisons that made its mask (texts, ``"gt 0.1"``). ``rows`` is the label of the
    tensor whose rows were averaged for one of the means, ``step`` the step at which they were selected.
    """

    bin: Bin
    apart: float
    count: int
    rows: str
    step: int


def gaps(story: Story, label: str, step: int) -> list[BinnedGap] | None:
    """Return the differences of the bins if the value of the one-element tensor ``label`` is the sum of their absolute
    values, each times the bin's fraction of the rows (a calibration error).

    None if it is no such sum, if its value or a bin's is unknown, or if a bin occurs twice.
    """
    value = next((each for _, each in Elements(story, label, step).known()), None)
    found = []
    for term in _terms(story, label, step):
        gap = _gap(story, *term)
        if gap is None:
            return None
        found.append(gap)
    rows = sum(gap.count for gap in found)
    if value is None or not rows or len({gap.bin for gap in found}) < len(found):
        return None
    total = sum(abs(gap.apart) * gap.count for gap in found) / rows
    return found if abs(total - value) <= NEAR * max(abs(value), NEAR) else None


def of_all(batches: list[list[BinnedGap]]) -> float:
    """Return the binned sum for the rows of all ``batches`` together: in each bin the differences are added with their
    signs, weighted by their rows, before the absolute value is taken.

    Each of ``batches`` has the gaps of one batch; at least one must have some.
    """
    sums: dict[Bin, float] = {}
    for gap in (gap for batch in batches for gap in batch):
        sums[gap.bin] = sums.get(gap.bin, 0.0) + gap.apart * gap.count
    return sum(map(abs, sums.values())) / sum(gap.count for batch in batches for gap in batch)


def _terms(story: Story, label: str, step: int) -> Iterator[tuple[str, int]]:
    """The products that were added up to a value, also in place, each with the step at which it was added."""
    pending, seen = deque([(label, step)]), 0
    while pending and seen < FURTHER:
        seen += 1
        here, at = pending.popleft()
        made = made_by(story, here, at)
        for use in story.uses(here):
            if use.step < at and use.name in WRITES and use.operands[0].label == here and len(use.operands) == PAIR:
                other = use.operands[1].label
                if other is not None:
                    pending.append((other, use.step))
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is not None and made.name in ADDS:
            pending += [(each, made.step) for each in given]
        elif made is not None and given and made.name not in ZEROS:
            yield here, at


def _gap(story: Story, label: str, step: int) -> BinnedGap | None:
    product = made_by(story, label, step)
    given = [o.label for o in product.operands if o.label is not None] if product is not None else []
    if product is None or product.name not in PRODUCTS:
        return None
    for each in given:
        distance = made_by(story, each, product.step)
        inner = distance.operands[0].label if distance is not None and distance.name in DISTANCES else None
        apart = made_by(story, inner, distance.step) if distance is not None and inner is not None else None
        sides = [o.label for o in apart.operands if o.label is not None] if apart is not None else []
        if apart is None or apart.name not in DIFFERENCES or len(sides) != PAIR:
            continue
        picks = [_picked(story, side, apart.step) for side in sides]
        value = next((v for _, v in Elements(story, str(inner), apart.step).known()), None)
        first, second = picks
        if value is None or first is None or second is None:
            return None
        (one, mask), (_, other) = first, second
        count = (story.shape(one.results[0], one.step) or (0,))[0]
        if mask == other and one.operands[0].label is not None:
            return BinnedGap(_constants(story, mask, one.step), value, count, one.operands[0].label, one.step)
    return None


def _picked(story: Story, label: str, step: int) -> tuple[Event, str] | None:
    """The call that selected by a mask the rows whose mean the tensor is, and the mask; None for any other tensor."""
    mean = made_by(story, label, step)
    source = mean.operands[0].label if mean is not None and mean.name == "mean" and mean.operands else None
    pick = made_by(story, source, mean.step) if mean is not None and source is not None else None
    given = [o.label for o in pick.operands if o.label is not None] if pick is not None else []
    is_mask = len(given) == PAIR and (story.tensor(given[-1]) or {}).get("dtype") == "bool"
    return (pick, given[1]) if pick is not None and pick.name in ("__getitem__", "masked_select") and is_mask else None


def _constants(story: Story, mask: str, step: int) -> Bin:
    """The comparisons with constants that a mask was made of (``"gt 0.1"``), which identify its bin."""
    made = made_by(story, mask, step)
    if made is None or made.name not in COMPARES:
        return ()
    own = [
        f"{made.name} {number:g}"
        for o in made.operands
        if (number := constant(story, o.label, o.text, made.step)) is not None
    ]
    deeper = [o.label for o in made.operands if o.label is not None and not own]
    return (*own, *(each for label in deeper for each in _constants(story, label, made.step)))
