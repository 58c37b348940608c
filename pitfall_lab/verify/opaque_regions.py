"""Records a region (a transformed, compiled or traced function) as one mirrored step: its results are copied from torch
(:class:`Passing`).

The end of a region cannot be observed. Its event is therefore written at the next call outside it, or at the program's
end, and its results are the tensors, not known before, that the region's line assigned or that are arguments of this
next call.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, regions, tensor_facts
from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.regions import Region
from pitfall_lab.trace import Effect, Event, Failure, Note, Operand, Span
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.catching_up import CatchingUp
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World
from pitfall_lab.verify.writer import TooLong


@dataclass(slots=True)
class _Stretch:
    """The data kept about a region that is running. It holds no reference to tensors or frames."""

    name: str
    reason: str
    key: tuple[int, int]
    frame: int
    span: Span | None
    scope: tuple[str, ...]
    step: int
    globals: dict[str, Any] | None
    """The global variables, if the region was entered from module level; else None."""
    operands: list[TensorRecord]
    effects: list[Effect]


class Passing:
    """Opens a region (a function that torch runs as a whole) at the first call inside it, and writes its event at the
    next call outside it.
    """

    def __init__(self, world: World, adoption: Adoption, meeting: CatchingUp) -> None:
        self._world, self._records, self._writer = world, world.records, world.writer
        self._adoption, self._meeting = adoption, meeting
        self._open: _Stretch | None = None
        self._noted: set[tuple[str, Span | None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether a region was entered whose event is not written yet."""
        return self._open is not None

    def enter(self, region: Region, span: Span | None, scope: tuple[str, ...]) -> None:
        """Called for each call observed inside ``region``, which the program entered at ``span``; the first one opens
        it, after the event of a region that was open before. ``scope`` are the names of the program's functions around
        it.

        Raises :class:`TooLong` if the trace is full.
        """
        if self._open is not None and self._open.key == region.key:
            return
        if self._writer.full:
            raise TooLong(self._writer.limit)
        self.leave(region.frame, ())
        self._world.writes_unseen = True
        step, effects = self._writer.reserve(), list[Effect]()
        self._note(region.name, span, step)
        operands: dict[int, TensorRecord] = {}
        for real in argument_values.tensors(region.arguments()):
            if not tensor_facts.is_opaque(real):
                if (
                    not regions.writes_down()
                ):  # while tracing, sizes are traced tensors: comparing them would warn and be traced too
                    effects += self._meeting.meet(real, region.frame)
                record = self._records.find(real)
                if record is not None:
                    operands[record.mark] = record
        known = list(operands.values())
        names = region.frame.f_globals if region.frame.f_code.co_name == "<module>" else None
        self._open = _Stretch(
            region.name, region.reason, region.key, id(region.frame), span, scope, step, names, known, effects
        )

    def _note(self, name: str, span: Span | None, step: int) -> None:
        """Add a note, once for each position, that the calls inside the region were not observed."""
        if (name, span) not in self._noted:
            self._noted.add((name, span))
            en = (
                f"{name} runs a function as one piece here: no call inside it was seen, so no rule "
                "looked at what it does."
            )
            zh = f"{name} 在这里把一个函数作为整体运行：其内部的调用都没有看到，因此没有规则检查它所做的事。"
            self._writer.notes.append(Note("unseen", en, zh, step, span))

    def leave(
        self, frame: FrameType | None, arguments: Any, failure: Failure | None = None, parent: int | None = None
    ) -> None:
        """Write the event of the open region, which the program has left; nothing happens if no region is open.

        ``arguments`` are those of the next call, which ``frame`` makes (None: the program has ended). ``failure``, the
        error that ended the program, becomes the event's error if it was raised on the region's line; ``parent`` is the
        step of the backward that runs (None: none).
        """
        stretch, self._open = self._open, None
        if stretch is None:
            return
        effects, results = stretch.effects, []
        readable = not regions.writes_down()  # as in ``enter``: where torch traces again, they are read later
        for known in stretch.operands if readable else ():
            real = known()
            effects += self._meeting.catch_up(real, regenerates=True) if real is not None else []
        for real, names in self._fresh(stretch, frame, arguments) if readable else ():
            record, more = self._adoption.adopt(real, frame, names)
            effects += more
            results.append(record.label)
        raised = failure if failure is not None and _same_line(failure.span, stretch.span) else None
        self._writer.mirrored += 1
        operands = tuple(Operand(known.label) for known in stretch.operands)
        self._writer.put(
            Event(
                stretch.step,
                "call",
                stretch.name,
                stretch.span,
                stretch.scope,
                parent,
                operands,
                tuple(results),
                effects=tuple(effects),
                error=raised,
                reason=stretch.reason,
            )
        )

    def _fresh(self, stretch: _Stretch, frame: FrameType | None, arguments: Any) -> list[tuple[Any, tuple[str, ...]]]:
        """New tensors, with their names: those assigned on the region's line, and the arguments of the next call."""
        named: dict[int, tuple[Any, tuple[str, ...]]] = {}
        scope = stretch.globals
        if scope is None and frame is not None and id(frame) == stretch.frame:
            scope = variables(frame)
        if scope is not None and stretch.span is not None:
            for name, _ in self._world.sources.targets_on(stretch.span, ""):
                for real in argument_values.tensors(scope.get(name)):
                    named.setdefault(id(real), (real, (name,) if real is scope.get(name) else ()))
        for real in argument_values.tensors(arguments):
            named.setdefault(id(real), (real, ()))
        return [(real, names) for real, names in named.values() if self._records.find(real) is None]


def _same_line(one: Span | None, other: Span | None) -> bool:
    return one is not None and other is not None and (one.source, one.line) == (other.source, other.line)
