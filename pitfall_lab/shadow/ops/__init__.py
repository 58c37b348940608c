"""All operations: importing a family registers its entries. Every module of this package but its tools is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pitfall_lab.shadow import dtype_refusals
from pitfall_lab.shadow.ops import value_refusals
from pitfall_lab.shadow.registry import ENTRIES, Op, add, op, spell

TOOLS = {"building", "operands", "value_refusals"}
FAMILIES = tuple(
    import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name not in TOOLS
)

dtype_refusals.apply()
value_refusals.apply()

__all__ = ["ENTRIES", "FAMILIES", "Op", "add", "op", "spell"]
