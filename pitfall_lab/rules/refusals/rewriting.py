"""Fixes of a call that failed which rewrite the wrong argument; each is applied and run before it is offered."""

from __future__ import annotations

import ast
import re

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.trace import Given, T

GRADIENTS = "!gradients"
"""A form that concerns no argument, but what the ``backward`` of a custom Function returns."""
BATCH_FIRST = "!batch_first"
"""A form that concerns the layer: it passes ``batch_first=True`` where the layer is created."""
KEYWORD = "!"
"""The first character of a form that adds a keyword to the refused call: ``!enforce_sorted=False``."""


def rewritings(
    refused: Refused, wrong: Given | None, other: Given | None, forms: tuple[str, ...], match: re.Match[str]
) -> tuple[Fix, ...]:
    """Return fixes of a refused call, one for each of ``forms``, which rewrite the argument ``wrong`` on the refused
    line: ``{}`` in a form is replaced by the argument's source. None of these if the line does not contain the
    argument.

    A form that begins with ``!`` adds a keyword to the call instead, or makes a custom ``backward`` return as many
    gradients as needed (then it is the only fix). ``{other}`` in a form is replaced by the source of the argument
    ``other``; if there is none, the form is left out. If ``!batch_first`` can be applied, the other forms are left out.
    ``match`` is the match of the case's pattern in torch's message.
    """
    program = refused.story.program
    if GRADIENTS in forms:
        return (
            unique(program.text, [_as_many_gradients(program, match[1], int(match[2]))])
            if program.tree is not None
            else ()
        )
    node = program.at(refused.span) if program.tree is not None else None
    added = [
        _with_keyword(program, _maker(refused) if form == BATCH_FIRST else node, form)
        for form in forms
        if form.startswith(KEYWORD)
    ]
    forms = () if BATCH_FIRST in forms and any(added) else tuple(form for form in forms if not form.startswith(KEYWORD))
    target = _written(refused, node, wrong) if wrong is not None and node is not None else None
    if target is None or wrong is None:
        return unique(program.text, added)
    beside = other.text if other is not None else ""
    texts = []
    for form in forms:
        if "{other}" in form and not beside:
            continue
        bare = form.startswith("{}") or form.endswith(" - 1")
        inside = operand(program, target) if bare else program.segment(target)
        texts.append(form.replace("{}", inside).replace("{other}", beside))
    candidates = [Fix(T(en=f"Write `{text}`", zh=f"写成 `{text}`"), program.replace((target, text))) for text in texts]
    return unique(program.text, [*added, *candidates])


def _maker(refused: Refused) -> ast.AST | None:
    """The call that created the layer: the expression that created its first parameter, else the creation of the called
    object; None if it is unknown.
    """
    parameter = next((g for g in refused.tensors if g.kind == "Parameter"), None)
    if parameter is None and refused.call is not None:
        made = [
            o
            for o in origins(refused.story.program, refused.call.func)
            if isinstance(o, ast.Call) and called(o)[:1].isupper()
        ]
        return made[0] if len(made) == 1 else None
    born = (refused.story.tensor(parameter.label, refused.step) or {}).get("born") if parameter is not None else None
    return refused.story.program.at(refused.story.span(born))


def _with_keyword(program: Program, node: ast.AST | None, form: str) -> Fix | None:
    """The fix that adds a keyword, such as ``batch_first=True`` to ``nn.MultiheadAttention(8, 2)``.

    None if the call already has it, has ``**arguments``, or has no arguments.
    """
    text = "batch_first=True" if form == BATCH_FIRST else form.removeprefix(KEYWORD)
    if not isinstance(node, ast.Call) or any(k.arg in (None, text.partition("=")[0]) for k in node.keywords):
        return None
    inside = [*node.args, *(k.value for k in node.keywords)]
    if not inside:
        return None
    edits = program.replace((inside[-1], f"{program.segment(inside[-1])}, {text}"))
    return Fix(T(en=f"Give `{text}`", zh=f"给出 `{text}`"), edits)


def _as_many_gradients(program: Program, name: str, count: int) -> Fix | None:
    """The fix that makes ``backward`` of the class ``name`` return ``count`` gradients: it adds ``None`` for missing
    ones, and removes those beyond.

    None unless that method has exactly one ``return`` with a value.
    """
    owner = next((n for n in program.nodes if isinstance(n, ast.ClassDef) and n.name == name), None)
    method = (
        next((n for n in ast.walk(owner) if isinstance(n, ast.FunctionDef) and n.name == "backward"), None)
        if owner
        else None
    )
    returns = [n.value for n in ast.walk(method) if isinstance(n, ast.Return) and n.value is not None] if method else []
    if len(returns) != 1:
        return None
    values = returns[0].elts if isinstance(returns[0], ast.Tuple) else [returns[0]]
    texts = [program.segment(value) for value in values][:count]
    text = ", ".join([*texts, *["None"] * (count - len(texts))])
    return Fix(
        T(en=f"Return `{text}` from `backward`", zh=f"让 `backward` 返回 `{text}`"), program.replace((returns[0], text))
    )


def _written(refused: Refused, node: ast.AST, wrong: Given) -> ast.expr | None:
    """The expression of the argument inside the refused one, found by its source, else by the call that created it;
    None if there is none.

    For a tensor that was used as a condition, the comparison or operation that computed it.
    """
    program = refused.story.program
    inside = [n for n in ast.walk(node) if isinstance(n, ast.expr)]
    if wrong.text:
        named = [
            n
            for n in inside
            if program.segment(n) == wrong.text and isinstance(getattr(n, "ctx", ast.Load()), ast.Load)
        ]
        if named:
            return named[0]
    born = (refused.story.tensor(wrong.label, refused.step) or {}).get("born") if wrong.label is not None else None
    span = refused.story.span(born)
    if refused.failure.op.endswith("__bool__") and isinstance(node, ast.Compare | ast.BinOp):
        return node  # the condition itself
    made = program.at(span) if span is not None and span != refused.span else None
    return made if isinstance(made, ast.expr) and made in inside and made is not node else None
