"""PL929: a loss leaves some targets out of its sum, and the sum is divided by the number of all targets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import CLASSIFIERS
from pitfall_lab.rules.signals.value_origins import argument, values, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

KEPT = {"view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "float", "double", "to", "neg", "clone",
        "contiguous", "view_as", "t", "T", "transpose", "unflatten", "detach", "cpu"}  # fmt: skip
"""Calls that keep all numbers, apart from their sign."""
DIVIDED = spellings("div", in_place=True)
MULTIPLIED = spellings("mul", in_place=True)
FURTHER = 60
LEAST = 4
"""The least number of targets: a smaller number is easily equal to another one by chance."""


@dataclass(frozen=True, slots=True)
class IgnoredInTheDivisor:
    """``loss`` is the call (``Event``) of a loss that leaves out the targets equal to ``ignored``; ``event`` is the
    call that divides the sum of the loss by ``number``, the count of all targets.

    ``left_out`` is how many targets are ignored; None if not all targets are known.
    """

    loss: Event
    event: Event
    number: int
    left_out: int | None
    ignored: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides a loss, of which some targets are ignored, by the number of all
    targets: by the mean over the losses of all targets, or by a number.

    Only losses with ``reduction`` ``"sum"`` or ``"none"`` and without class weights; nothing if the program corrects
    the result afterwards.
    """
    reported = set()
    for loss in story.calls(*CLASSIFIERS):
        way = argument(loss, "reduction") or ""
        if loss.error is not None or not loss.results or len(loss.operands) < 2 or not ("sum" in way or "none" in way):
            continue
        if any(o.name == "weight" and o.label is not None for o in loss.operands):
            continue
        found = _divided(story, loss, one_each="none" in way)
        place = story.span(found.event.step) if found is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _divided(story: Story, loss: Event, *, one_each: bool) -> IgnoredInTheDivisor | None:
    target = loss.operands[1].label
    ignored = whole(argument(loss, "ignore_index") or "-100")
    shape = story.shape(target, loss.step) or ()
    total = prod(shape)
    if target is None or ignored is None or total < LEAST:
        return None
    known = [value for _, value in Elements(story, target, loss.step).known()]
    left_out = sum(value == ignored for value in known)
    if not left_out or left_out == len(known):
        return None
    for event in _divisions(story, loss, total, one_each=one_each):
        complete = left_out if len(known) == total else None
        if not _is_made_up_for(story, event, total, complete):
            return IgnoredInTheDivisor(loss, event, total, complete, ignored)
    return None


def _divisions(story: Story, loss: Event, total: int, *, one_each: bool) -> Iterator[Event]:
    """Yield the calls that divide the sum of a loss by ``total``; with ``one_each`` the loss has a number for each
    target.
    """
    pending, seen = [(loss.results[0], one_each)], {loss.results[0]}
    while pending and len(seen) < FURTHER:
        label, many = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.operands[0].label != label:
                continue
            divides = use.name == "mean" and _over_all(story, use, label) if many else _is_division(story, use, total)
            if divides:
                yield use
            elif use.name in KEPT or (many and use.name == "sum" and _over_all(story, use, label)):
                fresh = [each for each in use.results if each not in seen]
                seen.update(fresh)
                pending += [(each, many and use.name != "sum") for each in fresh]


def _over_all(story: Story, use: Event, label: str) -> bool:
    return prod(story.shape(use.results[0], use.step) or ()) == 1 < prod(story.shape(label, use.step) or ())


def _is_division(story: Story, use: Event, total: int) -> bool:
    """Whether a call divides its first operand by the number ``total``, or multiplies it by the reciprocal."""
    factor = _number(story, use)
    if factor is None:
        return False
    return (use.name in DIVIDED and factor == total) or (use.name in MULTIPLIED and isclose(factor * total, 1))


def _number(story: Story, use: Event) -> float | None:
    """Return the second operand of a call, if that is one known number without grad; None if it is not."""
    if len(use.operands) < 2:
        return None
    label, text = use.operands[1].label, use.operands[1].text
    if label is not None:
        record = story.tensor(label, use.step) or {}
        single = prod(story.shape(label, use.step) or ()) == 1 and not record.get("requires_grad")
        held = values(story, label, use.step) if single else []
        return held[0] if len(held) == 1 else None
    try:
        return float(text)
    except ValueError:
        return None


def _is_made_up_for(story: Story, event: Event, total: int, left_out: int | None) -> bool:
    """Whether the program multiplies or divides the result of ``event`` by the number of all targets, or by the ratio
    of all targets to those that count.
    """
    wanted = [float(total)]
    if left_out is not None:
        wanted += [total / (total - left_out), (total - left_out) / total]
    for use in story.uses(event.results[0]):
        places = [o for o in use.operands if o.label != event.results[0]]
        if use.step <= event.step or use.name not in DIVIDED | MULTIPLIED or not places:
            continue
        turned = use.operands[0].label != event.results[0]
        factor = _first(story, use) if turned else _number(story, use)
        if factor is not None and any(isclose(factor, each, rel_tol=1e-4) for each in wanted):
            return True
    return False


def _first(story: Story, use: Event) -> float | None:
    label, text = use.operands[0].label, use.operands[0].text
    if label is None:
        return float(text) if text.replace(".", "", 1).isdigit() else None
    held = values(story, label, use.step) if prod(story.shape(label, use.step) or ()) == 1 else []
    return held[0] if len(held) == 1 else None


def _finding(story: Story, found: IgnoredInTheDivisor) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (found.event, found.loss))
    target = expression(story, found.loss.operands[1].label, found.loss.step)
    some, factor = T(en=f"some of {target.en}", zh=f"{target.zh} 中有一些"), T(en="", zh="")
    if found.left_out is not None:
        kept = found.number - found.left_out
        some = T(en=f"{found.left_out} of {target.en}", zh=f"{target.zh} 中有 {found.left_out} 个")
        factor = T(
            en=f" ({found.number / kept:.3g} times in this one, with {kept} targets left)",
            zh=f"（这一批剩下 {kept} 个目标，小了 {found.number / kept:.3g} 倍）",
        )
    return RULE.finding(
        story.span(found.event.step),
        found.event.step,
        T(
            en=f"{capital(here.en)} divides the loss by {found.number}, the number of all targets, but {there.en} "
            f"leaves out those that are {found.ignored}: {some.en}.",
            zh=f"{here.zh}把损失除以全部目标的个数 {found.number}，而{there.zh}会忽略等于 {found.ignored} 的目标："
            f"{some.zh}。",
        ),
        T(
            en="`ignore_index` makes the loss of a left-out target 0, and only the default, `reduction='mean'`, also "
            "leaves it out of the number that the sum is divided by. What is called the mean is too small, by another "
            f"factor in each batch{factor.en}, and a perplexity computed of it is far too good.",
            zh="`ignore_index` 使被忽略的目标损失为 0，而只有默认的 `reduction='mean'` 才会在除数里也不算它。"
            f"所谓的平均值偏小，而且每个批次的倍数都不同{factor.zh}；由它算出的困惑度会好得多。",
        ),
        related=[story.related("used", found.loss.step, T(en="targets are left out here", zh="在这里忽略一些目标"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("targets", found.number, story.by(found.loss.step)),
            *([Fact("left out", found.left_out, story.by(found.loss.step))] if found.left_out is not None else []),
        ],
    )


def _fixes(story: Story, found: IgnoredInTheDivisor) -> tuple[Fix, ...]:
    """At most one fix: it divides by the number of the targets that are not ignored; empty if the division or the
    targets are written in another way.
    """
    program = story.program
    node, label = program.at(story.span(found.event.step)), found.loss.operands[1].label
    target = written_as(story, found.loss, label)
    name = program.segment(target) if target is not None else story.name(label, found.loss.step)
    if name is None or node is None:
        return ()
    call = program.at(story.span(found.loss.step))
    given = [k.value for k in call.keywords if k.arg == "ignore_index"] if isinstance(call, ast.Call) else []
    ignored = program.segment(given[0]) if given else str(found.ignored)
    owner = operand(program, target) if target is not None else name
    count = f"({owner} != {ignored}).sum()"
    edits: tuple[Edit, ...] = ()
    if found.event.name == "mean" and isinstance(node, ast.Call) and call_name(node) == "mean":
        of_torch = isinstance(node.func, ast.Attribute) and program.segment(node.func.value) == "torch"
        losses = node.args[0] if of_torch and node.args else getattr(node.func, "value", None)
        if losses is not None and len(node.args) == of_torch and not node.keywords:
            edits = program.replace((node, f"{operand(program, losses)}.sum() / {count}"))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        edits = program.replace((node.right, count))
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        edits = program.replace((node.value, count))
    elif isinstance(node, ast.Call) and call_name(node) in DIVIDED and node.args:
        edits = program.replace((node.args[-1], count))
    if not edits:
        return ()
    title = T(en=f"Divide by the number of targets that count: `{count}`", zh=f"除以计入的目标个数：`{count}`")
    return unique(program.text, [Fix(title, edits, meaning="shape")])


RULE = Rule(
    code="PL929",
    name="ignored-in-the-divisor",
    severity="warning",
    title=T(
        en="Targets that a loss leaves out are counted in the number that it is divided by",
        zh="被损失忽略的目标仍算在除数里",
    ),
    what=T(
        en="Some places hold no word to be predicted, and the loss rightly leaves them out of its sum, but the sum is "
        "then divided by the number of all places. The mean comes out too small, the more so the more places are "
        "left out. Divide by the number of places that count.",
        zh="有些位置没有要预测的词，损失也正确地没有把它们计入总和，但总和随后却除以全部位置的个数。得到的平均值偏小，"
        "被忽略的位置越多偏得越多。请除以真正计入的位置个数。",
    ),
    why=T(
        en="`cross_entropy` with `ignore_index` gives 0 for a left-out target. With `reduction='mean'`, the default, "
        "it divides the sum by the number of the others. With `reduction='sum'` or `'none'` the division is the "
        "program's: `targets.numel()` and `.mean()` count the left-out ones too. The gradient is smaller by the same "
        "factor, which differs from batch to batch, so a batch of short texts trains less.",
        zh="带 `ignore_index` 的 `cross_entropy` 对被忽略的目标给出 0。用默认的 `reduction='mean'` 时，它把总和除以其余"
        "目标的个数。用 `reduction='sum'` 或 `'none'` 时，除法由程序自己做：`targets.numel()` 和 `.mean()` 把被忽略的也"
        "算进去了。梯度也小了同样的倍数，而且每个批次不同，所以短文本的批次训练得更少。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
scores = torch.randn(2, 4, 3, requires_grad=True)
tags = torch.tensor([[1, 2, 2, 1], [2, 1, -100, -100]])
loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="sum")  # used
mean = loss / tags.numel()  # PL929
mean.backward()
print(mean.item(), scores.grad.norm())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
scores = torch.randn(2, 4, 3, requires_grad=True)
tags = torch.tensor([[1, 2, 2, 1], [2, 1, -100, -100]])
loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="sum")
mean = loss / (tags.flatten() != -100).sum()
mean.backward()
print(mean.item(), scores.grad.norm())
""",
    find=find,
    traps=(
        Trap(
            'reduction="sum")',
            'reduction="none").sum()',
            T(
                en="A loss for each target has a 0 for those that are left out; they are still counted.",
                zh="为每个目标给出损失时，被忽略的目标得到 0，但仍被算在个数里。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
