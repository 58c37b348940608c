"""Searches after each line for what a torch function mode cannot observe (:class:`Unseen`): new tensors, changed
tensors, threads and processes.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from pitfall_lab.observe import private, regions, tensor_facts
from pitfall_lab.observe.expressions import attribute
from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.recorder import BACKWARD, Call, Enough
from pitfall_lab.trace import Effect, Event, Note, Operand, Span, T
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.catching_up import CatchingUp
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.description import Description, read
from pitfall_lab.verify.shared_state import World

#: Functions that create tensors unobserved: a word that the program must contain, the call's text, and
#: the function's qualified name.
MAKERS = (
    ("from_numpy", "from_numpy(", "torch.from_numpy"),
    ("autograd.Function", ".apply(", "torch.autograd.Function.apply"),
)


#: What changes the version counter or the storage of a tensor in C++, without a torch function being called.
RESETS = ("_unsafe_preserve_version_counter", "increment_version", ".set_(")

#: Makes torch keep, for each view, the function that recreates it after a write; that state
#: cannot be read from a tensor.
REPLAYS = "_force_original_view_tracking"
ANEW = T(
    "the program makes torch regenerate views with the functions that created them, which cannot be read from a tensor",
    "程序让 torch 用创建视图的函数重新生成视图，而张量上看不出这一点",
)

#: Creates memory that another process may write.
SHARING = "share_memory"

#: What may write the memory of any tensor, saved tensors included, without a torch function being called.
WRITERS = ("untyped_storage", "ctypes", SHARING)


#: What may increment a version in a call that is not observed, or gives a tensor another storage but
#: leaves it the old version counter.
COUNTED = (
    *RESETS,
    "autograd.Function",
    "DisableTorchFunction",
    "_dispatch",
    "Thread",
    "torch.jit",
    "torch.ops",
    "torch.library",
    "distributed",
    "parametriz",
    "resize_",
    ".set_(",
)


#: Compilers whose compiled functions are recorded as one step, with a function that returns
#: how many have been compiled.
COMPILERS = {"torch.compile": private.frames_compiled, "torch.jit.script": private.functions_scripted}


def _variable(frame: FrameType, name: str) -> Any:
    """The value of ``w`` or ``self.w``, if reading it runs no code; else None."""
    first, *attributes = name.split(".")
    value = variables(frame).get(first, frame.f_globals.get(first))
    for each in attributes:
        value = attribute(value, each)
    return value


class Unseen:
    """Finds what happened outside observed calls and writes it to the trace: as events, or as notes if no more is known
    than that it happened.
    """

    def __init__(
        self, world: World, describe: Description, memory: MemoryComparison, adoption: Adoption, meeting: CatchingUp
    ) -> None:
        self._world, self._records, self._writer, self._describe = world, world.records, world.writer, describe
        self._memory, self._adoption, self._meeting = memory, adoption, meeting
        self._expected: list[tuple[str, str, str]] = []
        self._resets = self._writes = self._replays = self._shares = self._has_processes = False
        self._before_swap: list[Effect] = []
        self._compiled = {name: count() for name, count in COMPILERS.items()}

    def expect(self, program: str) -> None:
        """Register what in the source of the program, ``program``, can create or change tensors unobserved, and start
        watching its lines if it contains one of the names for which this is needed.
        """
        self._expected = [maker for maker in MAKERS if maker[0] in program]
        self._resets = any(word in program for word in RESETS)
        self._writes = any(word in program for word in WRITERS)
        self._replays, self._shares = REPLAYS in program, SHARING in program
        self._world.writes_unseen |= any(word in program for word in COUNTED)
        if self._expected or self._resets or self._writes:
            self._world.lines.start(None)

    def line_done(self, frame: FrameType, span: Span | None, returned: Any) -> None:
        """Called after the line ``span`` has run in ``frame``: search for memory that was written and tensors that were
        created without an observed call. ``returned`` is what the function returned if the line ended it, else None.
        """
        if regions.writes_down():  # sizes are traced tensors there; all is looked at after the line that traces
            return
        self._memory.look_for_writes(span)
        self.catch_up(span)
        if span is None:
            return
        for _, text, op in self._expected:
            for name, where in self._world.sources.targets_on(span, text):
                self._made(frame, name, _variable(frame, name), where, op)
            answer = self._world.sources.returned_on(span, text) if returned is not None else None
            if answer is not None:
                self._made(frame, "", returned, answer, op)

    def before(self, call: Call) -> None:
        """Called before a call: search for what happened earlier on its line; before a backward, read again tensors
        that may have changed.

        Raises :class:`Enough`, which ends the recording, for a program that makes torch regenerate views by functions.
        """
        if self._replays:
            raise Enough(ANEW)
        self._memory.look_for_writes(None)
        if call.name in BACKWARD:
            self.catch_up(None)

    def catch_up(self, span: Span | None) -> None:
        """Read all tensors again if the program contains code that can change any of them unobserved; writes found in
        this way get an event at ``span``.
        """
        records = list(self._records.by_mark.values()) if self._resets or self._writes else ()
        for record in records:
            real = None if record.kind == "array" else record()
            if real is not None and self._resets:
                self._meeting.catch_up(real)
            if real is not None and self._writes and record.storage is not None:
                self._memory.catch_up(record.storage, real, span, announce=True)

    # ------------------------------------------------------------------ compiled code, other threads

    def note_compiled(self) -> None:
        """Add a note for each compiler that has compiled code of the program during the recording, whose calls cannot
        be observed.
        """
        for name, count in COMPILERS.items():
            if count() > self._compiled[name] and not any(
                note.kind == "unseen" and name in note.en for note in self._writer.notes
            ):
                en = (
                    f"{name} compiled code of the program: no call inside it was seen, so no rule "
                    "looked at what it does."
                )
                zh = f"{name} 编译了程序的代码：其内部的调用都没有看到，因此没有规则检查它所做的事。"
                self._writer.notes.append(Note("unseen", en, zh))

    def note_threads(self) -> None:
        """Add a note for each source position where another thread used torch."""
        for op, span in self._world.other_threads.look():
            where_en, where_zh = ("", "") if span is None else (f" (line {span.line})", f"（第 {span.line} 行）")
            en = f"Another thread used torch, first {op}{where_en}: that was not recorded."
            en += " Tensors that it may have changed are read again from torch."
            zh = (
                f"另一个线程使用了 torch，首先是 {op}{where_zh}：这部分没有记录。它可能改变过的张量改"
                "为重新从 torch 读取。"
            )
            self._writer.notes.append(Note("unseen", en, zh, len(self._writer.events), span))

    def look_again(self) -> list[Effect]:
        """Copy to the shadow what another thread, which has used torch, may have changed, and add notes on where it
        used it; return the effects.
        """
        self.note_threads()
        effects: list[Effect] = []
        for record in list(self._records.by_mark.values()):
            real = None if record.kind == "array" else record()
            if real is not None:
                effects += self._meeting.catch_up(real, announce=True)
                self._release(
                    tensor_facts.node_of(real)
                    if record.shadow is not None and not record.shadow.has_stale_grad_fn
                    else None
                )
        return effects

    def _release(self, node: Any) -> None:
        """Mark as freed the nodes behind ``node`` whose saved tensors an unobserved backward has freed."""
        stack, seen = [node], set[Any]()
        while stack:
            node = stack.pop()
            mine = None if node is None or node in seen else self._records.nodes.get(tensor_facts.node_key(node))
            seen.add(node)
            if mine is not None:
                if not mine.freed and tensor_facts.is_freed(node):
                    mine.release()
                stack += [child for child, _ in tensor_facts.next_nodes(node)]

    # ------------------------------------------------------------------ other processes

    def process_started(self, frame: FrameType) -> None:
        """Add a note, once, that other processes are not recorded.

        If they may share memory, all tensors are read again at each call.
        """
        if self._shares:
            self._world.other_threads.assume_writes()
        if self._has_processes:
            return
        self._has_processes = True
        learners = self._world.sources.user_frame(frame)
        span = None if learners is None else self._world.sources.span(learners)
        where_en, where_zh = ("", "") if span is None else (f" (line {span.line})", f"（第 {span.line} 行）")
        en = f"The program started another process{where_en}: what it does with torch there is not recorded."
        zh = f"程序启动了另一个进程{where_zh}：它在其中对 torch 的使用没有记录。"
        self._writer.notes.append(Note("unseen", en, zh, len(self._writer.events), span))

    # ------------------------------------------------------------------ swaps

    def swapping(self, one: Any, other: Any, frame: FrameType) -> None:
        """Called before the tensors ``one`` and ``other`` are swapped in ``frame``: make sure that both have a record,
        unless the trace is full.
        """
        self._before_swap = (
            [] if self._writer.full else [*self._meeting.meet(one, frame), *self._meeting.meet(other, frame)]
        )

    def swapped(self, one: Any, other: Any, frame: FrameType) -> None:
        """Called after two tensors were swapped in ``frame``: swap their shadows and write the event. Names and labels
        stay with the objects.

        Nothing happens if one of them has no record, if no code of the program made the call, or if the trace is full.
        """
        first, second = self._records.find(one), self._records.find(other)
        learners = self._world.sources.user_frame(frame)
        if first is None or second is None or learners is None or self._writer.full:
            return
        for record in (first, second):
            shadow = record.shadow
            if shadow is not None and shadow.accumulator is not None and shadow.accumulator() is not None:
                self._world.engine.suspicious = (
                    True  # torch put a hook on this node that raises when a backward reaches it
                )
        self._records.exchange(first, second)
        step, effects, self._before_swap = self._writer.reserve(), self._before_swap, []
        for record, real in ((first, one), (second, other)):
            effects += self._describe.tensor(record, read(record, real), "observed")
        self._writer.mirrored += 1
        op, reason = (
            "torch.utils.swap_tensors",
            "a call of swap_tensors cannot be observed; both tensors were read after it",
        )
        span, scope = self._world.sources.span(learners), self._world.sources.scope(learners)
        labels = tuple(Operand(record.label) for record in (first, second))
        self._writer.put(Event(step, "call", op, span, scope, operands=labels, effects=tuple(effects), reason=reason))

    # ------------------------------------------------------------------ makers

    def _made(self, frame: FrameType, name: str, real: Any, where: Span, op: str) -> None:
        """Write the event that creates the tensor ``real``, which has the name ``name``, unless it is in the trace
        already.

        A known tensor gets one too if its grad_fn is new. Nothing is written if ``real`` is no tensor, or if the trace
        is full.
        """
        if not tensor_facts.is_tensor(real) or self._writer.full:
            return
        known = self._records.find(real)
        stale = known is not None and known.shadow is not None and known.shadow.has_stale_grad_fn
        node = None if known is None or stale else tensor_facts.node_of(real)
        if known is not None and (node is None or tensor_facts.node_key(node) in self._records.nodes):
            return
        step = self._writer.reserve()
        if known is None:
            record, effects = self._adoption.adopt(real, frame, (name,) if name else ())
        else:  # it was created inside ``forward``, where it had another name or none
            record, effects = known, self._meeting.catch_up(real)
            if name and record.names[-1:] != (name,):
                record.names += (name,)
                effects = [*effects, *self._describe.names(record)]
        living = self._records.live(record.storage) if record.storage is not None else ()
        arrays = tuple(Operand(other.label) for other, _ in living if other.kind == "array")
        self._writer.mirrored += 1
        reason = f"a call of {op} cannot be observed; its result was read after the line"
        self._writer.put(
            Event(
                step, "call", op, where, operands=arrays, results=(record.label,), effects=tuple(effects), reason=reason
            )
        )
