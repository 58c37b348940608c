"""Run the same source on torch and on the shadow, and compare everything that can be seen."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe.release import RUNNING
from pitfall_lab.shadow import ShadowError
from pitfall_lab.shadow import facade as shadow_torch
from pitfall_lab.shadow.facade.tensors import GradFn
from pitfall_lab.shadow.ops.operands import MORE, OPERANDS, WAVES


def world(kind: str, sample: str = "") -> dict[str, Any]:
    """A namespace with the operands, on ``torch`` or on the ``shadow``; of the larger ones
    those that ``sample`` names.
    """
    names: dict[str, Any] = {}
    if kind == "torch":
        names.update(torch=torch, F=torch.nn.functional, np=np)
    else:
        shadow_torch.reset(release=RUNNING).strict = True
        names.update(torch=shadow_torch, F=shadow_torch.nn.functional, np=np)
    exec(OPERANDS + WAVES, names)
    for name in MORE.keys() & set(re.findall(r"\w+", sample)):
        names[name] = eval(MORE[name], names)
    return names


def attempt(names: dict[str, Any], source: str) -> Any:
    """The value of an expression, or its error as (type, message)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(source, names)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            return error


def numbers(t: Any) -> np.ndarray | None:
    """A tensor's values as NumPy."""
    if isinstance(t, torch.Tensor):
        with torch.no_grad():  # a view with a forbidden history may still be read
            return t.detach().numpy().copy() if t.dtype != torch.bfloat16 else None
    return t.shadow.values()


def nodes(fn: Any) -> list[Any]:
    """All nodes reachable from one, in a fixed order: names, structure and saved names."""
    seen: dict[Any, int] = {}
    rows: list[Any] = []
    stack = [fn] if fn is not None else []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = len(seen)
        children = [(None if c is None else short(c.name()), k) for c, k in node.next_functions]
        rows.append((short(node.name()), children, saved_names(node)))
        stack.extend(c for c, _ in reversed(node.next_functions) if c is not None)
    # Backward runs the newest node first: the order in which they were made decides which of two errors is raised.
    made = [node.node.sequence if isinstance(node, GradFn) else node._sequence_nr() for node in seen]
    return [*rows, ("made in this order", sorted(range(len(made)), key=made.__getitem__), [])]


def short(name: str) -> str:
    """The name without C++ namespaces."""
    return name.rsplit("::", maxsplit=1)[-1]


def saved_names(node: Any) -> list[str]:
    """Which tensors a node has saved, as torch shows them."""
    if isinstance(node, GradFn):
        return (
            []
            if node.node.name == "CopySlices"
            else sorted(
                {
                    f"{s.name.rstrip('0123456789') if s.name.startswith('indices') else s.name}{state(node.node, s)}"
                    for s in node.node.saved
                }
            )
        )
    found = []
    for attribute in dir(node):
        if attribute.startswith("_saved_"):
            try:
                value = getattr(node, attribute)
            except RuntimeError as error:
                found.append(f"{attribute[7:]}: {str(error)[:160]}")
                continue
            if isinstance(value, torch.Tensor) or (
                isinstance(value, tuple) and any(isinstance(v, torch.Tensor) for v in value)
            ):
                found.append(attribute[7:])
    return sorted(found)


def state(node: Any, saved: Any) -> str:
    """Nothing, or the beginning of the error that reading the saved tensor raises."""
    try:
        saved.check(node, shadow_torch.engine().graph)
    except ShadowError as error:
        # reading a saved input of a tensor detached in place is allowed; only backward refuses
        return "" if "detached in-place" in error.message else f": {error.message[:160]}"
    return ""


def describe(t: Any) -> dict[str, Any]:
    """Everything visible of a tensor except its numbers."""
    version: Any = attempt({"t": t}, "t._version")
    fn = attempt({"t": t}, "t.grad_fn")
    return {
        "shape": tuple(t.shape),
        "stride": tuple(t.stride()),
        "offset": t.storage_offset(),
        "dtype": str(t.dtype),
        "requires_grad": t.requires_grad,
        "is_leaf": None if isinstance(fn, Exception) else t.is_leaf,
        "version": version if isinstance(version, int) else str(version),
        "graph": str(fn) if isinstance(fn, Exception) else nodes(fn),
        "is_view": t._is_view(),
    }


def same_numbers(x: Any, y: Any, what: str) -> None:
    """Equal up to rounding, NaN equal to NaN."""
    u, v = numbers(x), numbers(y)
    assert u is not None, what
    assert v is not None, f"{what}: numbers are not modelled"
    assert u.dtype == v.dtype, f"{what}: {u.dtype} != {v.dtype}"
    if u.dtype.kind in "fc":
        np.testing.assert_allclose(v, u, rtol=2e-5, atol=2e-6, err_msg=what)
    else:
        np.testing.assert_array_equal(v, u, err_msg=what)


def is_tensor(x: Any) -> bool:
    """Whether this is a tensor of either side."""
    return isinstance(x, torch.Tensor | shadow_torch.Tensor)


def flatten(x: Any) -> list[Any]:
    """The tensors and values of a result."""
    if isinstance(x, tuple | list):
        return [y for part in x for y in flatten(part)]
    return [x]


def compare_results(x: Any, y: Any, what: str) -> None:
    """Compare two results, tensors deeply."""
    if isinstance(x, Exception) or isinstance(y, Exception):
        if type(x) is not type(y) or str(x).split("\n")[0] != str(y).split("\n")[0]:
            raise AssertionError(f"{what}: torch {x!r}, shadow {y!r}") from (y if isinstance(y, Exception) else None)
        return
    xs, ys = flatten(x), flatten(y)
    assert len(xs) == len(ys), f"{what}: {len(xs)} results against {len(ys)}"
    for u, v in zip(xs, ys, strict=True):
        if is_tensor(u):
            assert is_tensor(v), f"{what}: {v!r} is no tensor"
            left, right = describe(u), describe(v)
            assert left == right, f"{what}:\n torch  {left}\n shadow {right}"
            same_numbers(u, v, what)
        elif isinstance(u, float):
            assert abs(u - v) < 1e-5, what
        else:
            assert u == v, f"{what}: {u!r} != {v!r}"


def compare_worlds(one: dict[str, Any], two: dict[str, Any], what: str, *, layouts: bool = True) -> None:
    """Compare all operands: their numbers, versions, histories and gradients.

    Without ``layouts``, strides and versions of gradients are left out: whether torch takes a gradient over or
    copies it into the leaf's layout depends on how each backward kernel lays out its result, which the shadow
    models for contiguous operands only.
    """
    for name in list(one):
        u, v = one[name], two.get(name)
        if is_tensor(u):
            left, right = describe(u), describe(v)
            assert left == right, f"{what}, operand {name}:\n torch  {left}\n shadow {right}"
            same_numbers(u, v, f"{what}, operand {name}")
            if isinstance(left["graph"], str):
                continue
            if u.is_leaf and u.grad is not None:
                assert v.grad is not None, f"{what}: {name}.grad is missing"
                left, right = describe(u.grad), describe(v.grad)
                if not layouts:
                    for seen in (left, right):
                        seen.update(stride=None, version=None, offset=None)
                assert left == right, f"{what}, {name}.grad:\n torch  {left}\n shadow {right}"
                same_numbers(u.grad, v.grad, f"{what}, {name}.grad")
            elif u.is_leaf:
                assert v.grad is None, f"{what}: {name}.grad is {v.grad}, torch has None"
