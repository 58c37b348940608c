"""PL426: shares were masked after the softmax and not made to add up to 1 again, so what is
masked still takes its part.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, operand, reads
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.rules.signals.axes import Use, dimension, uses_of_axis
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FILLS = {"masked_fill", "masked_fill_"}
PRODUCTS = spellings("mul", in_place=True)
ONWARD = (
    spellings("expand", "matmul", "mm", "mul", "transpose")
    | {"__getitem__", "bmm", "clone", "contiguous", "detach", "dropout", "einsum", "float", "permute", "reshape",
       "sum", "to", "unsqueeze", "view"}
)  # fmt: skip
"""What may be done with the shares: any division or norm could make them add up to 1 again."""
CHANCE = ("rand", "bernoulli", "dropout", "uniform", "normal")
HOPS = 60
NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class MaskedAfterSoftmax:
    """``mask`` is the call (``Event``) that set results of the call ``softmax`` to zero by the mask labelled ``label``.

    ``use`` is the later use of the rest (:class:`Use`) as if it summed to 1.
    """

    softmax: Event
    mask: Event
    label: str
    use: Use


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that sets results of a softmax to zero by a mask along the softmax's axis, where
    nothing makes the rest add up to 1 before a call uses it as weights.

    Not for masks that were drawn, learned or computed from the scores themselves.
    """
    told = set()
    for event in story.calls("softmax"):
        axis = dimension(story, event) if event.error is None and event.results and event.operands else None
        for use in story.uses(event.results[0]) if axis is not None else ():
            found = (
                _lost(story, event, axis, use)
                if story.span(use.step) not in told and use.error is None and axis is not None
                else None
            )
            if found is not None:
                told.add(story.span(use.step))
                yield _finding(story, found)


def _lost(story: Story, softmax: Event, axis: int, mask: Event) -> MaskedAfterSoftmax | None:
    label = _mask(mask, softmax.results[0])
    shape = story.shape(softmax.results[0], softmax.step) or ()
    if label is None or not mask.results or not _goes_along(story, label, mask.step, len(shape), axis):
        return None
    if not _is_given(story, label, softmax):
        return None
    later = [use for use in story.uses(mask.results[0]) if use.step > mask.step]
    if any(use.name not in ONWARD for use in later):
        return None
    uses = [use for use in uses_of_axis(story, mask.results[0], axis, mask.step) if use.axis == use.followed]
    taken = next((use for use in uses if use.event.name in ONWARD and (use.event.name != "sum" or use.weighted)), None)
    plain = any(use.event.name == "sum" and not use.weighted for use in uses)  # the divisor of a mean
    harmful = (
        taken is not None and not plain and _masks_something(story, mask, label) and not _adds_up(story, mask, axis)
    )
    return MaskedAfterSoftmax(softmax, mask, label, taken) if taken is not None and harmful else None


def _mask(event: Event, shares: str) -> str | None:
    """Return the mask with which ``event`` sets results of the softmax to zero; None if it does not."""
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != 2 or event.operands[0].label is None:
        return None
    if event.name in FILLS and labels[0] == shares:
        zero = [o.text for o in event.operands if o.label is None]
        return labels[1] if zero in (["0"], ["0.0"]) else None
    return (labels[1] if labels[0] == shares else labels[0]) if event.name in PRODUCTS else None


def _goes_along(story: Story, label: str, step: int, count: int, axis: int) -> bool:
    """Whether the mask has more than one entry along the axis of the softmax, if it is broadcast to ``count`` axes."""
    shape = story.shape(label, step) or ()
    own = axis - (count - len(shape))
    return 0 <= own < len(shape) and shape[own] > 1


def _is_given(story: Story, label: str, softmax: Event) -> bool:
    """Whether the mask was neither drawn, nor learned, nor computed from the scores themselves.

    Judged by the first ``HOPS`` tensors that it was computed from; what is further back counts as given.
    """
    shared = {softmax.results[0], softmax.operands[0].label}
    pending, seen = [label], {label}
    while pending and len(seen) < HOPS:
        here = pending.pop()
        record = story.tensor(here) or {}
        event = story.event(record.get("born"))
        if record.get("requires_grad") or record.get("kind") == "parameter" or here in shared:
            return False
        if event is None or here not in event.results:
            continue
        if any(word in event.name for word in CHANCE):
            return False
        new = [o.label for o in event.operands if o.label is not None and o.label not in seen]
        seen.update(new)
        pending += new
    return True


def _adds_up(story: Story, mask: Event, axis: int) -> bool:
    """Whether the weights of each row add up to 1, or to 0 if all are masked: then the scores were
    masked before the softmax too.
    """
    rows: dict[Index, list[float]] = defaultdict(list)
    elements = Elements(story, mask.results[0], mask.step)
    for index, value in elements.known():
        rows[index[:axis] + index[axis + 1 :]].append(value)
    totals = [sum(row) for row in rows.values() if len(row) == elements.shape[axis]]
    return bool(totals) and all(min(abs(total), abs(total - 1)) < NEAR for total in totals)


def _masks_something(story: Story, event: Event, label: str) -> bool:
    """Whether all known values of the mask are 0 or 1, with both among them."""
    held = (story.record("storages", (story.tensor(label, event.step) or {}).get("storage"), event.step) or {}).get(
        "cells"
    )
    return {float(value) for _, value in flat(held) if isinstance(value, bool | int | float)} == {0.0, 1.0}


def _finding(story: Story, found: MaskedAfterSoftmax) -> Finding:
    mask, softmax, use = found.mask, found.softmax, found.use.event
    here, there = at_line(story, story.span(mask.step)), at_line(story, story.span(softmax.step))
    last = at_line(story, story.span(use.step))
    name = expression(story, found.label, mask.step)
    return RULE.finding(
        story.span(mask.step),
        mask.step,
        T(
            en=f"{capital(here.en)} masks the shares with {name.en} after the softmax of {there.en}: what is left "
            "adds up to less than 1.",
            zh=f"{here.zh}在{there.zh}的 softmax 之后才用 {name.zh} 遮住份额：剩下的加起来小于 1。",
        ),
        T(
            en="The softmax has divided by the sum over all places, the masked ones included, and nothing divides "
            f"again before {last.en} adds the values up. The more is masked, the smaller the result, and scores that "
            "are masked still take part. Mask the scores with -inf before the softmax.",
            zh=f"softmax 除以的是所有位置的总和，包括后来被遮住的；而在{last.zh}把值加起来之前，没有再除一次。遮住的越"
            "多，结果就越小，被遮住的分数也仍在起作用。请在 softmax 之前把分数遮成 -inf。",
        ),
        related=[
            story.related(
                "made", softmax.step, T(en="adds up to 1 with the masked places", zh="连同被遮住的位置一起加起来为 1")
            ),
            story.related("used", use.step, T(en="taken for shares here", zh="在这里被当作份额")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("softmax", softmax.op, story.by(softmax.step)), Fact("mask", mask.op, story.by(mask.step))],
    )


def _fixes(story: Story, found: MaskedAfterSoftmax) -> tuple[Fix, ...]:
    """Fixes that set masked scores to -inf before the softmax, and remove the mask after it.

    Empty if the program's source does not show the softmax's call, its scores and the mask.
    """
    program = story.program
    soft, node = program.at(story.span(found.softmax.step)), program.at(story.span(found.mask.step))
    shares, mask = written_as(story, found.mask, found.softmax.results[0]), written_as(story, found.mask, found.label)
    if not isinstance(soft, ast.Call) or call_name(soft) != "softmax" or node is None or shares is None or mask is None:
        return ()
    scores = (
        soft.args[0]
        if soft.args and written_as(story, found.softmax, found.softmax.operands[0].label) is soft.args[0]
        else None
    )
    if scores is None and isinstance(soft.func, ast.Attribute):
        scores = soft.func.value
    if scores is None:
        return ()
    out = program.segment(mask) if found.mask.name in FILLS else f"{operand(program, mask)} == 0"
    new = f'{operand(program, scores)}.masked_fill({out}, float("-inf"))'
    inside = any(n is soft for n in ast.walk(node))
    text = program.segment(shares)
    if inside:
        edits: tuple[Edit, ...] | None = program.replace((node, program.rewritten(shares, (scores, new))))
    else:
        statement, first = program.statement(node), program.statement(soft)
        again = statement is not None and _only_masks(program, statement, node, text)
        if again and statement is not None and first is not None and _made_between(program, first, statement, mask):
            later = program.rewritten(soft, (scores, f'{text}.masked_fill({out}, float("-inf"))'))
            edits = merge(
                program.replace((statement, f"{text} = {later}")), program.replace((soft, program.segment(scores)))
            )
        else:
            edits = merge(
                program.delete(statement) if again and statement is not None else program.replace((node, text)),
                program.replace((scores, new)),
            )
    title = T(en="Mask the scores with -inf before the softmax", zh="在 softmax 之前把分数遮成 -inf")
    return unique(program.text, [Fix(title, edits, meaning="shape")] if edits else [])


def _only_masks(program: Program, statement: ast.stmt, node: ast.AST, name: str) -> bool:
    """Whether a statement does nothing but mask ``name``: ``a = a * m``, ``a *= m``, ``a.masked_fill_(m, 0)``."""
    if isinstance(statement, ast.Assign):
        return statement.value is node and program.segment(statement.targets[0]) == name
    return statement is node or (isinstance(statement, ast.Expr) and statement.value is node)


def _made_between(program: Program, first: ast.stmt, last: ast.stmt, mask: ast.expr) -> bool:
    """Whether the mask is made after the softmax, in the same block, so that the scores cannot be
    masked on the softmax's line.
    """
    block = program.block(first)
    if last not in block or not isinstance(first, ast.Assign):
        return False
    between = block[block.index(first) + 1 : block.index(last)]
    return bool(reads(program, mask) & {name for statement in between for name in assigned(program, statement)})


RULE = Rule(
    code="PL426",
    name="masked-after-softmax",
    severity="warning",
    title=T(
        en="Shares were masked after the softmax, and no longer add up to 1",
        zh="在 softmax 之后才遮住份额，它们加起来不再是 1",
    ),
    what=T(
        en="A program turns scores into shares that add up to 1, and sets some of them to zero afterwards. What is "
        "left adds up to less than 1, and how much less depends on the masked scores. Mask before: "
        '`scores.masked_fill(mask, float("-inf")).softmax(-1)`.',
        zh="程序把分数变成加起来为 1 的份额，之后又把其中一些设为零。剩下的加起来小于 1，少多少取决于被遮住的分数。请"
        '先遮再算：`scores.masked_fill(mask, float("-inf")).softmax(-1)`。',
    ),
    why=T(
        en="A softmax divides `exp(score)` by the sum of them all. A masked place still is in that sum, so an example "
        "with much padding gets a smaller result than one with little, and gradients go to scores that should not "
        "matter. `exp(-inf)` is 0, so a place that is masked before the softmax has no part in the sum.",
        zh="softmax 用 `exp(score)` 除以所有这些数的总和。被遮住的位置仍在这个总和里，所以填充多的样本得到的结果比填充"
        "少的要小，梯度也会流向本不该起作用的分数。`exp(-inf)` 是 0，所以在 softmax 之前遮住的位置不参与总和。",
    ),
    advice=T(
        en="mask the scores before the softmax of {made}, with `masked_fill(mask, float('-inf'))`, and leave "
        "out the mask on {line}.",
        zh="在{made}的 softmax 之前用 `masked_fill(mask, float('-inf'))` 遮住得分，并去掉{line}的遮罩。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
h = torch.randn(3, 2, requires_grad=True)
padding = torch.tensor([False, False, True])
scores = h @ h.T
shares = F.softmax(scores, dim=-1)  # made
shares = shares.masked_fill(padding, 0.0)  # PL426
out = shares @ h  # used
out.sum().backward()
print(out, h.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
h = torch.randn(3, 2, requires_grad=True)
padding = torch.tensor([False, False, True])
scores = h @ h.T
shares = F.softmax(scores.masked_fill(padding, float("-inf")), dim=-1)
out = shares @ h
out.sum().backward()
print(out, h.grad)
""",
    find=find,
    traps=(
        Trap(
            "shares.masked_fill(padding, 0.0)",
            "shares * ~padding",
            T(en="The same zeros, by a product.", zh="同样的零，只是用乘法得到。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html",
    ),
)
