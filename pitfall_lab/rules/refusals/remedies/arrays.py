"""The fix for torch's error about a NumPy array with negative strides: a copy where the array is reversed."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

TURNING = {"flip", "fliplr", "flipud", "rot90"}
"""NumPy's functions that return a view with negative strides."""
DEEPEST = 3


def turned_round(error: Error) -> Remedy | None:
    """Return the remedy for an array with negative strides, with a fix that copies the array in the expression that
    reversed it.

    None if the source does not show exactly one such expression on the way to the call.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    if refused.call is None:
        return None
    found = list(dict.fromkeys(_turning(program, refused.call)))
    if len(found) != 1:
        return None
    place, code = program.place(found[0]), program.segment(found[0])
    where, here = at_line(story, place), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} turns an array round (`{code}`): NumPy gives a view that runs backwards through the "
        f"memory, a negative stride, and {here.en} makes a tensor of it, which has none.",
        zh=f"{where.zh}把数组反转（`{code}`）：NumPy 给出的是倒着走过内存的视图，即负的步长，而{here.zh}要把它变成张"
        "量，张量不支持负步长。",
    )
    text = f"{operand(program, found[0])}.copy()"
    title = T(en=f"Copy it where it is turned round: `{text}`", zh=f"在反转之处复制：`{text}`")
    related = (Related("made", place, None, T(en="a view with a negative stride", zh="负步长的视图")),)
    return Remedy(
        unique(program.text, [Fix(title, program.replace((found[0], text)))]), said, None, place, None, related
    )


def _turning(program: Program, node: ast.AST, depth: int = 0) -> list[ast.expr]:
    """The expressions inside ``node`` that reverse an array and do not copy it, also in functions of the program that
    it calls and in assignments of names that it uses.

    Functions are followed ``DEEPEST`` levels deep, names only if ``node`` itself contains them.
    """
    found: list[ast.expr] = []
    for each in ast.walk(node):
        turns = isinstance(each, ast.Call) and called(each) in TURNING
        turns = turns or (isinstance(each, ast.Subscript) and _is_reversed(each.slice))
        if turns and isinstance(each, ast.expr) and not _is_copied(program, each):
            found.append(each)
        elif isinstance(each, ast.Call) and depth < DEEPEST:
            for function in (n for n in program.nodes if isinstance(n, Function) and n.name == called(each)):
                found += _turning(program, function, depth + 1)
        elif isinstance(each, ast.Name) and depth == 0:
            made = [
                s.value for s in program.nodes if isinstance(s, ast.Assign) and any(_is(t, each.id) for t in s.targets)
            ]
            for value in made:
                found += _turning(program, value, depth + 1)
    return found


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _is_copied(program: Program, node: ast.AST) -> bool:
    parent = program.parents.get(node)
    return isinstance(parent, ast.Attribute) and parent.attr in ("copy", "astype")


def _is_reversed(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(p, ast.Slice) and isinstance(p.step, ast.UnaryOp) and isinstance(p.step.op, ast.USub) for p in parts
    )
