"""Code of the program's inside a backward: hooks, and nodes without a model (a custom Function's ``backward`` among them).

A stand-alone engine calls hooks itself. An engine in lockstep cannot: torch calls them, and what they do is torch's to know. So
its backward pass *stops* there (:class:`Stop`), as a :class:`Suspended` call, and goes on with the gradients that came out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pitfall_lab.shadow.errors import ShadowError
from pitfall_lab.shadow.gradient import element_strides, in_memory

if TYPE_CHECKING:
    from pitfall_lab.shadow.applied import Applied
    from pitfall_lab.shadow.backward import Pass
    from pitfall_lab.shadow.dtypes import DType
    from pitfall_lab.shadow.engine import Engine
    from pitfall_lab.shadow.gradient import Gradient
    from pitfall_lab.shadow.graph import Node
    from pitfall_lab.shadow.storage import ShadowTensor, Shape

Hook = Callable[[Any], Any] | None
"""What a hook does to a gradient; None: torch knows, we do not."""
AFTER = -1
"""The slot of hooks that run when a leaf has accumulated its gradient."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A place where a pass waits. ``given`` are the gradients that the node received.

    ``after`` says that the node has run (its outgoing gradients are asked for), else its hooks are about to have run. ``refusal`` is
    the error that unpacking what the node saved raises, if its code asks for it.
    """

    node: Node
    given: Sequence[Gradient | None]
    after: bool = False
    refusal: ShadowError | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A gradient that came out; ``array`` is None when its numbers cannot be followed. ``given``: it is the incoming one of that number."""

    shape: Shape
    array: np.ndarray | None
    given: int | None = None
    tensor: ShadowTensor | None = None
    """The tensor of the program's that it is, if it is a known one."""


Answer = Sequence[Seen | None] | None
"""For each slot what came out (None: no gradient); None altogether when nobody saw it."""


class Suspended:
    """A call that waits for the program's own code. ``stop`` is where, None when it has ended."""

    def __init__(self, engine: Engine, the_pass: Pass, finish: Callable[[], Any], judge: Callable[[], None] | None = None) -> None:
        self.stop: Stop | None = None
        self.asked = False
        """Whether it has waited at all."""
        self._engine, self._pass, self._steps, self._finish = engine, the_pass, the_pass.steps(), finish
        self._judge = judge
        """What is done after a run that fails."""
        self._record = engine.record()
        self._result: Any = None

    def go_on(self, answer: Answer = None) -> None:
        """Run to the next stop, or to the end; raises ShadowError where torch will raise."""
        others = self._engine.record(self._record)
        mode = self._engine.grad_enabled
        try:
            with np.errstate(all="ignore"):
                self.stop = self._steps.send(answer if self.asked else None)
            self.asked = True
        except StopIteration:
            self.stop = None
            self._result = self._finish()
        except ShadowError as error:
            self.stop = None
            if self._judge is not None:
                self._judge()
            error.applied = self._engine.applied()
            raise
        finally:
            self._engine.grad_enabled = mode
            self._record = self._engine.record(others)

    def stops_at(self, node: Node) -> tuple[bool, bool]:
        """Whether it waits before ``node`` runs, for its hooks, and afterwards, for what comes out."""
        return self._pass.has_hooks(node), self._pass.is_foreign(node)

    def recognise(self, array: np.ndarray, dtype: DType, *, on_known_memory: bool) -> ShadowTensor | None:
        """The tensor that stands for a gradient in the hands of the program's code: one of this stop's, with these numbers.

        ``on_known_memory``: it lies on memory of the program's, so it is none of which only the numbers were seen.
        """
        for gradient in self.stop.given if self.stop is not None else ():
            if gradient is None or gradient.tensor is not None or gradient.array is None or gradient.array.dtype != array.dtype:
                continue
            if gradient.loose and on_known_memory:
                continue
            same = gradient.shape == array.shape and element_strides(gradient.array) == element_strides(array)
            if same and np.allclose(gradient.array, array, rtol=1e-5, atol=1e-8, equal_nan=True):
                if gradient.array.flags.writeable:
                    gradient.array[...] = array  # what is done with it is compared, and not rounding that came before
                gradient.tensor = in_memory(gradient, self._engine.graph, dtype)
                gradient.tensor.loose = gradient.loose
                return gradient.tensor
        return None

    def applied(self) -> Applied:
        """What the call has done so far."""
        others = self._engine.record(self._record)
        try:
            return self._engine.applied(self._result)._replace(asked=self.asked)
        finally:
            self._engine.record(others)


class Handle:
    """A hook on a leaf, on a node or on both (a result may become a leaf), and what registering it returns."""

    def __init__(self, entry: tuple[int, Hook], *owners: Node | ShadowTensor) -> None:
        self._owners, self._entry = owners, entry
        for owner in owners:
            owner.hooks = (*(owner.hooks or ()), entry)

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        for owner in self._owners:
            owner.hooks = tuple(entry for entry in owner.hooks or () if entry is not self._entry)
