"""Whether a loss grows or falls when a tensor grows from which it was computed, as far as the calls in between
show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.sequences import makers
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, decimal
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

RISING = (
    SAME_NUMBERS | spellings("sigmoid") | spellings("relu", in_place=True)
    | {"elu", "exp", "leaky_relu", "log", "log1p", "logsigmoid", "mean", "softplus", "sqrt", "sum", "tanh"}
)  # fmt: skip
"""Non-decreasing calls of one tensor."""
ADDING = spellings("add", in_place=True)
TAKING = spellings("sub", in_place=True)
TAKEN = {"rsub", "__rsub__"}
SCALING = spellings("div", "mul", in_place=True)
MOST = 400


@dataclass(frozen=True, slots=True)
class Slope:
    """One path from a loss back to the tensor ``label`` (a label): the loss grows (``sign`` 1) or falls (-1) if the
    tensor grows.

    ``event`` is the call that computed the tensor of ``towards``, the next step of the path to the loss, from this
    tensor; both are None for the loss itself.
    """

    label: str
    sign: int
    event: Event | None
    towards: Slope | None

    def path(self) -> Iterator[Slope]:
        """Yield the steps of the path from the tensor to the loss, without the loss itself."""
        here: Slope | None = self
        while here is not None and here.event is not None:
            yield here
            here = here.towards


def slopes(story: Story, loss: str | None, step: int) -> dict[str, list[Slope]]:
    """Return, by label, the paths from the loss ``loss`` (a label) at ``step`` back to the tensors that require grad
    and from which it was computed; nearest first.

    A path ends where it is unknown whether the loss grows or falls with the tensor; only the first path to a tensor is
    followed further. Empty if ``loss`` is None.
    """
    found: dict[str, list[Slope]] = {}
    pending = deque([Slope(loss, 1, None, None)] if loss is not None else [])
    while pending and len(found) < MOST:
        here = pending.popleft()
        ways = found.setdefault(here.label, [])
        ways.append(here)
        if len(ways) > 1:
            continue
        for event in makers(story, here.label, here.event.step if here.event is not None else step):
            for label, sign in _through(event):
                if (story.tensor(label, event.step) or {}).get("requires_grad") and label != here.label:
                    pending.append(Slope(label, sign * here.sign, event, here))
    return found


def _through(event: Event) -> Iterator[tuple[str, int]]:
    """The operands of a call, each with 1 if the result rises with it, -1 if the result falls; no operands if that is
    unknown.

    A product or quotient is known only if the second operand is a number.
    """
    given = [o.label for o in event.operands]
    own = [label for label in given if label is not None]
    if event.name in RISING and own:
        yield from ((label, 1) for label in (own if event.name in ("stack", "cat") else own[:1]))
    elif event.name in ADDING:
        yield from ((label, 1) for label in own)
    elif event.name in TAKING:
        yield from ((label, 1 if place == 0 else -1) for place, label in enumerate(given) if label is not None)
    elif event.name in TAKEN:
        yield from ((label, -1 if place == 0 else 1) for place, label in enumerate(given) if label is not None)
    elif event.name == "neg":
        yield from ((label, -1) for label in own)
    elif event.name in SCALING and len(own) == 1 and given[0] is not None:
        factor = decimal(event.operands[-1].text) if len(given) == 2 else None
        if factor:
            yield own[0], 1 if factor > 0 else -1
