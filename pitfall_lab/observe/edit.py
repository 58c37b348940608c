"""Writes a number to one element of a live tensor or array, and shows what changed in all tensors on the same storage:
:class:`EditedTensors` keeps a trace, to which each write adds an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.snapshot import Named, snapshot
from pitfall_lab.observe.swapping import Watching
from pitfall_lab.trace import Effect, Event, Operand, T
from pitfall_lab.trace.replay import replay

LENGTH = 60
"""The maximum length of the text for a number."""


class NotWritten(Exception):
    """Raised if nothing was written; ``text`` is the reason in one sentence, in English and Chinese."""

    def __init__(self, text: T) -> None:
        super().__init__(text.en)
        self.text = text


class EditedTensors:
    """Live tensors and arrays (``values``: pairs of name and object), held by weak references. ``trace`` first
    describes them as they are, and gets one more event for each write by :meth:`put`.
    """

    def __init__(self, values: Named) -> None:
        """Take a snapshot of ``values`` (see :func:`~pitfall_lab.observe.snapshot.snapshot`), and keep weak references
        to them.

        Objects that do not support weak references are left out.
        """
        self.trace = snapshot(values)
        self._values: dict[str, Callable[[], Any]] = {}
        for name, value in values:
            with suppress(TypeError):  # an object without weak references is neither a tensor nor an array
                self._values[name] = Watching(value)

    def put(self, label: str, index: Sequence[int], text: str) -> None:
        """Write the number in ``text`` to the element at ``index`` of the tensor or array with the label ``label``
        (``t1``) in the trace, and add an event to the trace. ``index`` has one non-negative integer for each axis.

        Raises:
            NotWritten: the tensor or element does not exist, the text is not a number of its dtype, or
                torch or NumPy raised an error.
        """
        state = replay(self.trace)
        record = state["tensors"].get(label) or {}
        name = str(record.get("name") or label)
        value = self._values.get(name, lambda: None)()
        if value is None:
            raise NotWritten(T(f"`{name}` no longer exists, so nothing was written.", f"`{name}` 已不存在，没有写入。"))
        if len(index) != value.ndim or not all(0 <= i < n for i, n in zip(index, value.shape, strict=True)):
            raise NotWritten(
                T(f"`{name}` has no element at {list(index)}.", f"`{name}` 没有下标为 {list(index)} 的元素。")
            )
        number = _number(text, value.dtype)
        _write(value, tuple(index), number)
        array = isinstance(value, np.ndarray)
        place = Operand(text=", ".join(map(str, index)))
        self._looked(
            Event(
                len(self.trace.events), "call", "numpy.ndarray.__setitem__" if array else "torch.Tensor.__setitem__",
                operands=(Operand(label), place, Operand(text=repr(number))), writes=(record["storage"],),
            ),
            state,
        )  # fmt: skip

    def _looked(self, event: Event, before: dict[str, Any]) -> None:
        """Read the objects that still exist again, and add ``event`` to the trace with all counters and values that
        differ from ``before``.

        Objects that no longer exist are marked as not alive.
        """
        alive = [(name, value) for name, ref in self._values.items() if (value := ref()) is not None]
        now = replay(snapshot(alive))
        names = {record["name"]: label for label, record in before["tensors"].items()}
        there = {names[record["name"]]: record for record in now["tensors"].values()}
        effects: dict[str, Any] = {f"tensors.{label}.alive": False for label in before["tensors"] if label not in there}
        for label, record in there.items():
            was = before["tensors"][label]
            if was["counter"] and record["counter"]:
                effects[f"counters.{was['counter']}"] = now["counters"][record["counter"]]
            cells = now["storages"][record["storage"]]
            if cells["size"] == before["storages"][was["storage"]]["size"]:
                effects[f"storages.{was['storage']}.cells"] = cells["cells"]
        changed = tuple(Effect(path, value) for path, value in effects.items() if value != _at(before, path))
        self.trace = replace(self.trace, events=(*self.trace.events, replace(event, effects=changed)))


def _at(state: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        state = state[key]
    return state


def _number(text: str, dtype: Any) -> Any:
    """Convert the text to a number of ``dtype``; the text is never evaluated as code.

    Raises :class:`NotWritten` if it is empty, too long, no number, or an integer out of range; for bool, if it is not
    ``true``, ``false``, ``0`` or ``1``.
    """
    name = str(dtype).removeprefix("torch.")
    kind = dtype.kind if isinstance(dtype, np.dtype) else _kind(dtype)
    said = text.strip()
    refused = NotWritten(
        T(f"“{said[:LENGTH]}” is not a number that {name} can hold.", f"“{said[:LENGTH]}” 不是 {name} 能存放的数。")
    )
    if not said or len(said) > LENGTH:
        raise refused
    try:
        if kind == "b":
            return {"true": True, "1": True, "false": False, "0": False}[said.lower()]
        number: Any = {"i": int, "u": int, "f": float, "c": complex}[kind](said)
    except (KeyError, ValueError):
        raise refused from None
    if kind in "iu":
        limits = np.iinfo(dtype) if isinstance(dtype, np.dtype) else torch.iinfo(dtype)
        if not limits.min <= number <= limits.max:
            raise refused
    return number


def _kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "b"
    return "c" if dtype.is_complex else "f" if dtype.is_floating_point else "i"


def _write(value: Any, index: tuple[int, ...], number: Any) -> None:
    who = "NumPy" if isinstance(value, np.ndarray) else "torch"
    try:
        # The learner's function modes (a recorder among them) must not see this write, and autograd must not record it.
        with unseen(), torch.no_grad():
            value[index] = number
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        first = str(error).split("\n", 1)[0][:200]
        raise NotWritten(T(f"{who} raised an error: {first}", f"{who} 报错：{first}")) from None
