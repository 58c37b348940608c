"""Kinds: what calls have in common that follow one plan: the function, the mode, the forms of their tensors and their other arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe import argument_values, regions, tensor_facts
from pitfall_lab.observe.looking import dispatching
from pitfall_lab.observe.torch_names import name_of
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.recipes import Form, Forms
from pitfall_lab.trace import Effect
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.catching_up import SEARCHES
from pitfall_lab.verify.fastpath.call_sites import TENSORS
from pitfall_lab.verify.fastpath.value_checks import holds
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World

ITEMS = 64
"""Longer lists among the arguments are not looked through."""
_is_inference, _default_dtype = torch.is_inference_mode_enabled, torch.get_default_dtype
_FLOAT32 = torch.float32
MODE = -1
GETITEM = torch.Tensor.__getitem__
_SPECIAL = frozenset({GETITEM, *(
    getattr(home, name) for home in (torch, torch.Tensor) for name in ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter")
    if hasattr(home, name)
)})  # fmt: skip
"""The functions that open a window anywhere; what those besides ``x[...]`` do depends on where in the memory their operand begins."""
_SCALING = frozenset(
    getattr(torch.Tensor, name + end) for name in ("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp") for end in ("", "_")
)
"""What they make is of the same kind whatever the number is that they are given."""
_CONSTANT = frozenset({int, float, bool, str, type(None)})
_PLAIN = frozenset({int, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, type(Ellipsis)})


class Kinds:
    """Tells the kind of a call, and finds its operands."""

    def __init__(self, world: World, adoption: Adoption, forms: Forms, may_meet: Callable[[], bool]) -> None:
        self._may_meet, self._adoption, self._forms = may_meet, adoption, forms
        self._writer, self._records, self._by_id = world.writer, world.records, world.records.by_id
        self._follows_values, self._elsewhere = world.limit >= 0, world.elsewhere
        self.plain: list[Any] = []
        """The plain numbers among the last call's arguments, where another call of its kind may have others; or the index of a window."""
        self.met: dict[int, list[Effect]] = {}
        """What was noted for the call that is about to run: tensors that were met for the first time, by their id, and the MODE."""
        self.epoch = 0
        """Raised by whatever may change a tensor's form: forms of an earlier epoch are looked at again."""
        self.grad, self.inference = True, False
        """The mode that the trace has noted."""

    def of(self, func: Any, args: Any, kwargs: Any, operands: list[TensorRecord], frame: FrameType | None) -> Any:
        """What calls have in common that follow one plan; finds the operands. None if the call cannot have one."""
        key: list[Any] = [func, self.grad]
        special = func in _SPECIAL
        if special and func is GETITEM and not kwargs:
            index = argument_values.index_of(args[1])
            window = _window(args[0], index)
            if window is not None:
                self.plain = [index]
                return (*key, window) if self._gather(args[:1], key, operands, frame) else None
        plain: list[Any] | None = [] if self._follows_values or (not self.grad and func in _SCALING) else None
        if not self._gather(args, key, operands, frame, plain) or (kwargs and not self._gather_named(kwargs, key, operands, frame, plain)):
            return None
        if plain is not None:
            # Where the shadow does the call itself, and no node is made, another call of the kind may have other plain numbers.
            is_open = operands and not (self.grad and any(record.form.requires_grad for record in operands))
            if not is_open:
                key += [value or repr(value) for value in plain]  # 0.0 equals -0.0
            self.plain = plain if is_open else []
        else:
            self.plain = []
        if special and func is not GETITEM:
            key += [record.shadow.offset for record in operands]  # type: ignore[union-attr]
        return tuple(key)

    def wanted_again(self, args: Any, operands: list[TensorRecord]) -> tuple[Any, ...] | None:
        """What the next call of a line must be given to be of the same kind (see :class:`Again`); None where it takes more to tell."""
        if len(operands) not in (1, 2) or any(record.form.is_flagged for record in operands):
            return None
        if len(operands) == 2 and operands[0].shadow.storage is operands[1].shadow.storage:  # type: ignore[union-attr]
            return None
        forms = {id(record()): record.form for record in operands}
        wanted = tuple([forms.get(id(value), value) for value in args])
        return wanted if all(type(value) is Form or type(value) in _CONSTANT for value in wanted) else None

    def _gather(  # noqa: C901, PLR0912 - runs before every call
        self, args: Any, key: list[Any], operands: list[TensorRecord], frame: FrameType | None, plain: list[float] | None = None
    ) -> bool:
        """Make the key of a call's kind and find its operands. False if it cannot have a plan.

        With the learner's ``frame``, operands that are seen for the first time are taken over. ``plain`` collects the plain numbers that
        are arguments themselves.
        """
        add = key.append
        for value in args:
            kind = type(value)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                # A record goes with its tensor: what is found by the id is the tensor's.
                record = self._by_id.get(id(value))
                if record is None:
                    record = None if frame is None else self._adopted(value, frame)
                    if record is None:
                        return False
                form = record.form if record.epoch == self.epoch else self._form_of(record)
                if form is None:
                    return False
                shadow: Any = record.shadow
                if shadow.counter.version != value._version or form.requires_grad is not value.requires_grad:
                    return False
                data = shadow.storage.data
                if data is not None and not holds(value, record.storage, data):  # type: ignore[arg-type]
                    return False
                add(form)
                if form.is_flagged:
                    # Whether the leaf has its AccumulateGrad already, or the call makes it.
                    add(shadow.accumulator is not None and shadow.accumulator() is not None)
                if operands:
                    for place, other in enumerate(operands):
                        if other.shadow.storage is shadow.storage:  # type: ignore[union-attr]
                            add(place if other is record else -1 - place)
                            if _writes(key[0]):
                                add(shadow.offset - other.shadow.offset)  # type: ignore[union-attr]
                operands.append(record)
            elif kind is float:
                add(kind)
                if plain is None:
                    add(value or repr(value))  # 0.0 equals -0.0
                else:
                    plain.append(value)
            elif kind in _PLAIN:
                add(kind)
                add(value)
            elif (kind is tuple or kind is list or kind is torch.Size) and len(value) <= ITEMS:
                add(kind)
                add(len(value))
                if not self._gather(value, key, operands, frame):
                    return False
            elif kind is slice:
                add(kind)
                if not self._gather((value.start, value.stop, value.step), key, operands, frame):
                    return False
            else:
                return False
        return True

    def _gather_named(
        self, kwargs: Any, key: list[Any], operands: list[TensorRecord], frame: FrameType | None, plain: list[float] | None
    ) -> bool:
        key += kwargs
        return self._gather(kwargs.values(), key, operands, frame, plain)

    def _adopted(self, real: Any, frame: FrameType) -> TensorRecord | None:
        """Meet a tensor on behalf of the call that is about to run, if nothing else has to be told before."""
        if not self._may_meet():
            return None
        seen = tensor_facts.read(real)
        if self._records.storage_of(seen) is not None:
            return None  # memory that is known may have been written since: that has to be told
        step = self._writer.reserve()
        record, effects = self._adoption.adopt(real, frame, seen=seen)
        self._writer.drop(step)
        self.met[id(real)] = effects
        return record

    def _form_of(self, record: TensorRecord) -> Form | None:
        record.epoch = self.epoch
        unnamed = record.kind == "parameter" and not record.names and record.searches < SEARCHES
        usable = record.shadow is not None and record.place is not None and not unnamed and record() is not None
        if usable and record.shadow.storage.data is not None:  # type: ignore[union-attr]
            # bfloat16 is followed in numbers of another width
            usable = record.shadow.storage.data.itemsize == record.storage.itemsize and len(record.storage.impls) == 1  # type: ignore[union-attr]
        record.form = form = self._forms.of(record.shadow) if usable else None  # type: ignore[arg-type]
        return form

    def are_usual(self) -> bool:
        """Whether the program's settings are those that plans are made under."""
        return (
            not (_is_inference() or self.inference)
            and not tensor_facts.packs()
            and _default_dtype() is _FLOAT32
            and not (
                tensor_facts.autocasting() or tensor_facts.deterministic() or regions.tracing() or dispatching() or self._elsewhere.happened
            )
        )


@cache
def _writes(func: Any) -> bool:
    """Whether a function writes its first operand: it matters then how others lie in the same memory."""
    entry = ENTRIES.get(name_of(func))
    return entry is None or entry.kind == "inplace"


def _window(real: Any, index: Any) -> tuple[Any, ...] | None:
    """What indices of numbers, slices, None and ``...`` have in common that open windows of one kind; None for others."""
    shape = real.shape if type(real) in TENSORS else ()
    items = index if type(index) is tuple else (index,)
    key: list[Any] = [type(index) is tuple]
    dim, dims = 0, len(shape)
    for item in items:
        kind = type(item)
        if kind is int:
            if not 0 <= dim < dims or not -shape[dim] <= item < shape[dim]:
                return None
            key.append(int)
        elif kind is slice:
            first, end, by = item.start, item.stop, item.step
            if not 0 <= dim < dims or not all(x is None or type(x) is int for x in (first, end, by)) or (by is not None and by < 1):
                return None
            start, stop, step = item.indices(shape[dim])
            key.append((max(0, -((start - stop) // step)), step, not first, max(start, stop) == shape[dim]))
        elif item is None:
            key.append(None)
            continue
        elif item is Ellipsis and item not in key:
            key.append(item)
            dim = dims - sum(type(other) in (int, slice) for other in items) + dim
            continue
        else:
            return None
        dim += 1
    return tuple(key) if len(key) > 1 + key.count(None) + key.count(Ellipsis) else None
