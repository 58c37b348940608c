"""PL802: numbers with a fraction were written into an integer tensor.

Torch drops the fraction without a warning.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as method
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat, number, snippet, statement_text
from pitfall_lab.trace import Event, T

CONVERTING = ("__setitem__", "fill_", "copy_", "masked_fill_", "index_fill_")
"""The writes that convert the numbers that they are given; for arithmetic (``n *= 0.5``) torch raises an error
instead.
"""
WHOLE = {"int64", "int32", "int16"}
SMALL = {"uint8", "int8"}
"""Dtypes of images and of quantized numbers, where a program often drops the fraction on purpose."""
MAKING = {"full_like": 1, "new_full": 2, "full": 1, "masked_fill": 2, "index_fill": 3}
"""The calls that put a number into a new tensor of the dtype of their first argument, or of ``dtype``, each with the
index of that number among its operands.
"""
FACTORIES = {"tensor", "arange", "ones", "zeros", "full", "randint", "empty", "ones_like", "zeros_like", "full_like",
             "empty_like", "as_tensor", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"}  # fmt: skip
"""Calls in the program that create the integer tensor, and accept a dtype."""


@dataclass(frozen=True, slots=True)
class Loss:
    """``event`` is the call (``Event``) that wrote the number ``value``, which has a fraction, into an integer tensor,
    so that the fraction was lost.

    ``target`` is the label of the tensor that was written or created, ``dtype`` its dtype (``"int64"``).
    """

    event: Event
    target: str
    dtype: str
    value: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each source position that writes a number with a fraction into an integer tensor, or
    creates an integer tensor from it.

    Only for values that are known.
    """
    reported = set()
    for event in story.calls(*CONVERTING, *MAKING):
        span = story.span(event.step)
        if span not in reported and (loss := _loss(story, event)) is not None:
            reported.add(span)
            yield _finding(story, loss)


def _loss(story: Story, event: Event) -> Loss | None:
    if event.error is not None or len(event.operands) < 2:
        return None
    target, given = event.operands[0].label, event.operands[-1]
    if event.name in MAKING:
        if len(event.operands) <= MAKING[event.name] or len(event.results) != 1:
            return None
        target, given = event.results[0], event.operands[MAKING[event.name]]
    if target is None:
        return None
    if event.name == "copy_":  # its last argument may be ``non_blocking``
        given = event.operands[1]
    dtype = (story.tensor(target, event.step) or {}).get("dtype")
    if dtype not in WHOLE | SMALL:
        return None
    values = [given.text] if given.label is None else [value for _, value in _cells(story, given.label, event.step)]
    for value in values:
        with contextlib.suppress(ValueError, TypeError):
            exact = float(value)
            if math.isfinite(exact) and exact != math.trunc(exact):
                return Loss(event, target, dtype, exact)
    return None


def _cells(story: Story, label: str, step: int) -> list[tuple[int, float]]:
    """Return the known elements of a floating-point tensor, each in a pair after its position in the storage; empty for
    other dtypes and for tensors with more than 4096 elements.
    """
    record = story.tensor(label, step) or {}
    if not str(record.get("dtype")).startswith(("float", "bfloat")):
        return []
    memory = story.record("storages", record.get("storage"), step) or {}
    cells = flat(memory.get("cells"))
    offset, shape, stride = record.get("offset") or 0, record.get("shape") or [], record.get("stride") or []
    places = {offset}
    for length, skip in zip(shape, stride, strict=True):
        if len(places) * length > 4096:
            return []
        places = {place + skip * index for place in places for index in range(length)}
    return [(index, value) for index, value in cells if index in places]


def _finding(story: Story, loss: Loss) -> Finding:
    step = loss.event.step
    span = story.span(step)
    storage = (story.tensor(loss.target) or {}).get("storage")
    what = called(story, loss.target, storage, step)
    maker, record = next(iter(story.tensors_on(storage)))
    born = record.get("born")
    here, given, kept = at_line(story, span), number(loss.value), str(math.trunc(loss.value))
    if loss.event.name in MAKING:
        return _made(story, loss)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} puts {given} into {what.en}, which holds only whole numbers: it becomes {kept}.",
            zh=f"{here.zh}把 {given} 放进只能存整数的 {what.zh}：它变成了 {kept}。",
        ),
        T(
            en=f"The numbers of {what.en} have the type `{loss.dtype}`, chosen when it was made. "
            f"`{statement_text(story, span)}` does not change the type; it converts what it is given, and everything "
            "behind the decimal point is cut off without a word.",
            zh=f"{what.zh} 中数的类型是 `{loss.dtype}`，在创建时就定下了。`{statement_text(story, span)}` 不会改变类"
            "型，而是转换给它的数，小数点之后的部分被悄悄去掉。",
        ),
        related=[
            story.related(
                "made", born, T(en=f"the type `{loss.dtype}` is chosen here", zh=f"类型 `{loss.dtype}` 在这里定下")
            ),
            story.related("changed", step, T(en=f"{given} becomes {kept} here", zh=f"{given} 在这里变成 {kept}")),
        ],
        fixes=_fixes(story, born),
        facts=[
            Fact("dtype", loss.dtype, story.by(step)),
            Fact("given", loss.value, story.by(step)),
            Fact("tensor", maker, story.by(step)),
        ],
        severity="info" if loss.dtype in SMALL else None,
    )


def _made(story: Story, loss: Loss) -> Finding:
    """Return the finding about a call that creates a new tensor."""
    step, source = loss.event.step, loss.event.operands[0].label
    span = story.span(step)
    here, given, kept = at_line(story, span), number(loss.value), str(math.trunc(loss.value))
    text = snippet(story, span)
    like = called(story, source, None, step) if source is not None else None
    fills = loss.event.name in ("full_like", "new_full") and like is not None
    whence = (
        T(en=f", the type of {like.en}", zh=f"，这是 {like.zh} 的类型")
        if like is not None and source is not None
        else T(en="", zh="")
    )
    born = (story.tensor(source) or {}).get("born") if source is not None and not fills else step
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} puts {given} into a new tensor that holds only whole numbers: it becomes {kept}.",
            zh=f"{here.zh}把 {given} 放进一个只能存整数的新张量：它变成了 {kept}。",
        ),
        T(
            en=f"`{text}` makes numbers of the type `{loss.dtype}`{whence.en}. It converts what it is given to this "
            "type, and everything behind the decimal point is cut off without a word.",
            zh=f"`{text}` 产生的数的类型是 `{loss.dtype}`{whence.zh}。它把给它的数转换成这个类型，小数点之"
            "后的部分被悄悄去掉。",
        ),
        related=[story.related("changed", step, T(en=f"{given} becomes {kept} here", zh=f"{given} 在这里变成 {kept}"))],
        fixes=_fixes(story, born),
        facts=[Fact("dtype", loss.dtype, story.by(step)), Fact("given", loss.value, story.by(step))],
        severity="info" if loss.dtype in SMALL else None,
    )


def _fixes(story: Story, born: int | None) -> tuple[Fix, ...]:
    program = story.program
    name = torch_name(program) if program.tree else None
    node = program.at(story.span(born)) if program.tree else None
    if isinstance(node, ast.Assign):
        node = node.value
    if not isinstance(node, ast.expr) or name is None:
        return ()
    return unique(program.text, _candidates(program, node, name))


def _candidates(program: Program, node: ast.expr, torch: str) -> list[Fix]:
    title = T(en="Make a tensor of floating point numbers", zh="创建浮点数张量")
    found = []
    if isinstance(node, ast.Call) and method(node) in FACTORIES:
        kind = next((k.value for k in node.keywords if k.arg == "dtype"), None)
        if kind is not None:
            found.append(Fix(title, program.replace((kind, f"{torch}.float32")), meaning="later"))
        else:
            text = program.segment(node).removesuffix(")").rstrip().removesuffix(",")
            found.append(Fix(title, program.replace((node, f"{text}, dtype={torch}.float32)")), meaning="later"))
    text = program.segment(node)
    text = text if isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)) else f"({text})"
    found.append(Fix(T(en="Convert to floating point numbers first", zh="先转换成浮点数"),
                     program.replace((node, f"{text}.float()")), meaning="later"))  # fmt: skip
    return found


RULE = Rule(
    code="PL802",
    name="integer-truncation-in-place",
    severity="warning",
    title=T(en="Fractions were written into whole numbers and cut off", zh="小数被写进整数张量，小数部分被去掉"),
    what=T(
        en="A program wrote numbers like `0.7` into a tensor that can hold only whole numbers, and `0` was stored. "
        "There is no error. Make the tensor with floating point numbers: `torch.tensor([1.0, 2.0])`, "
        "`torch.zeros(3)`, or `dtype=torch.float32`.",
        zh="程序把 `0.7` 这样的数写进只能存整数的张量，存下的是 `0`，没有报错。请创建浮点数张量：`torch.tensor([1.0, "
        "2.0])`、`torch.zeros(3)`，或加上 `dtype=torch.float32`。",
    ),
    why=T(
        en="The type of a tensor's numbers (its `dtype`) is fixed when it is made: `torch.tensor([1, 2])`, "
        "`torch.arange(3)` and `zeros_like` of such a tensor hold `int64`. A write in place keeps memory and type. An "
        "assignment (`n[0] = 0.7`, `fill_`, `copy_`, `masked_fill_`) converts, as it does in NumPy and C: towards "
        "zero. Arithmetic in place is stricter, `n *= 0.7` raises, and arithmetic that makes a new tensor (`n * 0.7`) "
        "chooses a type that can hold the result.",
        zh="张量中数的类型（`dtype`）在创建时就定了：`torch.tensor([1, 2])`、`torch.arange(3)` 以及对它们用 "
        "`zeros_like` 得到的都是 `int64`。就地写入保持内存和类型不变。赋值（`n[0] = 0.7`、`fill_`、`copy_`、"
        "`masked_fill_`）会转换，与 NumPy 和 C 一样向零取整。就地算术更严格，`n *= 0.7` 会报错；产生新张量的算术（`n "
        "* 0.7`）则选用能存下结果的类型。",
    ),
    bad="""import torch

scores = torch.tensor([3, 1, 2])
weights = torch.zeros_like(scores)  # made
for i in range(3):
    weights[i] = scores[i] / scores.sum()  # PL802 changed
w = torch.ones(3, requires_grad=True)
loss = (w * weights).sum()
loss.backward()
print(weights, w.grad)
""",
    good="""import torch

scores = torch.tensor([3, 1, 2])
weights = torch.zeros_like(scores, dtype=torch.float32)
for i in range(3):
    weights[i] = scores[i] / scores.sum()
w = torch.ones(3, requires_grad=True)
loss = (w * weights).sum()
loss.backward()
print(weights, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss = (w * weights).sum()",
            "loss = (w * weights.float()).sum()",
            T(
                en="Converting afterwards comes too late: the fractions are gone already.",
                zh="事后再转换太迟了：小数部分早已丢失。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch-dtype",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.copy_.html",
    ),
)
