"""A result with its history that a module keeps, and that ``copy.deepcopy`` of the module refuses: kept without the history."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedies.at_birth import birth
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def detached(error: Error) -> Remedy | None:
    """The attribute assigned without history, and a local name for the result where the function goes on with it; else None."""
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    found = birth(refused, error.wrong)
    statement = program.statement(found[0]) if found is not None else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if found is None or not isinstance(statement, ast.Assign) or not isinstance(target, ast.Attribute):
        return None
    name, where, here = program.segment(target), at_line(story, found[1]), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} keeps a result with its history as `{name}`, and {here.en} makes a deep copy of the object that has "
        "it: torch "
        "copies leaves only.",
        zh=f"{where.zh}把带着历史的结果存为 `{name}`，而{here.zh}要深拷贝拥有它的对象：torch 只能拷贝叶子张量。",
    )
    accepts = T(en=f"an attribute without history: `{name} = ….detach()`", zh=f"不带历史的属性：`{name} = ….detach()`")
    related = (Related("kept", found[1], found[2], T(en=f"`{name}` is kept with its history", zh=f"`{name}` 连同历史一起保存")),)
    return Remedy(unique(program.text, [_fix(program, statement, target)]), said, accepts, found[1], found[2], related)


def _fix(program: Program, statement: ast.Assign, target: ast.Attribute) -> Fix:
    name, function = program.segment(target), program.function(statement)
    inside = list(ast.walk(function)) if function is not None else []
    reads = [
        n for n in inside
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and program.segment(n) == name and n.lineno > statement.lineno
    ]  # fmt: skip
    title = T(en=f"Keep `{name}` without its history", zh=f"保存 `{name}`，但不带历史")
    if not reads:
        return Fix(title, program.replace((statement.value, f"{operand(program, statement.value)}.detach()")))
    used = {n.id for n in inside if isinstance(n, ast.Name)} | ({a.arg for a in function.args.args} if function is not None else set())
    local = target.attr if target.attr not in used else f"new_{target.attr}"
    text = f"{local} = {program.segment(statement.value)}\n{program.indent(statement)}{name} = {local}.detach()"
    return Fix(title, program.replace((statement, text), *((read, local) for read in reads)))
