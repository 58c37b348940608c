"""All operations: importing a family registers its entries. Every module of this package but its tools is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pitfall_lab.shadow.ops import numbers, types
from pitfall_lab.shadow.ops.registry import ENTRIES, Op, add, op, spell

TOOLS = {"kit", "memory_format", "numbers", "operands", "out", "registry", "types"}
FAMILIES = tuple(import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name not in TOOLS)

types.apply()
numbers.apply()

__all__ = ["ENTRIES", "FAMILIES", "Op", "add", "op", "spell"]
