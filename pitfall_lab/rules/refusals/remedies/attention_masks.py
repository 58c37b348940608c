"""Remedies for errors of an attention layer: a mask for each example instead of one for each head of each example, and
a number of heads that does not divide the number of features.
"""

from __future__ import annotations

import ast
import re

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def for_each_head(error: Error) -> Remedy | None:
    """Return the remedy for an attention mask with one matrix per example, with a fix that repeats the mask for the
    heads of the layer; None if the mask's shape is wrong in another way.

    The remedy has no fix if the mask is not written in the call.
    """
    refused, wrong = error.refused, error.wrong
    got, wanted = ([int(n) for n in re.findall(r"\d+", error.match[k])] for k in (2, 3))
    heads = next((int(g.value) for g in refused.given if g.name == "num_heads" and g.value.isdigit()), 0)
    if (
        wrong is None
        or heads < 2
        or len(got) != 3
        or len(wanted) != 3
        or got[0] * heads != wanted[0]
        or got[1:] != wanted[1:]
    ):
        return None
    here, name = refused.words("en")["Line"], refused.name(wrong)
    said = T(
        en=f"{here} gives the attention layer the mask {name.en} with one matrix for each of the {got[0]} examples, "
        f"and it takes one for each of its {heads} heads in each example: {got[0]} × {heads} = {wanted[0]}.",
        zh=f"{refused.words('zh')['Line']}给注意力层的掩码 {name.zh} 对 {got[0]} 个样本各有一个矩阵，而它要求每个样本"
        f"的 {heads} 个头各有一个：{got[0]} × {heads} = {wanted[0]}。",
    )
    program, call = refused.story.program, refused.call
    given = [*call.args, *(k.value for k in call.keywords)] if call is not None else []
    place = next((each for each in given if program.segment(each) == wrong.text), None)
    if place is None or call is None or not isinstance(call.func, ast.Name | ast.Attribute):
        return Remedy((), said)
    text = f"{operand(program, place)}.repeat_interleave({program.segment(call.func)}.num_heads, dim=0)"
    title = T(en=f"Repeat the mask of each example for every head: `{text}`", zh=f"为每个头重复各样本的掩码：`{text}`")
    return Remedy((Fix(title, program.replace((place, text))),), said)


def heads_that_divide(error: Error) -> Remedy | None:
    """Return the remedy for a number of heads that does not divide the features, with a fix that takes the nearest
    number that does (of two, the smaller).

    None if the source does not show exactly one literal as the number of heads.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    width = next((int(g.value) for g in refused.given if g.name == "embed_dim" and g.value.isdigit()), 0)
    heads = next((int(g.value) for g in refused.given if g.name == "num_heads" and g.value.isdigit()), 0)
    given = (
        next((k.value for k in call.keywords if k.arg == "num_heads"), call.args[1] if len(call.args) > 1 else None)
        if call is not None
        else None
    )
    made = (
        [o for o in origins(program, given) if isinstance(o, ast.Constant) and o.value == heads]
        if given is not None
        else []
    )
    if len(made) != 1 or width < 1 or heads < 1:
        return None
    nearest = min((n for n in range(1, width + 1) if width % n == 0), key=lambda n: (abs(n - heads), n))
    title = T(
        en=f"Take a number of heads that divides {width}: `{nearest}`", zh=f"取能整除 {width} 的头数：`{nearest}`"
    )
    return Remedy((Fix(title, program.replace((made[0], str(nearest))), meaning="later"),))
