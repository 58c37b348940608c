"""The function that makes a batch from samples, if the program has one that this loader was not given."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.text_origins import parameters
from pitfall_lab.rules.refusals.remedies.edits import keyword_set
from pitfall_lab.trace import T

KEYWORD = "collate_fn"


def as_elsewhere(program: Program, made: ast.Call) -> tuple[Fix, ...]:
    """Return fixes that pass to the ``DataLoader`` call ``made`` the ``collate_fn`` of another loader of the program,
    or a function that the program does not use; empty if there is none.

    Empty, too, if the loader already has one. If that is a parameter of the function around it, the fixes pass it in
    the calls that lack it.
    """
    function, given = program.function(made), _given(made)
    if function is not None and isinstance(given, ast.Name) and given.id in parameters(function):
        calls = [n for n in program.nodes if isinstance(n, ast.Call) and called(n) == function.name]
        values = [k.value for call in calls for k in call.keywords if k.arg == given.id and not _is_none(k.value)]
        lacking = [
            call for call in calls if not any(k.arg == given.id and not _is_none(k.value) for k in call.keywords)
        ]
        pairs = [(call, program.segment(value), given.id) for call in lacking for value in values]
    elif given is None or _is_none(given):
        pairs = [(made, text, KEYWORD) for text in [*_of_others(program, made), *_unused(program)]]
    else:
        return ()
    fixes = []
    for call, text, name in pairs:
        change = keyword_set(program, call, f"{name}={text}")
        shown = text if len(text) <= 40 else f"{text[:39]}…"
        title = T(en=f"Make its batches with the function that the program has: `{name}={shown}`",
                  zh=f"用程序已有的函数合成批次：`{name}={shown}`")  # fmt: skip
        fixes.append(Fix(title, program.splice(change)) if change is not None else None)
    return unique(program.text, fixes)


def _given(loader: ast.Call) -> ast.expr | None:
    return next((k.value for k in loader.keywords if k.arg == KEYWORD), None)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_others(program: Program, made: ast.Call) -> list[str]:
    """The sources of the ``collate_fn`` of other loaders; for a method of their dataset, the same method of this
    loader's dataset.
    """
    texts = []
    for other in program.nodes:
        given = (
            _given(other)
            if isinstance(other, ast.Call) and other is not made and called(other) == called(made)
            else None
        )
        if given is None or _is_none(given) or not isinstance(other, ast.Call):
            continue
        data, own = (program.segment(each.args[0]) if each.args else "" for each in (other, made))
        base = program.segment(given.value) if isinstance(given, ast.Attribute) else ""
        text = program.segment(given)
        texts.append(
            f"{own}.{given.attr}" if isinstance(given, ast.Attribute) and base and base == data and own else text
        )
    return list(dict.fromkeys(texts))


def _unused(program: Program) -> list[str]:
    """The names of top-level functions with a ``return`` and one parameter without a default that the program does not
    use.
    """
    read = {
        n.id if isinstance(n, ast.Name) else n.attr for n in program.nodes if isinstance(n, ast.Name | ast.Attribute)
    }
    body = program.tree.body if program.tree is not None else []
    functions = [n for n in body if isinstance(n, ast.FunctionDef) and n.name not in read and not n.decorator_list]
    single = [n for n in functions if len(n.args.args) - len(n.args.defaults) == 1]
    return [n.name for n in single if any(isinstance(each, ast.Return) for each in ast.walk(n))]
