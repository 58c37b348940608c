"""Gives a call's result the name of the variable to which it is assigned, and describes the call's operands
(:class:`Naming`).
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace import Effect, Event, Operand, Span
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World

MOST_OPERANDS = 64
"""How many tensors of one container are shown at most."""


class Naming:
    """Gives the results of calls the names of the variables to which they are assigned.

    A name is removed again if a later step of the same line produces the value that is assigned.
    """

    def __init__(self, world: World, describe: Description) -> None:
        self._sources, self._records, self._writer = world.sources, world.records, world.writer
        self._describe = describe
        self.step = -1
        self.span: Span | None = None
        """The span of the call whose result was named last; ``step`` is its step."""
        self.record: TensorRecord | None = None

    def name_results(self, call: Call, results: list[str], step: int) -> list[Effect]:
        """Give the result of ``call`` the name of its variable; ``results`` are the labels of its results. Return the
        effects for the trace.

        Inside a module's call, each step counts as the result until the next one. No effects for several results, for
        one that is assigned to no variable, or for a tensor in an object under construction.
        """
        if call.span is None or len(results) != 1 or (not call.direct and _is_being_built(call.frame)):
            return []
        name, record = self._sources.target(call.span), self._records.named(results[0])
        if name is None or record is None:
            return []
        mine, taken = self._claim(name, call.span, record, step)
        effects = self._describe.names(taken) if taken is not None else []
        return effects + self._describe.names(record) if mine else effects

    def name_gradients(self, call: Call, gradients: Any, step: int) -> list[Effect]:
        """Give the gradients that ``torch.autograd.grad`` returned, always as a tuple, the names of the variables to
        which they are unpacked; return the effects for the trace.

        Elements of other tuples get names only where they are drawn: their calls may take the fast path, which gives
        none. With ``create_graph`` a step of the backward, which comes after the call's own, has created the gradient:
        then its name is added to the last such step and is not among the effects returned.
        """
        effects: list[Effect] = []
        last = self._writer.events[-1]
        for number, gradient in enumerate(gradients if isinstance(gradients, tuple) else ()):
            record = self._records.find(gradient) if tensor_facts.is_tensor(gradient) else None
            name = (self._sources.part_target(call.span, number) if call.span is not None else None) or "_"
            if record is None or name == "_" or record.names[-1:] == (name,):
                continue
            is_later = record.born > step
            if is_later and not isinstance(last, Event):
                continue
            record.names += (name,)
            named = self._describe.names(record)
            if is_later and isinstance(last, Event):
                last = replace(last, effects=(*last.effects, *named))
                self._writer.put(last)
            else:
                effects += named
        return effects

    def claim(
        self, name: str, span: Span | None, record: TensorRecord, step: int, outside: FrameType | None
    ) -> tuple[Any, Any] | None:
        """Give the result of a call on the fast path, ``record``, this name; return its names, and (mark, names) of the
        tensor that lost its name to it.

        Each is None if unchanged, and None is returned if both are. ``outside`` is the learner's frame if library code
        that it called makes the call, else None.
        """
        if outside is not None and _is_being_built(outside):
            return None
        mine, taken = self._claim(name, span, record, step)
        if taken is not None:
            self._writer.rename(taken.mark, taken.names)
        if mine and record.born != step:
            self._writer.rename(record.mark, record.names)
        lost = None if taken is None else (taken.mark, taken.names)
        return (record.names if mine else None, lost) if mine or lost else None

    def _claim(self, name: str, span: Span | None, record: TensorRecord, step: int) -> tuple[bool, TensorRecord | None]:
        """Give the result its name.

        Returns whether that changed its names, and the record that lost the name, if any.
        """
        taken = None
        before = self.record
        if (
            before is not None
            and self.step == step - 1
            and span == self.span
            and before is not record
            and before.names[-1:] == (name,)
        ):
            before.names = before.names[:-1]
            taken = before
        self.step, self.span, self.record = step, span, record
        mine = record.names[-1:] != (name,)
        if mine:
            record.names += (name,)
        return mine, taken

    def operands(self, call: Call) -> tuple[Operand, ...]:
        """Return the call's operands for the trace: tensors by their labels, everything else as text; arguments None
        and False are left out.
        """
        found = [self._operand(value, "") for value in call.args] + [
            self._operand(value, key) for key, value in call.kwargs.items()
        ]
        shown = itertools.chain.from_iterable(found)
        # torch's Python functions pass on their default arguments, which the program did not write
        return tuple(operand for operand in shown if operand.label or operand.text not in ("None", "False"))

    def _operand(self, value: Any, name: str) -> list[Operand]:
        if tensor_facts.is_tensor(value):
            record = self._records.find(value)
            return [Operand(record.label if record else None, "" if record else "<tensor>", name)]
        inside = list(itertools.islice(argument_values.tensors(value), MOST_OPERANDS))
        if inside:
            labels = [record.label for real in inside if (record := self._records.find(real)) is not None]
            return [Operand(label, "", name) for label in labels]
        return [Operand(None, argument_values.text(value), name)]


def _is_being_built(frame: FrameType) -> bool:
    """Whether the call is made inside a constructor that the learner's ``frame`` called; then its result is only stored
    in the object.
    """
    walk: FrameType | None = sys._getframe(1)
    while walk is not None and walk is not frame:
        if walk.f_code.co_name in ("__init__", "reset_parameters"):
            return True
        walk = walk.f_back
    return False
