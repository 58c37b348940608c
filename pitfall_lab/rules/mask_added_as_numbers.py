"""PL428: a mask of zeros and ones was added to the scores of a softmax, or multiplied with them: nothing is masked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import everything, looks
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PLACE = 3
"""The position of ``attn_mask`` among the arguments."""
SUMS = spellings("add", in_place=True)
PRODUCTS = spellings("mul", in_place=True)
SCALED = spellings("div", "mul") | {"dropout", "masked_fill", "reshape", "view"}
"""Calls between the scores and the softmax."""
HOPS = 4
AXES = 2
MASKS = ("attn_mask", "mask", "src_mask", "tgt_mask", "memory_mask")
"""How modules call the argument."""


@dataclass(frozen=True, slots=True)
class MaskAddedAsNumbers:
    """``event`` is the call (``Event``) that adds ``mask``, the label of a float tensor of zeros and ones, to scores,
    or multiplies them with it.

    ``softmax`` is the call that makes shares of these scores; it is ``event`` itself where an attention does both.
    """

    event: Event
    mask: str
    softmax: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds a float mask of zeros and ones to scores of a softmax, or multiplies
    them with it; an ``attn_mask`` of such numbers counts too.
    """
    told = set()
    for event in story.calls("scaled_dot_product_attention", "baddbmm", *SUMS, *PRODUCTS):
        place = story.span(event.step)
        found = _added(story, event) if place not in told and event.error is None and event.results else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _added(story: Story, event: Event) -> MaskAddedAsNumbers | None:
    if event.name == "scaled_dot_product_attention":
        named = next((o.label for o in event.operands if o.name == "attn_mask"), None)
        mask = named or (event.operands[PLACE].label if len(event.operands) > PLACE else None)
        return (
            MaskAddedAsNumbers(event, mask, event) if mask is not None and _is_mask(story, mask, event.step) else None
        )
    between = (
        SCALED - {"masked_fill"} if event.name in PRODUCTS else SCALED
    )  # a product may be masked as well afterwards
    softmax = _softmax(story, event.results[0], event.step, between)
    if softmax is None:
        return None
    shape = story.shape(event.results[0], event.step) or ()
    for given in event.operands[:2]:
        own = story.shape(given.label, event.step) or ()
        if (
            given.label is not None
            and own[-1:] == shape[-1:]
            and len(own) > 1
            and _is_mask(story, given.label, event.step)
        ):
            return MaskAddedAsNumbers(event, given.label, softmax)
    return None


def _softmax(story: Story, label: str, step: int, between: set[str]) -> Event | None:
    for _ in range(HOPS):
        uses = [use for use in story.uses(label) if use.step > step and use.operands[0].label == label and use.results]
        softmax = next((use for use in uses if use.name == "softmax"), None)
        onward = next((use for use in uses if use.name in between), None)
        if softmax is not None or onward is None:
            return softmax
        label, step = onward.results[0], onward.step
    return None


def _is_mask(story: Story, label: str, step: int) -> bool:
    """Whether the known values are floats, not learned, only zeros and ones, with both among them.

    False if none are known.
    """
    record = story.tensor(label, step) or {}
    if (
        not str(record.get("dtype")).startswith(("float", "bfloat"))
        or record.get("requires_grad")
        or record.get("kind") == "parameter"
    ):
        return False
    return set(values(story, label, step)) == {0.0, 1.0}


def _finding(story: Story, found: MaskAddedAsNumbers) -> Finding:
    event = found.event
    here, mask = at_line(story, story.span(event.step)), expression(story, found.mask, event.step)
    there = at_line(story, story.span(found.softmax.step))
    if event.name in PRODUCTS:
        return _of_product(story, found)
    handed = _handed_on(story, event)
    if handed is None:
        born = (story.tensor(found.mask) or {}).get("born")
        related = [story.related("made", born, T(en="the mask is made here", zh="掩码在这里创建"))]
    else:
        # What the module made of the mask has no name in the program, and is not made on its line.
        text = story.program.segment(handed)
        related, mask = [], T(en=f"`{text}`", zh=f"`{text}`")
    if found.softmax is not event:
        related.append(story.related("used", found.softmax.step, T(en="becomes shares here", zh="在这里变成份额")))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} adds {mask.en}, zeros and ones, to the scores of an attention: nothing is masked.",
            zh=f"{here.zh}把由 0 和 1 组成的 {mask.zh} 加到注意力的分数上：什么也没有遮住。",
        ),
        T(
            en=f"A mask of numbers is added to the scores before the softmax of {there.en}, so a 0 leaves a score as "
            "it is and a 1 makes it larger by one. Only a bool mask, or one of 0 and -inf, leaves places out. Here "
            "what should be hidden is still seen, which shows in a loss that is too good.",
            zh=f"数值类型的掩码会在{there.zh}的 softmax 之前加到分数上，所以 0 让分数保持原样，1 只让它大一。只有 "
            "bool 掩码，或者由 0 和 -inf 组成的掩码，才能排除位置。这里本该隐藏的仍然被看到，表现为损失好得不真实。",
        ),
        related=related,
        fixes=_fixes(story, found),
        facts=[Fact("mask", found.mask, story.by(event.step)), *_looks(story, found)],
    )


def _handed_on(story: Story, event: Event) -> ast.expr | None:
    """The mask that the program gives by keyword to a module, such as ``nn.MultiheadAttention``, which makes the call;
    None if it gives none, or makes the call itself.
    """
    node = story.program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or called(node) == event.name:
        return None
    return next((each.value for each in node.keywords if each.arg in MASKS), None)


def _is_hidden(story: Story, found: MaskAddedAsNumbers) -> bool:
    """Whether a 1 in the mask means "hidden": it has a 0 where the first position looks at itself, which is always
    allowed.
    """
    mask = Elements(story, found.mask, found.event.step)
    first = (0,) * (len(mask.shape) - AXES)
    return len(mask.shape) >= AXES and mask.at((*first, 0, 0)) == 0


def _looks(story: Story, found: MaskAddedAsNumbers) -> list[Fact]:
    """The fact that every position is looked at, also those that the mask is meant to hide; empty for a mask of fewer
    than two axes.
    """
    mask = Elements(story, found.mask, found.event.step)
    if len(mask.shape) < AXES:
        return []
    first = (0,) * (len(mask.shape) - AXES)
    hidden = float(_is_hidden(story, found))

    def is_meant(row: int, column: int) -> bool | None:
        number = mask.at((*first, row, column))
        return None if number is None else number != hidden

    return looks((mask.shape[-2], mask.shape[-1]), everything, is_meant)


def _of_product(story: Story, found: MaskAddedAsNumbers) -> Finding:
    event = found.event
    here, mask = at_line(story, story.span(event.step)), expression(story, found.mask, event.step)
    there = at_line(story, story.span(found.softmax.step))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} multiplies scores with {mask.en}, zeros and ones, before the softmax of "
            f"{there.en}: a score of 0 still gets a share, so nothing is masked.",
            zh=f"{here.zh}在{there.zh}的 softmax 之前把分数乘以由 0 和 1 组成的 {mask.zh}：分数 0 仍然会得到份额，"
            "所以什么也没有遮住。",
        ),
        T(
            en="Softmax takes the exponential of each score, and that of 0 is 1: a place that should be hidden gets "
            "more than one with a negative score. Only `-inf`, whose exponential is 0, leaves a place out.",
            zh="softmax 取每个分数的指数，而 0 的指数是 1：本该隐藏的位置得到的比负分数的位置还多。只有 `-inf`（指数"
            "为 0）才能排除一个位置。",
        ),
        related=[
            story.related(
                "made", (story.tensor(found.mask) or {}).get("born"), T(en="the mask is made here", zh="掩码在这里创建")
            ),
            story.related("used", found.softmax.step, T(en="becomes shares here", zh="在这里变成份额")),
        ],
        fixes=_filled(story, found),
        facts=[Fact("mask", found.mask, story.by(event.step)), *_looks(story, found)],
    )


def _filled(story: Story, found: MaskAddedAsNumbers) -> tuple[Fix, ...]:
    """At most one fix: it sets masked positions to ``-inf`` in place of the product; empty if the line has no such
    product.
    """
    program = story.program
    node, given = program.at(story.span(found.event.step)), written_as(story, found.event, found.mask)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult) and given is node.value:
        name = program.segment(node.target)
        new = f"{name} = {name}.masked_fill({operand(program, given)} == 0, float('-inf'))"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and given in (node.left, node.right):
        scores = node.left if given is node.right else node.right
        new = f"{operand(program, scores)}.masked_fill({operand(program, given)} == 0, float('-inf'))"
    else:
        return ()
    title = T(en="Fill the hidden places with -inf: `masked_fill`", zh="用 -inf 填充要隐藏的位置：`masked_fill`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="shape")])


def _fixes(story: Story, found: MaskAddedAsNumbers) -> tuple[Fix, ...]:
    program = story.program
    handed = _handed_on(story, found.event)
    if handed is not None:
        # A module's bool mask says what is hidden.
        text = operand(program, handed)
        new = f"{text}.bool()" if _is_hidden(story, found) else f"{text} == 0"
        title = T(
            en=f"Make it a bool mask, True where a position is hidden: `{new}`",
            zh=f"改成 bool 掩码，要隐藏的位置为 True：`{new}`",
        )
        return unique(program.text, [Fix(title, program.replace((handed, new)), meaning="shape")])
    given = written_as(story, found.event, found.mask)
    if given is None:
        return ()
    text = operand(program, given)
    if found.softmax is found.event:
        title = T(en=f"Make it a bool mask: `{text}.bool()`", zh=f"改成 bool 掩码：`{text}.bool()`")
        return unique(program.text, [Fix(title, program.replace((given, f"{text}.bool()")), meaning="shape")])
    new = f"{text}.log()"
    title = T(en=f"Add 0 and -inf: `{new}`", zh=f"加上 0 和 -inf：`{new}`")
    return unique(program.text, [Fix(title, program.replace((given, new)), meaning="shape")])


RULE = Rule(
    code="PL428",
    name="mask-added-as-numbers",
    severity="warning",
    title=T(
        en="A mask of zeros and ones is added to scores or multiplied with them, and hides nothing",
        zh="由 0 和 1 组成的掩码被加到分数上或与之相乘，什么也没有遮住",
    ),
    what=T(
        en="A program gives an attention a mask of the numbers 0 and 1. Numbers are added to the scores, so nothing "
        "is hidden: a model of text sees the words that it should predict. Give it a mask of type bool. Scores "
        "multiplied with such a mask hide nothing either: use `scores.masked_fill(mask == 0, float('-inf'))`.",
        zh="程序给注意力的掩码是数 0 和 1。数会被加到分数上，所以什么也没有隐藏：语言模型会看到它应当预测的词。请给它 "
        "bool 类型的掩码。把分数乘以这样的掩码同样什么也遮不住：请用 `scores.masked_fill(mask == 0, float('-inf'))`。",
    ),
    why=T(
        en="`scaled_dot_product_attention` and `nn.MultiheadAttention` take two kinds of masks. A bool mask says "
        "which places take part (or, for `MultiheadAttention`, which do not). A float mask is added to the "
        "scores, as a bias of positions is; there 0 means no change, and `-inf` hides. `torch.tril(torch.ones(n, "
        "n))` is a float tensor.",
        zh="`scaled_dot_product_attention` 与 `nn.MultiheadAttention` 接受两种掩码。bool 掩码说明哪些位置参与（对 "
        "`MultiheadAttention` 则是哪些不参与）。float 掩码会像位置偏置那样加到分数上；其中 0 表示不变，`-inf` 才是隐"
        "藏。`torch.tril(torch.ones(n, n))` 是 float 张量。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
h = torch.randn(1, 3, 4, requires_grad=True)
past = torch.tril(torch.ones(3, 3))  # made
out = F.scaled_dot_product_attention(h, h, h, attn_mask=past)  # PL428
out[0, 0].sum().backward()
print(h.grad[0, 2])
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
h = torch.randn(1, 3, 4, requires_grad=True)
past = torch.tril(torch.ones(3, 3))
out = F.scaled_dot_product_attention(h, h, h, attn_mask=past.bool())
out[0, 0].sum().backward()
print(h.grad[0, 2])
""",
    find=find,
    traps=(
        Trap(
            "torch.tril(torch.ones(3, 3))",
            "1 - torch.tril(torch.ones(3, 3))",
            T(en="Turned round, the zeros and ones still are added.", zh="反过来，0 和 1 仍然只是被加上去。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
    ),
)
