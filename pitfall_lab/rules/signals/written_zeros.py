"""Zeros that were written to selected elements of a tensor, by an index or a mask, as a recording has counted them."""

from __future__ import annotations

from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.trace import Counted, Event
from pitfall_lab.trace.operation_facts import spellings

SIGNED = (
    spellings("add", "div", "matmul", "mm", "sub")
    | {"addmm", "batch_norm", "bmm", "conv1d", "conv2d", "cosine_similarity", "einsum", "embedding", "gru",
       "layer_norm", "linear", "log", "lstm", "normalize", "randn", "randn_like", "tanh"}
)  # fmt: skip
"""Calls whose result has positive and negative values."""
PARTS = {"__getitem__", "select", "chunk", "split", "unbind", "index_select", "data"}
"""Calls whose result is some of the operand's elements."""
CHANCE = {"rand", "rand_like", "bernoulli", "bernoulli_", "dropout"}
"""Calls that draw random numbers, or drop elements at random: zeros from these are no masking."""
FURTHER = 12


@dataclass(frozen=True, slots=True)
class WrittenZeros:
    """Zeros that the program itself wrote into a computed tensor: ``source`` is the call (``Event``) that computed the
    tensor, ``write`` the last call that set some of its elements to 0.

    ``label`` is the label of the first operand of ``write``, ``result`` that of its result, and ``index`` that of the
    first index or mask by which it selects the elements; an empty string if there is none.
    """

    write: Event
    label: str
    result: str
    index: str
    source: Event


def written_zeros(story: Story, counted: Counted) -> WrittenZeros | None:
    """Return the zeros that a ranking or a softmax was given, as ``counted`` by the recording, with the last call that
    wrote them and the call that had computed the tensor.

    None if the index or mask was computed from the tensor itself, or at random in a training, or if it is unknown how
    the tensor was computed.
    """
    writes = [story.events[int(step)] for step in counted.numbers[1:]]
    indexes: list[str] = []
    for write in writes:
        label = write.operands[0].label if write.operands else None
        indexes = _indexes(story, write)
        if label is None or not all(is_given(story, index, label, write.step) for index in indexes):
            return None
    label = writes[-1].operands[0].label if writes else None
    source = _source(story, label, writes[0].step) if label is not None else None
    if label is None or source is None:
        return None
    result = writes[-1].results[0] if writes[-1].results else label
    return WrittenZeros(writes[-1], label, result, indexes[0] if indexes else "", source)


def _indexes(story: Story, write: Event) -> list[str]:
    """The integer and bool tensors by which a call selects the elements to write."""
    labels = [o.label for o in write.operands[1:] if o.label is not None]
    kinds = ("int", "uint", "bool")
    return [each for each in labels if str((story.tensor(each, write.step) or {}).get("dtype")).startswith(kinds)]


def _source(story: Story, label: str, step: int) -> Event | None:
    """The call that computed the values, looking back through views, copies and selections; None if it is unknown."""
    for _ in range(FURTHER):
        made = made_by(story, same_numbers(story, label, step), step)
        if made is None or made.name not in PARTS or made.operands[0].label is None:
            return made
        label, step = made.operands[0].label, made.step
    return None


def is_given(story: Story, index: str, label: str, step: int) -> bool:
    """Whether the tensor ``index``, a mask or an index, was not computed from the values of the tensor ``label``, nor
    (if ``label`` requires grad) at random.
    """
    own = {label, same_numbers(story, label, step)}
    pending, seen = [index], {index}
    learned = (story.tensor(label, step) or {}).get("requires_grad")
    while pending and len(seen) < FURTHER:
        made = made_by(story, pending.pop(), step)
        if made is None:
            continue
        if learned and made.name in CHANCE:
            return False
        for each in (o.label for o in made.operands if o.label is not None and o.label not in seen):
            if each in own:
                return False
            seen.add(each)
            pending.append(each)
    return True
