"""Finds the expression by which the program's current line refers to a value: ``x``, ``self.fc.weight``,
``batch["image"]``, ``x[:, 0]`` (:class:`Expressions`).

No code of the program is run: names are looked up, and attributes are read only if that runs no code.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.namespace import scopes
from pitfall_lab.trace.part_names import written

UNKNOWN = object()
MOST_ITEMS = 64
"""How many items of a container are searched for a value."""
LONGEST = 40
_PLAIN = (bool, int, float, complex, str, type(None))


class Expressions:
    """Finds source expressions for the values that one frame of the program can reach. ``frame`` may be None (no
    variables); ``node`` is the syntax node that the frame is executing (None if unknown), ``text`` the source text from
    which it was parsed.
    """

    def __init__(self, frame: FrameType | None, node: ast.AST | None, text: str) -> None:
        local, *outside = list(scopes(frame))[:2] or [{}]
        self._variables: dict[str, Any] = local | {
            name: value for more in outside for name, value in more.items() if name not in local
        }
        self._written: dict[int, str] = {}
        for part in ast.walk(node) if node is not None else ():
            if isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and isinstance(
                getattr(part, "ctx", None), ast.Load
            ):
                value = self.value(part)
                said = ast.get_source_segment(text, part) or ""
                if value is not UNKNOWN and type(value) not in _PLAIN and said and len(said) <= LONGEST:
                    old = self._written.get(id(value))
                    self._written[id(value)] = said if old is None or len(said) < len(old) else old

    def of(self, value: Any) -> str:
        """The source of an expression for the object ``value`` itself (not for an equal one); empty if none is found.

        First the expressions on the line that is being executed are searched (the shortest counts), then the frame's
        variables and the objects inside them, one level deep. Names that begin with ``_`` count only on the line.
        """
        if id(value) in self._written:
            return self._written[id(value)]
        for name, held in self._variables.items():
            if held is value and not name.startswith("_"):
                return name
        return next((way for name, held in self._variables.items() for way in _inside(name, held, value)), "")

    def value(self, node: ast.AST | None) -> Any:
        """The present value of an expression; :data:`UNKNOWN` if finding it would run code, or if a name or key does
        not exist.

        Only constants, negative numbers, names, tuples, lists, attributes (see :func:`attribute`), and subscripts of
        dicts, lists and tuples by a number or string are evaluated.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._variables.get(node.id, getattr(builtins, node.id, UNKNOWN))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.value(node.operand)
            return -value if type(value) in (int, float) else UNKNOWN
        if isinstance(node, ast.Tuple | ast.List):
            items = [self.value(item) for item in node.elts]
            return (
                UNKNOWN
                if any(item is UNKNOWN for item in items)
                else items
                if isinstance(node, ast.List)
                else tuple(items)
            )
        if isinstance(node, ast.Attribute):
            return attribute(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            held, key = self.value(node.value), self.value(node.slice)
            if type(held) in (dict, list, tuple) and type(key) in _PLAIN:
                try:
                    return held[key]
                except (LookupError, TypeError):
                    return UNKNOWN
        return UNKNOWN


def attribute(held: Any, name: str) -> Any:
    """The value of the attribute ``name`` of ``held``, read without running code from the object's own dictionary (for
    a ``torch.nn.Module`` also from its tables of parameters, buffers and submodules); :data:`UNKNOWN` if it is not
    there.

    For a tensor, only the ``grad`` of a leaf that is no view.
    """
    if held is UNKNOWN:
        return UNKNOWN
    if isinstance(held, torch.Tensor):
        # is_leaf of a view is not read: that may regenerate its grad_fn
        return held.grad if name == "grad" and held._base is None and held.is_leaf else UNKNOWN
    inside = getattr(held, "__dict__", {})
    if isinstance(held, torch.nn.Module):
        for table in (inside, *(inside.get(part) or {} for part in ("_parameters", "_buffers", "_modules"))):
            if name in table:
                return table[name]
    elif name in inside:
        value = inside[name]
        return UNKNOWN if isinstance(held, type) and isinstance(value, property) else value
    return UNKNOWN


def _inside(name: str, held: Any, value: Any) -> Iterator[str]:
    """Expressions for ``value`` one level inside a name whose value is a module, a container, or an object of the
    program.
    """
    if name.startswith("_") or isinstance(held, torch.Tensor | types.ModuleType | type):
        return
    if isinstance(held, torch.nn.Module):
        yield from (_way(name, way) for way, part in _parts(held) if part is value)
    if type(held) is dict:
        yield from (
            f"{name}[{key!r}]"
            for key, item in list(held.items())[:MOST_ITEMS]
            if item is value and type(key) in (str, int)
        )
    elif type(held) in (list, tuple):
        yield from (f"{name}[{at}]" for at, item in enumerate(held[:MOST_ITEMS]) if item is value)
    elif isinstance(inside := getattr(held, "__dict__", None), dict):
        yield from (f"{name}.{key}" for key, item in list(inside.items())[:MOST_ITEMS] if item is value)


def _parts(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        yield from module.named_parameters()
        yield from module.named_buffers()
    except (AttributeError, RuntimeError):
        return  # its __init__ has not called super().__init__() (yet)


def _way(name: str, way: str) -> str:
    """Return the expression for a submodule or parameter, as the program would write it: ``net[0].weight`` for
    ``0.weight`` of ``net``.
    """
    return written(f"{name}.{way}")
