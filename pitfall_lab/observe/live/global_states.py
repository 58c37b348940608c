"""Finds global settings of torch that a cell has changed and not set back: the default dtype and device, grad mode,
anomaly mode and deterministic algorithms (:meth:`States.compare`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import torch

from pitfall_lab.observe.live.found import Found, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, is_own, tables
from pitfall_lab.observe.tensor_facts import dtype_name

Setting = Literal["dtype", "device", "grad", "anomaly", "deterministic"]
_AT_FIRST: dict[Setting, str] = {
    "dtype": "float32",
    "device": "cpu",
    "grad": "on",
    "anomaly": "off",
    "deterministic": "off",
}
MOST = 3


class Kind(NamedTuple):
    """A floating-point tensor, or a module with parameters: ``name`` is its name (or the expression for it), ``dtype``
    (``float32``) and ``device`` (the type: ``cpu``) are those of the tensor, or of the module's first parameter.
    """

    name: str
    dtype: str
    device: str


class Switched(NamedTuple):
    """A global ``setting`` of torch that cell ``cell`` (None: unknown) changed from ``before`` to ``now``: the default
    ``dtype`` (``float32``) or ``device`` (``cpu``), or ``grad`` mode, ``anomaly`` mode or ``deterministic`` algorithms
    (``on`` or ``off``).

    ``later``: tensors or modules existed already when it was changed. ``others`` are names of tensors and modules whose
    dtype or device is still ``before``, at most :data:`MOST`; only for dtype and device.
    """

    setting: Setting
    before: str
    now: str
    cell: int | None
    later: bool
    others: tuple[str, ...] = ()


class States:
    """Remembers which cell has changed a setting from torch's initial value."""

    def __init__(self) -> None:
        self._last: dict[Setting, str] = dict(_AT_FIRST)
        self._switched: dict[Setting, Switched] = {}
        self._started = self._any = False

    def ended(self, cell: int, *, torch_is_new: bool) -> None:
        """Called after cell ``cell`` has run, in the thread that ran it, as grad mode belongs to the thread.

        ``torch_is_new``: the cell has imported torch; if it is False at the first call, the cell that changed a setting
        is unknown.
        """
        known = self._started or torch_is_new
        self._started = True
        for setting, now in read().items():
            if now == _AT_FIRST[setting]:
                self._switched.pop(setting, None)
            elif now != self._last[setting]:
                self._switched[setting] = Switched(
                    setting, self._last[setting], now, cell if known else None, self._any
                )
            self._last[setting] = now

    def of(self, setting: Setting) -> Switched | None:
        """The change of ``setting``: the values before and after, and the cell; None if it has torch's initial
        value.
        """
        return self._switched.get(setting)

    def compare(self, found: Found) -> list[Switched]:
        """The settings that a cell has changed after tensors or modules had been created; dtype and device only if a
        tensor or module with the earlier value still exists.

        An empty list if there are none. ``found`` is what the notebook's names lead to.
        """
        self._any = self._any or bool(found.tensors or found.modules or found.optimizers)
        made = []
        for each in self._switched.values():
            others = _others(found, each) if each.setting in ("dtype", "device") else ()
            if others or (each.later and each.setting not in ("dtype", "device")):
                made.append(each._replace(others=others))
        return made


def read() -> dict[Setting, str]:
    """The present values of the settings."""
    device = torch.get_default_device().type if hasattr(torch, "get_default_device") else "cpu"
    return {
        "dtype": dtype_name(torch.get_default_dtype()), "device": device,
        "grad": "on" if torch.is_grad_enabled() else "off", "anomaly": "on" if torch.is_anomaly_enabled() else "off",
        "deterministic": "on" if torch.are_deterministic_algorithms_enabled() else "off",
    }  # fmt: skip


def kinds(things: Iterable[Thing]) -> list[Kind]:
    """The name, dtype and device of each floating-point tensor, and each module with a floating-point first parameter,
    among ``things``.
    """
    found = []
    for thing in things:
        tensor = thing.value if thing.kind == "tensor" else _first(thing.value) if thing.kind == "module" else None
        if tensor is not None and is_own(tensor) and tensor.is_floating_point():
            found.append(Kind(thing.text, dtype_name(tensor.dtype), tensor.device.type))
    return found


def _first(module: Any) -> Any:
    """The first parameter of a module or of those inside it; None if there is none."""
    work, seen = [module], {id(module)}
    for each in work:  # the list grows during the iteration
        parameters, _, children = tables(each)
        for value in parameters.values():
            if value is not None:
                return value
        for child in children.values():
            if Kinds().of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append(child)
    return None


def _others(found: Found, switched: Switched) -> tuple[str, ...]:
    some = (
        each
        for each in kinds(found.names)
        if (each.dtype if switched.setting == "dtype" else each.device) == switched.before
    )
    return tuple(each.name for each in some)[:MOST]
