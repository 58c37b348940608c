"""User code inside a backward: hooks, and nodes whose backward is not modelled (custom Functions among them).

A stand-alone engine calls hooks itself. An engine in lockstep cannot: torch calls them, and only their results
are observed. So its backward pass *stops* there (:class:`Stop`), as a :class:`Suspended` call, and continues
with the observed gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pitfall_lab.shadow.errors import ShadowError
from pitfall_lab.shadow.gradient import in_memory
from pitfall_lab.shadow.layout import element_strides

if TYPE_CHECKING:
    from pitfall_lab.shadow.applied import Applied
    from pitfall_lab.shadow.backward import Pass
    from pitfall_lab.shadow.dtypes import DType
    from pitfall_lab.shadow.engine import Engine
    from pitfall_lab.shadow.gradient import Gradient
    from pitfall_lab.shadow.graph import Node
    from pitfall_lab.shadow.storage import ShadowTensor, Shape

Hook = Callable[[Any], Any] | None
"""A hook as a function of the gradient; None in lockstep, where torch calls it."""
AFTER = -1
"""The slot number of post-accumulate-grad hooks."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A point at which a backward pass waits for user code.

    ``node`` is the node that is to run, ``given`` the gradients that it received (None: none for that output).
    ``after`` is True where the node's own backward is user code, and its outgoing gradients are needed; False where its
    hooks run. ``refusal`` is the error that reading its saved tensors in its backward would raise; None if there is
    none.
    """

    node: Node
    given: Sequence[Gradient | None]
    after: bool = False
    refusal: ShadowError | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A gradient that user code returned.

    ``shape`` and ``array`` are its shape and values (``array`` is None where those are unknown). ``given``: the index
    of the incoming gradient that it is, if it is the same object; else None.
    """

    shape: Shape
    array: np.ndarray | None
    given: int | None = None
    tensor: ShadowTensor | None = None
    """The shadow tensor of the gradient, if the program's tensor is known."""


Answer = Sequence[Seen | None] | None
"""For each slot the gradient that came out (None: no gradient); None in place of the list when it was not observed."""


class Suspended:
    """A call (a backward) that waits for user code.

    ``stop`` is the point at which it waits; None before :meth:`resume` is called first, and when the call has ended.
    """

    def __init__(
        self, engine: Engine, the_pass: Pass, finish: Callable[[], Any], judge: Callable[[], None] | None = None
    ) -> None:
        self.stop: Stop | None = None
        self.has_paused = False
        """Whether the call waited at least once."""
        self._engine, self._pass, self._steps, self._finish = engine, the_pass, the_pass.steps(), finish
        self._judge = judge
        """Called when the backward raises, to compare the gradients filled until then."""
        self._record = engine.record()
        self._result: Any = None

    def resume(self, answer: Answer = None) -> None:
        """Run to the next stop, or to the end of the call; ``answer`` are the gradients that user code returned at the
        present stop (None: it is not known what). Raises ShadowError where torch will raise.
        """
        others = self._engine.record(self._record)
        mode = self._engine.grad_enabled
        try:
            with np.errstate(all="ignore"):
                self.stop = self._steps.send(answer if self.has_paused else None)
            self.has_paused = True
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
        """Two bools: whether the pass waits for user hooks before ``node`` runs, and whether it waits for the gradients
        that user code in the node's own backward returns.
        """
        return self._pass.has_hooks(node), self._pass.is_foreign(node)

    def recognise(self, array: np.ndarray, dtype: DType, *, on_known_memory: bool) -> ShadowTensor | None:
        """Return the shadow tensor of a gradient that user code (a hook, a custom backward) received, whose values are
        ``array``: that of the first gradient in ``stop.given`` without a tensor so far that has the same dtype, shape
        and strides, and close values. None if there is none.

        ``on_known_memory``: the gradient's storage is tracked already, so gradients that are ``loose`` are not
        considered.
        """
        for gradient in self.stop.given if self.stop is not None else ():
            if (
                gradient is None
                or gradient.tensor is not None
                or gradient.array is None
                or gradient.array.dtype != array.dtype
            ):
                continue
            if gradient.loose and on_known_memory:
                continue
            same = gradient.shape == array.shape and element_strides(gradient.array) == element_strides(array)
            if same and np.allclose(gradient.array, array, rtol=1e-5, atol=1e-8, equal_nan=True):
                if gradient.array.flags.writeable:
                    gradient.array[...] = array  # take over torch's rounding, so that only what follows is compared
                gradient.tensor = in_memory(gradient, self._engine.graph, dtype)
                gradient.tensor.loose = gradient.loose
                return gradient.tensor
        return None

    def applied(self) -> Applied:
        """The record of what the call has done so far."""
        others = self._engine.record(self._record)
        try:
            return self._engine.applied(self._result)._replace(ran_user_code=self.has_paused)
        finally:
            self._engine.record(others)


class Handle:
    """A registered hook; ``register_hook`` returns it.

    ``entry`` is the pair of the index of the output that the hook is for (-1 for a post-accumulate-grad hook) and the
    hook; ``owners`` are what it is registered on: a leaf, a node, or both (a result may become a leaf).
    """

    def __init__(self, entry: tuple[int, Hook], *owners: Node | ShadowTensor) -> None:
        self._owners, self._entry = owners, entry
        for owner in owners:
            owner.hooks = (*(owner.hooks or ()), entry)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for owner in self._owners:
            owner.hooks = tuple(entry for entry in owner.hooks or () if entry is not self._entry)
