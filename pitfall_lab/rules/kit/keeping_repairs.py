"""Repairs that keep copies of tensors where a program keeps the tensors themselves: in a state dict, or in a list of
parameters.
"""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.trace import T

EACH = T(en="Keep a copy of each tensor", zh="为每个张量保留一份副本")


def copies_of(program: Program, value: ast.expr, copy: str = ".detach().clone()") -> tuple[Fix, ...]:
    """Return fixes that replace the container ``value`` by one of copies; ``copy`` is the source that makes a copy of
    one tensor.

    One fix copies each tensor, if ``value`` is a list or dictionary comprehension whose values are a plain name (or its
    ``.data``, copied by ``.clone()``), or a call of ``list``, ``tuple`` or ``dict``. Another fix uses
    ``copy.deepcopy``. Empty if neither is possible.
    """
    text, fixes = program.segment(value), list[Fix]()
    if isinstance(value, ast.ListComp | ast.DictComp):
        element = value.elt if isinstance(value, ast.ListComp) else value.value
        bare = element.value if isinstance(element, ast.Attribute) and element.attr == "data" else element
        if isinstance(bare, ast.Name):
            fixes.append(
                Fix(
                    EACH,
                    program.replace((element, f"{program.segment(element)}{copy if bare is element else '.clone()'}")),
                )
            )
    elif isinstance(value, ast.Call) and called(value) in ("list", "tuple") and len(value.args) == 1:
        fixes.append(Fix(EACH, program.replace((value, f"[p{copy} for p in {program.segment(value.args[0])}]"))))
    elif isinstance(value, ast.Call) and called(value) == "dict" and len(value.args) == 1:
        fixes.append(
            Fix(EACH, program.replace((value, f"{{name: p{copy} for name, p in {program.segment(value.args[0])}}}")))
        )
    fixes += [fix for fix in (deep_copy(program, value, text),) if fix is not None]
    return tuple(Fix(fix.title, fix.edits, meaning="later") for fix in unique(program.text, fixes))


def copies_of_state(program: Program, call: ast.Call) -> tuple[Fix, ...]:
    """Return fixes for ``call``, a call of ``state_dict``: one keeps a clone of each value that it returns, and, if the
    program imports ``copy`` or ``deepcopy``, another (first) uses ``copy.deepcopy``.

    If a dict comprehension iterates over the call and keeps a plain name, the only fix clones that name.
    """
    text, listed = program.segment(call), _listed(program, call)
    if listed is not None:
        return unique(
            program.text,
            [Fix(EACH, program.replace((listed, f"{program.segment(listed)}.clone()")), meaning="later")],
        )
    new = f"{{name: value.clone() for name, value in {text}.items()}}"
    deepest = [deep_copy(program, call, text)] if imported_deepcopy(program) else []
    return unique(program.text, [*deepest, Fix(EACH, program.replace((call, new)), meaning="later")])


def deep_copy(program: Program, value: ast.expr, text: str) -> Fix | None:
    """The fix that replaces ``value`` by ``copy.deepcopy(text)``, and imports ``copy`` before the first import if
    necessary.

    None if that import cannot be added: the program has no import at its top level, or ``value`` is on the first
    import's line.
    """
    name = imported_deepcopy(program)
    edits = program.replace((value, f"{name or 'copy.deepcopy'}({text})"))
    if name is None:
        first = (
            next((n for n in program.tree.body if isinstance(n, ast.Import | ast.ImportFrom)), None)
            if program.tree
            else None
        )
        together = merge(program.insert_before(first, "import copy"), edits) if first is not None else None
        if together is None:
            return None
        edits = together
    return Fix(T(en="Keep a deep copy", zh="保留一份深拷贝"), edits, meaning="later")


def imported_deepcopy(program: Program) -> str | None:
    """Return how the program can write ``copy.deepcopy``, according to its imports (``"copy.deepcopy"``, or with an
    alias); None if it imports neither ``copy`` nor ``deepcopy``.
    """
    for node in program.nodes:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if isinstance(node, ast.Import) and alias.name == "copy":
                return f"{alias.asname or alias.name}.deepcopy"
            if isinstance(node, ast.ImportFrom) and node.module == "copy" and alias.name == "deepcopy":
                return alias.asname or alias.name
    return None


def _listed(program: Program, call: ast.Call) -> ast.Name | None:
    """The name that is kept of each entry by a dict comprehension over ``call``: ``weight`` in ``{name: weight for
    name, weight in model.state_dict().items()}``; None if there is no such comprehension or its value is not a name.
    """
    kept = next((n for n in program.ancestors(call) if isinstance(n, ast.DictComp)), None)
    if (
        kept is None
        or not isinstance(kept.value, ast.Name)
        or not any(call in ast.walk(each.iter) for each in kept.generators)
    ):
        return None
    return kept.value
