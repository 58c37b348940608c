"""Computes what a broadcast of a column ``(N, 1)`` with a vector ``(N,)`` would have given for the matching pairs only
(:class:`Pairs`).

A trace has only the first and last values of a long tensor, so this is computed in addition to the program: the call
that makes the N × N table is repeated without the column's last axis, and so are the next calls, until a single number
is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe import argument_values
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = operations_that("difference_loss")
PAIRING = (
    LOSSES | spellings("add", "eq", "mul", "ne") | spellings("div", "sub", exchanged=True)
    | {"maximum", "minimum", "max", "min", "broadcast_tensors"}
)  # fmt: skip
"""The calls that may make an N × N table of two operands."""
FOLLOWED = (
    PAIRING | spellings("abs", "bitwise_and", "bitwise_not", "clamp", "ge", "gt", "le", "lt", "neg", "pow", "sigmoid")
    | {"square", "sqrt", "exp", "log", "log1p", "clamp_min", "clamp_max", "where", "relu", "tanh", "softplus",
       "logsigmoid", "float", "double", "half", "long", "int", "to", "type", "logical_not", "logical_and", "mean",
       "sum", "norm", "vector_norm", "nanmean", "nansum", "count_nonzero"}
)  # fmt: skip
"""The calls that can be repeated: they draw no random numbers, and treat each pair in the same way or reduce."""
PLAIN = (torch.Tensor, torch.nn.Parameter)
FURTHER = 60
"""How many calls are examined after the one that made a table."""
MOST = 1 << 20
"""How long the vector may be."""
EACH, ALL = 2, 40
"""How many tables made at one position in the program are followed at most, and at how many positions."""


class PairedNumbers(NamedTuple):
    """A number that was computed from an N × N table of all pairs.

    ``step`` is the step of the call that made the table by broadcasting, ``number`` the step of the call whose result,
    one number, is ``came``; ``meant`` is what the same calls give for the ``rows`` (N) matching pairs only.
    """

    step: int
    number: int
    came: float
    meant: float
    rows: int


@dataclass(slots=True)
class _Followed:
    """A result of the program, by its version, and what it would be for the matching pairs; ``of`` are the steps of its
    tables.
    """

    version: int
    meant: Any
    of: tuple[int, ...]


class Pairs:
    """Receives each call after it ran (:meth:`after`), and computes the results for matching pairs.

    ``label`` returns a tensor's label in the trace, or None. ``found`` has the results so far, by the step of the call
    that made the table.
    """

    def __init__(self, label: Callable[[Any], str | None]) -> None:
        self._label = label
        self.found: dict[int, PairedNumbers] = {}
        self._tables: dict[str, _Followed] = {}
        self._lengths: dict[int, int] = {}
        self._left = 0
        self._line: tuple[int, int] | None = None
        self._seen: dict[Any, int] = {}

    @property
    def is_following(self) -> bool:
        """Whether the next call must be passed to :meth:`after` too."""
        return self._left > 0

    def after(self, call: Call, result: Any, step: int) -> None:
        """Examine a call that returned ``result``, ``step`` in the trace: one that broadcasts a column ``(N, 1)`` and a
        vector ``(N,)`` to a table, or one that computes something from a known table.

        Calls that cannot be repeated are not followed; nothing is raised.
        """
        if self._left and self._line is not None and self._line != _line(call):
            self._stop()
        name = call.name.rpartition(".")[2]
        short = name.strip("_")
        if not self._left and short not in PAIRING:
            return
        with contextlib.suppress(Exception):  # whatever cannot be repeated is not followed
            self._look(call, short if not name.endswith("_") or name.endswith("__") else "", result, step)
        if self._left:
            self._left -= 1
            if not self._left or not self._tables:
                self._stop()

    def _stop(self) -> None:
        self._tables.clear()
        self._left, self._line = 0, None

    def _look(self, call: Call, name: str, result: Any, step: int) -> None:
        if name not in FOLLOWED or call.dispatching:
            return
        given = list(argument_values.tensors((call.args, call.kwargs)))
        if not given or not all(type(each) in PLAIN and each.layout is torch.strided for each in given):
            return
        known = {id(each): found for each in given if (found := self._known(each)) is not None}
        length = self._length(known.values()) if known else self._made_of(call, name, given)
        if length is None:
            return
        of = tuple(dict.fromkeys(at for found in known.values() for at in found.of)) or (step,)
        with unseen(), torch.no_grad():
            meant = _repeated(call, known, length)
            self._keep(result, meant, length, of=of, step=step, call=call)

    def _known(self, real: Any) -> _Followed | None:
        found = self._tables.get(self._label(real) or "") if self._tables else None
        return found if found is not None and found.version == real._version else None

    def _length(self, known: Any) -> int | None:
        lengths = {self._lengths[at] for found in known for at in found.of}
        return lengths.pop() if len(lengths) == 1 else None

    def _made_of(self, call: Call, name: str, given: list[Any]) -> int | None:
        """Return N if a call broadcasts ``(N, 1)`` and ``(N,)`` to N × N; then count its place and examine the next
        ``FURTHER`` calls. None for another call, one without a span, an N that is 1 or above ``MOST``, meta tensors,
        during a CUDA graph capture, and if ``EACH`` or ``ALL`` is reached.
        """
        if name not in PAIRING or len(given) < 2 or call.span is None:
            return None
        shapes = sorted((tuple(each.shape) for each in given[:2]), key=len)
        length = shapes[0][0] if len(shapes[0]) == 1 else 0
        key = (call.span, call.name)
        if shapes[1] != (length, 1) or not 1 < length <= MOST or any(each.is_meta for each in given):
            return None
        if self._seen.get(key, 0) >= EACH or len(self._seen) >= ALL:
            return None
        if any(each.is_cuda for each in given) and torch.cuda.is_current_stream_capturing():
            return None
        self._seen[key] = self._seen.get(key, 0) + 1
        self._left = FURTHER
        return length

    def _keep(self, result: Any, meant: Any, length: int, *, of: tuple[int, ...], step: int, call: Call) -> None:
        both = [(result, meant)] if isinstance(result, torch.Tensor) else list(zip(result, meant, strict=True))
        for came, wanted in both:
            label = self._label(came)
            is_number = came.numel() == wanted.numel() == 1
            if label is None or not (is_number or (came.shape == (length, length) and wanted.shape == (length,))):
                continue
            for at in of:
                self._lengths[at] = length
            self._tables[label] = _Followed(came._version, wanted, of)
            if is_number:
                self._line = _line(call)
                for at in of:
                    self.found[at] = PairedNumbers(at, step, float(came.detach()), float(wanted), length)


def _line(call: Call) -> tuple[int, int] | None:
    return (call.span.source, call.span.line) if call.span is not None else None


def _repeated(call: Call, known: dict[int, _Followed], length: int) -> Any:
    """Return the call's result for the matching pairs.

    Raises:
        ValueError: an operand has numbers for pairs that do not.
    """

    def own(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in known:
                return known[id(value)].meant
            if value.shape == (length, 1):
                return value.detach().squeeze(-1)
            if value.numel() == 1 or value.shape == (length,):
                return value.detach()
            raise ValueError(value.shape)
        if isinstance(value, (tuple, list)):
            return type(value)(own(each) for each in value)
        return value

    return call.func(*(own(value) for value in call.args), **{key: own(value) for key, value in call.kwargs.items()})
