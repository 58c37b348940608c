"""Runs a program on torch without recording it, and collects the values of its backwards (:func:`witness`): roots,
gradients and leaves.

They are used to compare a program before and after a fix: every value that was right must stay the same. With
``meant=True`` each tensor is cloned when it is saved for backward, so that a later write does not change the saved
tensor and torch's version check cannot fail: the gradients are then the intended ones, computed by torch and not by the
shadow.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import private

MOST_BACKWARDS, MOST_LEAVES, HEAD = 200, 300, 8


def witness(source: str | ast.Module, name: str, namespace: dict[str, Any], *, meant: bool = False) -> dict[str, Any]:
    """Run ``source`` in ``namespace`` and return what it computed, as plain data that JSON can represent. With
    ``meant``, each tensor is cloned when it is saved for backward. ``name`` is the file name in tracebacks.

    The keys are:

    - ``error``: ``None`` or the type of the exception that ended it; None too for an exit with the code 0
    - ``backwards``: for each of the first ``MOST_BACKWARDS`` (200) outside of transforms of ``torch.func``: the digests
      (:func:`digest`) of its ``roots``, of the ``leaves`` at that moment, of the ``gradients`` they have afterwards and
      of the ``results`` of ``torch.autograd.grad``, and whether it ``raised``
    - ``leaves``: the digests at the end of at most ``MOST_LEAVES`` (300) leaves
    - ``names``: the digests of the tensors and numeric arrays that are values of global variables at the end
    - ``numbers``: the finite values of global variables that are one number, without names that begin with ``_``, in
      the order of their first assignment
    - ``warnings``: the first 200 characters of each text of a ``UserWarning``, sorted
    """
    record = _Record()
    error = None
    with (
        warnings.catch_warnings(record=True) as caught,
        record.listening(),
        _cloned_at_save() if meant else contextlib.nullcontext(),
    ):
        warnings.simplefilter("always")
        try:
            exec(compile(source, name, "exec"), namespace)  # noqa: S102 - running the learner's program is the purpose
        except SystemExit as stop:
            error = None if stop.code in (None, 0) else "SystemExit"
        except BaseException as raised:
            error = type(raised).__name__
    return {
        "error": error,
        "backwards": record.backwards,
        "leaves": [digest(leaf) for leaf in record.leaves],
        "names": _names(namespace),
        "numbers": _numbers(namespace),
        "warnings": sorted({str(w.message)[:200] for w in caught if issubclass(w.category, UserWarning)}),
    }


def prepare(source: str) -> None:
    """If ``source`` contains ``optim``, import what torch's optimizers import late (more than a second), before
    processes are forked.
    """
    if "optim" in source:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch._dynamo")


@contextlib.contextmanager
def _cloned_at_save() -> Iterator[None]:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        # the clone stays in the graph, so that second derivatives still flow through it
        return tensor.clone()

    plain = torch.autograd.graph.saved_tensors_hooks.__init__

    def with_copies(self: Any, theirs: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> None:
        if type(self).__module__ == "torch.utils.checkpoint":  # nothing needs recomputation, as everything is saved
            plain(self, pack, lambda tensor: tensor)
        else:
            plain(self, lambda tensor: theirs(pack(tensor)), unpack)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.autograd.graph.saved_tensors_hooks.__init__ = with_copies  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            torch.autograd.graph.saved_tensors_hooks.__init__ = plain  # type: ignore[method-assign]


def _names(namespace: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in list(namespace.items()):
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[name] = digest(torch.as_tensor(value.copy()))
        elif isinstance(value, torch.Tensor):
            found[name] = digest(value)
    return found


def _numbers(namespace: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in list(namespace.items()):
        one = value
        if type(value) in (torch.Tensor, np.ndarray) and value.ndim == 0:
            one = value.item()
        if not name.startswith("_") and type(one) in (int, float, np.float32, np.float64) and math.isfinite(one):
            found[name] = float(one)
    return found


class _Record:
    """Wraps ``torch.autograd.backward`` and ``grad``, through which all gradients are computed, and collects their
    values.
    """

    def __init__(self) -> None:
        self.backwards: list[dict[str, Any]] = []
        self.leaves: list[torch.Tensor] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Replace ``torch.autograd.backward`` and ``grad`` by wrappers while the context is active."""
        backward, grad = torch.autograd.backward, torch.autograd.grad
        torch.autograd.backward, torch.autograd.grad = self._recording(backward), self._recording(grad)
        try:
            yield
        finally:
            torch.autograd.backward, torch.autograd.grad = backward, grad

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            tensors = (
                args[0] if args else kwargs.get("outputs", kwargs.get("tensors"))
            )  # torch's two names of the first argument
            if len(self.backwards) >= MOST_BACKWARDS or tensors is None:
                return function(*args, **kwargs)
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            if any(_is_inside(root) for root in roots):
                return function(*args, **kwargs)
            leaves = _leaves(roots)
            self.leaves += [leaf for leaf in leaves if not any(leaf is known for known in self.leaves)][
                : MOST_LEAVES - len(self.leaves)
            ]
            entry = {
                "roots": [digest(root) for root in roots],
                "leaves": [digest(leaf) for leaf in leaves],
                "raised": True,
            }
            self.backwards.append(entry)
            result: Any = None
            try:
                result = function(*args, **kwargs)
                entry["raised"] = False
            finally:
                entry["gradients"] = [digest(leaf.grad) for leaf in leaves]
                entry["results"] = [digest(gradient) for gradient in result or ()]
            return result

        return recorded


def _is_inside(tensor: Any) -> bool:
    """Whether a tensor belongs to a running transform of ``torch.func``: it must not be kept after that."""
    return isinstance(tensor, torch.Tensor) and private.is_wrapped(tensor)


def _leaves(roots: Iterable[Any]) -> list[torch.Tensor]:
    """Return the leaves from which ``roots`` were computed, at most ``MOST_LEAVES``, in the order of a walk through the
    graph.
    """
    pending = [root.grad_fn for root in roots if isinstance(root, torch.Tensor) and root.grad_fn is not None]
    seen: set[Any] = set()
    found: list[torch.Tensor] = []
    while pending and len(found) < MOST_LEAVES:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        pending.extend(following for following, _ in node.next_functions if following is not None)
    return found


def digest(tensor: Any) -> dict[str, Any] | None:
    """Return a few numbers that summarize a tensor, as a dict: its ``shape``, and ``numbers``: sum, norm, inner product
    with a fixed vector, and the first eight elements; None if ``tensor`` is no tensor.

    For a tensor on ``meta`` or in another layout, ``numbers`` is empty; NaN and infinity are strings.
    """
    if not isinstance(tensor, torch.Tensor):
        return None
    if tensor.is_meta or tensor.layout is not torch.strided:
        return {"shape": list(tensor.shape), "numbers": []}
    with torch.no_grad():
        plain = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
        flat = plain.reshape(-1).to(dtype=torch.float64, device="cpu")
        probe = torch.cos(torch.arange(flat.numel(), dtype=torch.float64) * 1.7 + 0.3)
        numbers = [flat.sum(), flat.norm(), (flat * probe).sum(), *flat[:HEAD]]
        return {"shape": list(tensor.shape), "numbers": [_number(float(n)) for n in numbers]}


def _number(value: float) -> float | str:
    return value if value - value == 0 else str(value)
