"""Lists of tensors where numbers are expected: fixes join them by torch, or collect them as numbers."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

FACTORIES = {"tensor", "as_tensor", "FloatTensor", "Tensor"}


def stacked(error: Error) -> Remedy | None:
    """Return the remedy for ``torch.tensor(list)`` of a list of tensors, with the fix ``torch.stack(list)``; None for
    other calls.
    """
    refused, program, torch = error.refused, error.refused.story.program, torch_name(error.refused.story.program)
    call = refused.call
    if (
        call is None
        or torch is None
        or called(call) not in FACTORIES
        or not call.args
        or not any(g.part_of for g in refused.tensors)
    ):
        return None
    text, count = program.segment(call.args[0]), next((g.shape for g in refused.tensors if g.part_of), ())
    shape = "×".join(map(str, count or ())) or "()"
    said = T(
        en=f"{refused.words('en')['Line']} makes a tensor of the numbers in a list, but `{text}` is a list of tensors "
        f"of shape {shape}: these are put together by `torch.stack`.",
        zh=f"{refused.words('zh')['Line']}要用列表中的数建张量，而 `{text}` 是形状 {shape} 的张量的列表：张量要用 "
        "`torch.stack` 合在一起。",
    )
    accepts = T(en=f"`{torch}.stack({text})`, or `{torch}.cat`", zh=f"`{torch}.stack({text})`，或 `{torch}.cat`")
    new = f"{torch}.stack({text})"
    title = T(en=f"Put the tensors together: `{new}`", zh=f"把张量合在一起：`{new}`")
    return Remedy((Fix(title, program.replace((call, new)), meaning="later"),), said, accepts)


def collected_with_history(error: Error) -> Remedy | None:
    """Return the remedy for a list of tensors with graphs that is converted to an array, with a fix that appends
    ``loss.item()`` (or ``.detach()`` if the tensors are not 0-dimensional).

    None if the program does not append to a list that the line names, or appends only results of ``item``, ``detach``
    and ``float``.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    statement = program.statement_at(refused.span)
    names = (
        {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        if statement is not None and not hasattr(statement, "body")
        else set()
    )
    single = error.wrong is not None and error.wrong.shape == ()
    for call in program.nodes:
        if (
            not isinstance(call, ast.Call)
            or called(call) != "append"
            or len(call.args) != 1
            or not isinstance(call.func, ast.Attribute)
        ):
            continue
        held, value = call.func.value, call.args[0]
        if (
            not isinstance(held, ast.Name)
            or held.id not in names
            or not isinstance(value, ast.Name | ast.Attribute | ast.Call)
        ):
            continue
        if isinstance(value, ast.Call) and called(value) in ("item", "detach", "float"):
            continue
        text = f"{operand(program, value)}{'.item()' if single else '.detach()'}"
        place = program.place(call)
        where, here, code = at_line(story, place), at_line(story, refused.span), program.segment(value)
        said = T(
            en=f"{capital(where.en)} collects `{code}` with its graph in `{held.id}`, and {here.en} makes a NumPy "
            "array of it, which keeps no record for backward.",
            zh=f"{where.zh}把带着计算图的 `{code}` 收集到 `{held.id}` 中，而{here.zh}要把它变成 NumPy 数组，"
            "NumPy 不为反向传播留记录。",
        )
        accepts = T(
            en=f"numbers without a graph: `{held.id}.append({text})`", zh=f"不带计算图的数：`{held.id}.append({text})`"
        )
        title = T(en=f"Collect the number alone: `{text}`", zh=f"只收集数值：`{text}`")
        related = (Related("kept", place, None, T(en="collected here with its graph", zh="在这里连同计算图一起收集")),)
        return Remedy(
            unique(program.text, [Fix(title, program.replace((value, text)))]), said, accepts, place, None, related
        )
    return None
