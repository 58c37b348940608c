"""Calls of a ``GradScaler`` in the wrong order (the right one is scale, backward, unscale_, step, update)."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Edit, Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def out_of_order(error: Error) -> Remedy | None:
    """Return the remedy for calls of a ``GradScaler`` in the wrong order, with fixes that move ``unscale_`` into the
    branch that steps, add a missing ``update``, or remove the second of two equal statements.

    None if the failed line is not a statement that only calls a method.
    """
    refused, program = error.refused, error.refused.story.program
    statement, call = program.statement_at(refused.span), refused.call
    if not isinstance(statement, ast.Expr) or call is None or not isinstance(call.func, ast.Attribute):
        return None
    scaler = program.segment(call.func.value)
    fixes: list[Fix | None] = []
    if called(call) == "unscale_":
        fixes += [_into_branch(program, statement, scaler)]
    fixes += [_with_update(program, scaler), _left_out(program, statement)]
    others = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and called(n) in ("update", "step") and isinstance(n.func, ast.Attribute)
    ]
    own = [n for n in others if isinstance(n.func, ast.Attribute) and program.segment(n.func.value) == scaler]
    related = tuple(
        Related(
            "step",
            program.place(n),
            None,
            T(en=f"`{scaler}.{called(n)}` is called here", zh=f"`{scaler}.{called(n)}` 在这里调用"),
        )
        for n in own[:3]
    )
    return Remedy(unique(program.text, fixes), _said(error, own, scaler), related=related)


def kept_in_float32(error: Error) -> Remedy | None:
    """Return the remedy for a model that is converted by ``half()`` although it is trained with a scaler, with a fix
    that removes the conversion.

    None if the source does not show exactly one such call.
    """
    program = error.refused.story.program
    halved = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and called(n) == "half" and not n.args and isinstance(n.func, ast.Attribute)
    ]
    if len(halved) != 1 or not isinstance(halved[0].func, ast.Attribute):
        return None
    statement, inner = program.statement(halved[0]), halved[0].func.value
    alone = isinstance(statement, ast.Expr) and statement.value is halved[0] and program.stands_alone(statement)
    edits = (
        program.delete(statement)
        if alone and statement is not None
        else program.replace((halved[0], program.segment(inner)))
    )
    place = program.place(halved[0])
    title = T(en="Leave the parameters in float32: no `half()`", zh="让参数保持 float32：不用 `half()`")
    related = (Related("made", place, None, T(en="the parameters become float16 here", zh="参数在这里变成 float16")),)
    return Remedy((Fix(title, edits, meaning="later"),), place=place, related=related)


def _said(error: Error, own: list[ast.Call], scaler: str) -> T | None:
    refused, story = error.refused, error.refused.story
    update = next((n for n in own if called(n) == "update"), None)
    if update is None or error.match[0].startswith("No inf"):
        return None
    here, there = refused.words("en")["Line"], at_line(story, story.program.place(update))
    name = called(refused.call) if refused.call is not None else "unscale_"
    return T(
        en=f"{here} calls `{scaler}.{name}` a second time before `{scaler}.update` on {there.en}: a scaler unscales "
        "the gradients of an optimizer once between two updates.",
        zh=f"{refused.words('zh')['Line']}在{there.zh}的 `{scaler}.update` 之前第二次调用 `{scaler}.{name}`：两次 "
        "update 之间，缩放器对一个优化器的梯度只还原一次。",
    )


def _into_branch(program: Program, statement: ast.stmt, scaler: str) -> Fix | None:
    """The fix that moves ``unscale_``, and the statements up to the next ``if`` of its block, into that ``if``, before
    the step.

    None if that ``if`` does not step.
    """
    block = program.block(statement)
    after = block[block.index(statement) :]
    branch = next((s for s in after if isinstance(s, ast.If)), None)
    stepping = (
        next((s for s in branch.body if _calls(program, s, f"{scaler}.step")), None) if branch is not None else None
    )
    if branch is None or stepping is None:
        return None
    moved = after[: after.index(branch)]
    if not all(program.stands_alone(s) for s in [*moved, stepping]):
        return None
    text = "".join(indented(program, s, program.indent(stepping)) for s in moved)
    line = program.place(stepping).line
    insert = Edit(line, line, text + program.lines[line - 1])
    edits = merge((insert,), *[(Edit(program.place(s).line, program.place(s).end_line, ""),) for s in moved])
    title = T(en="Unscale only before the step, in its branch", zh="只在更新之前还原，放进它的分支里")
    return Fix(title, edits, meaning="later") if edits else None


def _calls(program: Program, statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Call) and program.segment(n.func) == name for n in ast.walk(statement))


def _with_update(program: Program, scaler: str) -> Fix | None:
    """The fix that adds ``update`` after the last step; None if the program calls it already, or never steps."""
    statements = [n for n in program.nodes if isinstance(n, ast.Expr)]
    if any(_calls(program, s, f"{scaler}.update") for s in statements):
        return None
    stepping = [s for s in statements if _calls(program, s, f"{scaler}.step")]
    title = T(
        en=f"Update the scale after the step: `{scaler}.update()`", zh=f"更新之后更新缩放比例：`{scaler}.update()`"
    )
    return Fix(title, program.insert_after(stepping[-1], f"{scaler}.update()"), meaning="later") if stepping else None


def _left_out(program: Program, statement: ast.stmt) -> Fix | None:
    """The fix that deletes ``statement`` if its block contains an equal statement before it; else None."""
    block, text = program.block(statement), program.segment(statement)
    before = block[: block.index(statement)]
    title = T(en=f"Leave out the second `{text}`", zh=f"去掉第二个 `{text}`")
    return (
        Fix(title, program.delete(statement), meaning="later")
        if any(program.segment(s) == text for s in before)
        else None
    )
