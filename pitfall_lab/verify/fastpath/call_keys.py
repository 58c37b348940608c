"""Computes the key of a call (:class:`CallKeys`).

Calls with equal keys share a plan: same function, mode, tensor forms (shape, strides, dtype and so on) and other
arguments. A plan describes what the shadow does in such a call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.private import (
    any_autocast,
    dispatch_modes,
    fx_tracer,
    has_switches,
    jit_tracer,
    saved_tensor_hooks,
    transform,
)
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
"""How long a list among the arguments of a call may be for the call to get a key."""
_is_inference, _default_dtype = torch.is_inference_mode_enabled, torch.get_default_dtype
_is_deterministic = torch.are_deterministic_algorithms_enabled
_FLOAT32 = torch.float32
_HAS_SIGNS = has_switches and saved_tensor_hooks is not None
"""Whether torch shows that a transform, a tracer or saved-tensor hooks are on."""
MODE = -1
GETITEM = torch.Tensor.__getitem__
_SPECIAL = frozenset(
    {
        GETITEM,
        *(
            getattr(home, name)
            for home in (torch, torch.Tensor)
            for name in ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter")
            if hasattr(home, name)
        ),
    }
)
"""Functions that create a view at any offset.

Except for ``x[...]``, the result depends on the operand's storage offset.
"""
_SAME_FORM = frozenset(
    getattr(torch.Tensor, name.removeprefix("torch.Tensor."))
    for name, entry in ENTRIES.items()
    if "same_form" in entry.traits and name.startswith("torch.Tensor.")
)
"""Methods whose result has the same form for every value of a number argument."""
_CONSTANT = frozenset({int, float, bool, str, type(None)})
_PLAIN = frozenset(
    {int, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, type(Ellipsis)}
)


class CallKeys:
    """Computes the key of a call, which selects the plan for it, and thereby finds the records of its operands.

    ``may_meet()`` returns whether a tensor that is not known yet may be entered without the full path.
    """

    def __init__(self, world: World, adoption: Adoption, forms: Forms, may_meet: Callable[[], bool]) -> None:
        self._may_meet, self._adoption, self._forms = may_meet, adoption, forms
        self._writer, self._records, self._by_id = world.writer, world.records, world.records.by_id
        self._follows_values, self._other_threads = world.limit >= 0, world.other_threads
        self.plain: list[Any] = []
        """The number arguments of the last call, if they are not part of its key; or the index, if ``x[...]`` returned
        a view.
        """
        self.met: dict[int, list[Effect]] = {}
        """Effects found for the call that is about to run: tensors seen for the first time, by their id, and a changed
        mode, by MODE.
        """
        self.epoch = 0
        """Increased by whatever may change a tensor's form; cached forms of an earlier epoch are computed again."""
        self.grad, self.inference = True, False
        """The mode (grad mode, inference mode) that the trace has recorded last."""

    def of(self, func: Any, args: Any, kwargs: Any, operands: list[TensorRecord], frame: FrameType | None) -> Any:
        """Return the key of a call, or None if it cannot have a plan. The records of its tensors are appended to
        ``operands``.

        With ``frame``, the frame of the learner's code, tensors seen for the first time get a record; with None a call
        with such tensors has no key.
        """
        key: list[Any] = [func, self.grad]
        special = func in _SPECIAL
        if special and func is GETITEM and not kwargs:
            index = argument_values.index_of(args[1])
            window = _window(args[0], index)
            if window is not None:
                self.plain = [index]
                return (*key, window) if self._gather(args[:1], key, operands, frame) else None
            if type(args[1]) is list:  # which rows it picks is noted on the full path
                return None
        plain: list[Any] | None = [] if self._follows_values or (not self.grad and func in _SAME_FORM) else None
        if not self._gather(args, key, operands, frame, plain) or (
            kwargs and not self._gather_named(kwargs, key, operands, frame, plain)
        ):
            return None
        if plain is not None:
            # If the shadow runs the entry itself and no node is made, calls with other numbers can use the same plan.
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
        """Return the arguments that the next call of this line must have to use the function compiled for it
        (:mod:`.call_sites`): plain values, and for a tensor its form.

        None if it cannot use one: there must be one or two tensors, on different storages, none of them a leaf that
        requires grad, and otherwise only plain constants.
        """
        if len(operands) not in (1, 2) or any(record.form.is_flagged for record in operands):
            return None
        if len(operands) == 2 and operands[0].shadow.storage is operands[1].shadow.storage:  # type: ignore[union-attr]
            return None
        forms = {id(record()): record.form for record in operands}
        wanted = tuple([forms.get(id(value), value) for value in args])
        return wanted if all(type(value) is Form or type(value) in _CONSTANT for value in wanted) else None

    def _gather(  # noqa: C901, PLR0912 - runs before every call
        self,
        args: Any,
        key: list[Any],
        operands: list[TensorRecord],
        frame: FrameType | None,
        plain: list[float] | None = None,
    ) -> bool:
        """Append the parts of the key to ``key`` and the records of tensors to ``operands``.

        False if the call cannot have a plan. With ``frame``, the frame of the learner's code, tensors seen for the
        first time are adopted. ``plain`` collects arguments that are floats.
        """
        add = key.append
        for value in args:
            kind = type(value)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                # The record is removed when its tensor dies, so a record found by id belongs to this tensor.
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
                    # Whether the leaf already has its AccumulateGrad, or this call creates it.
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
        self,
        kwargs: Any,
        key: list[Any],
        operands: list[TensorRecord],
        frame: FrameType | None,
        plain: list[float] | None,
    ) -> bool:
        key += kwargs
        return self._gather(kwargs.values(), key, operands, frame, plain)

    def _adopted(self, real: Any, frame: FrameType) -> TensorRecord | None:
        """Adopt a tensor for the call that is about to run; None if an event must be written first, as for a tensor on
        known memory.
        """
        if not self._may_meet():
            return None
        seen = tensor_facts.read(real)
        if self._records.storage_of(seen) is not None:
            return None  # known memory may have been written since; that write gets an event of its own first
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
            # the shadow stores bfloat16 in elements of another size
            usable = record.shadow.storage.data.itemsize == record.storage.itemsize and len(record.storage.impls) == 1  # type: ignore[union-attr]
        record.form = form = self._forms.of(record.shadow) if usable else None  # type: ignore[arg-type]
        return form

    def are_usual(self) -> bool:
        """Whether modes and settings are the usual ones; plans exist only for these."""
        return not (
            _is_inference()
            or self.inference
            or self._other_threads.happened
            or _default_dtype() is not _FLOAT32
            or any_autocast()
            or _is_deterministic()
            or not _HAS_SIGNS
            or saved_tensor_hooks(True) is not None  # type: ignore[misc]
            or dispatch_modes()
            or transform() is not None
            or jit_tracer() is not None
            or fx_tracer()
        )


@cache
def _writes(func: Any) -> bool:
    """Whether a function writes its first operand, or has no entry; then the offsets of the other operands in the same
    storage matter.
    """
    entry = ENTRIES.get(name_of(func))
    return entry is None or entry.kind == "inplace"


def _window(real: Any, index: Any) -> tuple[Any, ...] | None:
    """The key of an index of integers, slices, None and ``...``; None for any other.

    Indices with equal keys give views of one shape.
    """
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
            if (
                not 0 <= dim < dims
                or not all(x is None or type(x) is int for x in (first, end, by))
                or (by is not None and by < 1)
            ):
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
