"""Errors about a tensor that an earlier line created with the wrong dtype or values: the fix changes that line."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.offending import SCALARS
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import Given, Span, T

CASTS = {
    "float32": ".float()", "float64": ".double()", "float16": ".half()", "bfloat16": ".bfloat16()", "int64": ".long()",
    "int32": ".int()", "bool": ".bool()",
}  # fmt: skip


def birth(refused: Refused, given: Given | None) -> tuple[ast.expr, Span, int] | None:
    """Return the expression that created the tensor ``given`` in another statement of the program, its span and its
    step.

    None if there is none, for a parameter, and for one of several results of a call.
    """
    story = refused.story
    record = story.tensor(given.label, refused.step) if given is not None and given.label is not None else None
    born = (record or {}).get("born")
    event = story.event(born)
    node = story.program.at(story.span(born)) if event is not None else None
    if (
        given is None
        or given.kind == "Parameter"
        or event is None
        or len(event.results) != 1
        or not isinstance(node, ast.expr)
    ):
        return None
    statement, here = story.program.statement(node), story.program.statement_at(refused.span)
    return (node, story.program.place(node), event.step) if statement is not None and statement is not here else None


def rewritten(refused: Refused, given: Given | None, form: str) -> Fix | None:
    """Return the fix that rewrites the expression which created the tensor ``given`` to ``form``, in which ``{}`` is
    replaced by the expression; None if :func:`birth` finds no such expression.
    """
    found = birth(refused, given)
    if found is None:
        return None
    program, node = refused.story.program, found[0]
    text = form.replace("{}", operand(program, node))
    where = at_line(refused.story, found[1])
    shown = " ".join(text.split())
    shown = shown if len(shown) <= 60 else form.replace("{}", "…")
    title = T(en=f"Where it is made, on {where.en}: `{shown}`", zh=f"在创建它的{where.zh}写成 `{shown}`")
    return Fix(title, program.replace((node, text)))


def converted(error: Error) -> Remedy | None:
    """Return the remedy for a tensor of another dtype than the call needs, with a fix that converts the tensor where it
    is created.

    None if :func:`birth` does not find where it is created, or if the required dtype is unknown or the tensor's own.
    """
    refused, wrong = error.refused, error.wrong
    meant = (
        SCALARS.get(error.match[1]) if error.match.re.groups else error.other.dtype if error.other is not None else None
    )
    cast, found = CASTS.get(meant or ""), birth(refused, wrong)
    if wrong is None or cast is None or found is None or meant == wrong.dtype:
        return None
    _, place, step = found
    name, where, here = refused.name(wrong), at_line(refused.story, place), at_line(refused.story, refused.span)
    beside = next((g for g in refused.tensors if g is not wrong and g.dtype == meant), None)
    en, zh = (
        (f", as {refused.name(beside).en} has", f"（{refused.name(beside).zh} 就是）")
        if beside is not None
        else ("", "")
    )
    said = T(
        en=f"{capital(where.en)} makes {name.en} with numbers of type {wrong.dtype}, and `{refused.called}` on "
        f"{here.en} takes {meant} there{en}.",
        zh=f"{where.zh}创建的 {name.zh} 是 {wrong.dtype} 类型，而{here.zh}的 `{refused.called}` 在此要求 {meant}{zh}。",
    )
    related = (Related("made", place, step, T(en=f"{name.en}: {wrong.dtype}", zh=f"{name.zh}：{wrong.dtype}")),)
    fix = rewritten(refused, wrong, f"{{}}{cast}")
    return Remedy((fix,) if fix is not None else (), said, None, place, step, related)


def counted_from_one(error: Error) -> Remedy | None:
    """Return the remedy for class indices from 1 to the number of classes, with a fix that subtracts 1 where they are
    created.

    None for any other range, or if :func:`birth` does not find where they are created.
    """
    refused, wrong, other = error.refused, error.wrong, error.other
    sizes = other.shape if other is not None else None
    if wrong is None or sizes is None or len(sizes) < 2 or wrong.low != 1 or wrong.high != sizes[1]:
        return None
    fix, found = rewritten(refused, wrong, "{} - 1"), birth(refused, wrong)
    if fix is None or found is None:
        return None
    name, where, here = refused.name(wrong), at_line(refused.story, found[1]), at_line(refused.story, refused.span)
    scores = refused.name(other) if other is not None else T("", "")
    said = T(
        en=f"{capital(where.en)} makes class numbers {name.en} from 1 to {wrong.high}, but classes are counted from "
        f"0: the {sizes[1]} classes of {scores.en} on {here.en} are 0 to {sizes[1] - 1}.",
        zh=f"{where.zh}创建的类别编号 {name.zh} 从 1 到 {wrong.high}，而类别从 0 数起：{here.zh}的 {scores.zh} 有 "
        f"{sizes[1]} 个类别，编号是 0 到 {sizes[1] - 1}。",
    )
    related = (Related("made", found[1], found[2], T(en=f"{name.en} is made here", zh=f"{name.zh} 在这里创建")),)
    return Remedy((fix,), said, None, found[1], found[2], related)
