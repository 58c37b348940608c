"""Calls of dropouts and batch norms, which work differently in training and in evaluation mode, and of attentions with
dropout: the mode of each call, and the use of its result.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

DROPOUTS = operations_that("dropout")
ATTENTION = "scaled_dot_product_attention"
"""A function without a mode: it drops attention weights whenever its ``dropout_p`` is not 0, also in evaluation."""
MEASURES = (
    spellings("eq") | operations_that("difference_loss")
    | {"argmax", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss", "topk"}
)  # fmt: skip
"""Calls that compare a prediction with a target, or choose a class."""
FURTHER = 400
"""How many events after a layer's call are searched for uses of its result."""
UPWARD = 60


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call (``event``) of a dropout, of an attention with dropout (``dropout_p`` is not 0), or of a batch norm;
    ``kind`` is "dropout" for the first two, else "batch_norm".

    ``active`` is True if the call works as in training; always True for an attention. ``layer`` identifies the layer:
    for a batch norm, the label of its running mean; for the others, the label of the nearest parameter with which their
    input was computed, else the span of the call in the source.
    """

    event: Event
    kind: str
    active: bool
    layer: object
    weight: str | None
    """The label of the nearest parameter with which the layer's input was computed, None if none is found; for a batch
    norm, the label of its own weight, None if it has none.
    """

    @property
    def result(self) -> str:
        """Return the label of the tensor that the layer returned."""
        return self.event.results[0]


class Modes:
    """The calls of dropouts, batch norms and attentions with dropout, in one trace."""

    def __init__(self, story: Story) -> None:
        self.story = story

    @cached_property
    def passes(self) -> list[LayerCall]:
        """All calls of dropouts, batch norms and attentions with dropout, in order.

        Dropouts with p=0, batch norms without running statistics, and calls that raised are left out.
        """
        story = self.story
        found = []
        for event in story.calls(*DROPOUTS, "batch_norm", ATTENTION):
            if not event.results or event.error is not None or not event.operands or event.operands[0].label is None:
                continue
            if event.name == ATTENTION:
                if _dropped(event) not in ("0", "0.0"):
                    weight = self._weight(event.operands[0].label, event.step)
                    found.append(LayerCall(event, "dropout", True, weight or story.span(event.step), weight))
                continue
            if event.name == "batch_norm":
                if len(event.operands) < 3 or event.operands[1].label is None:
                    continue  # without running statistics there is only one mode
                own = next((o.label for o in event.operands if o.name == "weight"), None)
                found.append(LayerCall(event, "batch_norm", _is_on(event, 5), event.operands[1].label, own))
            elif (argument(event, "p", 1) or "0.5").strip() not in ("0", "0.0"):
                weight = self._weight(event.operands[0].label, event.step)
                found.append(LayerCall(event, "dropout", _is_on(event, 2), weight or story.span(event.step), weight))
        return found

    @cached_property
    def trained(self) -> set[str]:
        """The labels of the tensors that an optimizer held at one of its recorded steps."""
        return {label for update in self.story.trace.optimizer_steps for label in update.holds}

    @cached_property
    def _backward_nodes(self) -> list[tuple[Event, set[str]]]:
        story, found = self.story, []
        for backward in story.backwards() if story.trace.optimizer_steps else ():
            start = backward.operands[0].label if backward.operands and backward.error is None else None
            if start is not None:
                found.append((backward, set(story.behind((story.tensor(start, backward.step) or {}).get("grad_fn")))))
        return found

    @cached_property
    def chosen(self) -> set[int]:
        """The steps of the dropouts that the program deliberately set to training mode: in the same forward pass, a
        batch norm that is trained elsewhere was in evaluation mode.

        Consecutive calls of different layers, none of them twice, count as one forward pass.
        """
        trained = {each.layer for _, each in self.training() if each.kind == "batch_norm" and each.active}
        found, forward = set[int](), dict[object, LayerCall]()
        for each in (*self.passes, None):
            if each is None or (each.kind, each.layer) in forward:
                if any(not one.active and one.layer in trained for one in forward.values() if one.kind == "batch_norm"):
                    found |= {one.event.step for one in forward.values() if one.kind == "dropout" and one.active}
                forward = {}
            if each is not None:
                forward[each.kind, each.layer] = each
        return found

    def training(self) -> Iterator[tuple[Event, LayerCall]]:
        """Yield, for each of ``passes`` whose grad_fn ran in a later backward, the first such backward (an ``Event``)
        and the :class:`LayerCall`.

        Yields nothing if the program has no optimizer step; backwards that raised are left out.
        """
        by_node: dict[str, list[Event]] = defaultdict(list)
        for backward, nodes in self._backward_nodes:
            for passed in nodes:
                by_node[passed].append(backward)
        for each in self.passes:
            node = (self.story.tensor(each.result, each.event.step) or {}).get("grad_fn")
            after = [b for b in by_node.get(node or "", ()) if b.step > each.event.step]
            if after:
                yield after[0], each

    def _weight(self, label: str | None, step: int) -> str | None:
        """Return the label of the nearest parameter from which ``label`` was computed; None if there is none among
        ``UPWARD`` tensors.
        """
        story, seen = self.story, set[str | None]()
        pending: deque[str | None] = deque([label])
        while pending and len(seen) < UPWARD:
            here = pending.popleft()
            if here in seen:
                continue
            seen.add(here)
            event = story.event((story.tensor(here, step) or {}).get("born"))
            if event is None or here not in event.results:
                continue
            given = [o.label for o in event.operands if o.label is not None]
            weight = next((g for g in given if (story.tensor(g, event.step) or {}).get("kind") == "parameter"), None)
            if weight is not None:
                return weight
            pending += given[:2]
        return None

    def input(self, each: LayerCall) -> tuple[str, ...]:
        """Return the labels, sorted, of the tensors from which the result of ``each`` was computed and that were not
        computed from any parameter: the input of the network.
        """
        found, pending, seen = list[str](), [each.event.operands[0].label], set[str | None]()
        while pending:
            here = pending.pop()
            if here is None or here in seen:
                continue
            seen.add(here)
            if self._is_learned(here):
                pending += self._given(here)
            elif (self.story.tensor(here) or {}).get("kind") != "parameter":
                found.append(here)
        return tuple(sorted(found))

    def _is_learned(self, label: str) -> bool:
        """Whether a parameter was used to compute the tensor."""
        pending = [label]
        while pending:
            here = pending[-1]
            given = self._given(here)
            kinds = [(self.story.tensor(each) or {}).get("kind") for each in given]
            rest = [each for each in given if each not in self._learned]
            if "parameter" in kinds or not rest:
                self._learned[here] = "parameter" in kinds or any(self._learned[each] for each in given)
                pending.pop()
            else:
                self._learned.setdefault(here, False)
                pending += rest
        return self._learned[label]

    def _given(self, label: str) -> list[str]:
        """The operands of the call that created the tensor, without the tensor itself; empty if no call created it."""
        event = self.story.event((self.story.tensor(label) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return []
        return [o.label for o in event.operands if o.label is not None and o.label != label]

    @cached_property
    def _learned(self) -> dict[str, bool]:
        return {}

    def measured(self, each: LayerCall) -> Event | None:
        """The call that computes a metric from the result; None if there is none, or if the result is used for
        training.

        It is used for training if it requires grad and a backward starts from a tensor computed from it, or if it does
        not require grad and a tensor computed from it does. Only the next ``FURTHER`` events are searched.
        """
        story, reached, measure = self.story, set(each.event.results), None
        recorded = bool((story.tensor(each.result, each.event.step) or {}).get("requires_grad"))
        for event in story.events[each.event.step + 1 : each.event.step + FURTHER]:
            if event.kind != "call" or not any(o.label in reached for o in event.operands):
                continue
            if event.name in ("backward", "grad") and recorded:
                return None
            for result in event.results:
                if not recorded and (story.tensor(result, event.step) or {}).get("requires_grad"):
                    return None  # a target, or an input of another part: used for training
                reached.add(result)
            if measure is None and event.name in MEASURES:
                measure = event
        return measure


def _dropped(event: Event) -> str:
    """The text of the argument ``dropout_p`` of an attention; "0" if there is none.

    By position it is the first number, as a mask that is None is not recorded.
    """
    given = argument(event, "dropout_p")
    plain = (o.text.strip() for o in event.operands if o.label is None and not o.name)
    return given.strip() if given is not None else next((each for each in plain if each not in ("True", "False")), "0")


def _is_on(event: Event, position: int) -> bool:
    """Whether the call has ``training=True`` (or ``train=True``); arguments that are False are not in the trace."""
    return (argument(event, "training", position) or argument(event, "train", position) or "False") == "True"
