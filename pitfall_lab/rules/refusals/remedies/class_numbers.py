"""Class indices that a loss or ``one_hot`` refuses: counted from one, negative for ignored rows, a column instead of a
vector, or one-hot rows.
"""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.text_origins import made_by
from pitfall_lab.rules.refusals.remedies.at_birth import counted_from_one
from pitfall_lab.rules.refusals.remedies.edits import keyword_set
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def outside(error: Error) -> Remedy | None:
    """Return the remedy for class indices out of range, with a fix that subtracts 1 if they go from 1 to the number of
    classes, or that ignores a negative one by ``ignore_index``.

    For indices from -1 to the last class but one, the remedy has no fix and names both possible causes. None for any
    other range, or if the source does not show the loss.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.wrong
    found = counted_from_one(error)
    sizes = error.other.shape if error.other is not None else None
    if found is not None or wrong is None or sizes is None or len(sizes) < 2:
        return found
    if not isinstance(wrong.low, int) or wrong.low >= 0 or wrong.high >= sizes[1] or refused.call is None:
        return None
    if wrong.low == -1 and wrong.high == sizes[1] - 2:
        return _shifted(error, sizes[1])
    losses = (
        [refused.call]
        if called(refused.call) in ("cross_entropy", "nll_loss")
        else made_by(program, refused.call.func, "CrossEntropyLoss", "NLLLoss")
    )
    change = keyword_set(program, losses[0], f"ignore_index={wrong.low}") if len(losses) == 1 else None
    if change is None:
        return None
    title = T(
        en=f"Leave out the rows marked {wrong.low}: `ignore_index={wrong.low}`",
        zh=f"忽略标为 {wrong.low} 的行：`ignore_index={wrong.low}`",
    )
    name = refused.name(wrong)
    said = T(
        en=f"{refused.words('en')['Line']}: {name.en} has the number {wrong.low} for rows that are to be left out, "
        f"and the loss takes it for a class: there are {sizes[1]}, from 0.",
        zh=f"{refused.words('zh')['Line']}：{name.zh} 用 {wrong.low} 标出要忽略的行，而损失把它当作类别：共有 "
        f"{sizes[1]} 个类别，从 0 数起。",
    )
    return Remedy((Fix(title, program.splice(change), meaning="later"),), said)


def _shifted(error: Error, classes: int) -> Remedy | None:
    """The remedy for class indices from -1 to the last class but one: 1 may have been subtracted once too often, or -1
    may mark ignored rows.
    """
    refused, wrong = error.refused, error.wrong
    if wrong is None:
        return None
    name, words = refused.name(wrong), refused.words("en")["Line"]
    return Remedy(
        (),
        T(
            en=f"{words}: the numbers in {name.en} go from -1 to {wrong.high}, and the {classes} classes from 0 to "
            f"{classes - 1}. Either 1 was subtracted once too often, or -1 marks rows that are to be left out "
            "(`ignore_index=-1`).",
            zh=f"{refused.words('zh')['Line']}：{name.zh} 中的编号是 -1 到 {wrong.high}，而 {classes} 个类别是 0 到 "
            f"{classes - 1}。要么多减了一次 1，要么 -1 表示要忽略的行（`ignore_index=-1`）。",
        ),
    )


def one_dimension(error: Error) -> Remedy | None:
    """Return the remedy for a target with one dimension too many, with the fix ``squeeze(-1)`` for a last dimension of
    length 1, or ``argmax(-1)`` for values from 0 to 1.

    None for other targets, or if the target is not written in the call.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.wrong
    call = refused.call
    if wrong is None or not wrong.shape or call is None:
        return None
    place = next((a for a in [*call.args, *(k.value for k in call.keywords)] if program.segment(a) == wrong.text), None)
    if place is None:
        return None
    if wrong.shape[-1] == 1:
        text = f"{operand(program, place)}.squeeze(-1)"
        title = T(en=f"Without the dimension of one: `{text}`", zh=f"去掉长度为一的维度：`{text}`")
    elif wrong.low == 0 and wrong.high == 1:
        text = f"{operand(program, place)}.argmax(-1)"
        title = T(en=f"The number of the class that is 1: `{text}`", zh=f"值为 1 的类别编号：`{text}`")
    else:
        return None
    return Remedy(unique(program.text, [Fix(title, program.replace((place, text)))]))


def one_hot(error: Error) -> Remedy | None:
    """Return the remedy for values that ``one_hot`` refuses, with a fix that subtracts 1 if they go from 1 to
    ``num_classes``, else makes ``num_classes`` large enough.

    None if one of them is negative or they are unknown. The remedy has no fix if ``num_classes`` would have to change
    and is no literal.
    """
    refused, program, wrong = error.refused, error.refused.story.program, error.wrong
    call = refused.call
    if (
        wrong is None
        or call is None
        or not isinstance(wrong.high, int)
        or not isinstance(wrong.low, int)
        or wrong.low < 0
        or not call.args
    ):
        return None
    classes = next(
        (k.value for k in call.keywords if k.arg == "num_classes"), call.args[1] if len(call.args) > 1 else None
    )
    count = error.other.value if error.other is not None else ""
    fixes: list[Fix | None] = []
    if wrong.low == 1 and str(wrong.high) == count:
        text = f"{operand(program, call.args[0])} - 1"
        title = T(en=f"Count the classes from 0: `{text}`", zh=f"类别从 0 数起：`{text}`")
        fixes.append(Fix(title, program.replace((call.args[0], text)), meaning="later"))
    elif isinstance(classes, ast.Constant):
        text = str(wrong.high + 1)
        title = T(en=f"As many classes as there are numbers: `{text}`", zh=f"类别数与编号数一致：`{text}`")
        fixes.append(Fix(title, program.replace((classes, text)), meaning="later"))
    return Remedy(unique(program.text, fixes))
