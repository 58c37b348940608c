"""PL830: bool tensors are added as if that counted; the sum of two is again bool, never 2."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name, with_parentheses
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, decimal
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", in_place=True)
AT_LEAST = {"gt": 1, "__gt__": 1, "le": 1, "__le__": 1, "ge": 1.5, "__ge__": 1.5, "lt": 1.5, "__lt__": 1.5, "eq": 1.5,
            "__eq__": 1.5, "ne": 1.5, "__ne__": 1.5}  # fmt: skip
"""Comparisons, each with the smallest number that tells two votes from one."""
QUOTIENTS = spellings("div", in_place=True)
LARGEST = {"argmax", "max", "topk", "argsort", "sort", "mode", "amax"}
"""Calls that look for the largest."""
NUMBERS = {"float", "long", "int", "to", "double", "half", "type"}
"""Conversions that make numbers of truth values."""
BOTH = 2


@dataclass(frozen=True, slots=True)
class TruthValuesAdded:
    """``first`` is the first of the additions of bool tensors (an ``Event``); ``used`` is the call that takes their
    result, the tensor ``total`` (a label), for a number.
    """

    first: Event
    used: Event
    total: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds bool tensors (the sum is bool again) where the program then takes the
    sum for a count: compares it so as to find sums above 1, divides it by a number above 1, or searches for its largest
    element.
    """
    reported, parts = set(), set[int]()
    for event in story.calls(*SUMS):
        place = story.span(event.step)
        if place in reported or event.step in parts or not _is_truth(story, event):
            continue
        used = _used(story, event, parts)
        if used is not None:
            reported.add(place)
            yield _finding(story, used)


def _is_truth(story: Story, event: Event) -> bool:
    """Whether a call adds two tensors of dtype bool, with a result of that dtype."""
    given = [o.label for o in event.operands if o.label is not None]
    if len(given) != BOTH or event.error is not None or not event.results:
        return False
    return all((story.tensor(label, event.step) or {}).get("dtype") == "bool" for label in (*given, event.results[0]))


def _used(story: Story, event: Event, parts: set[int]) -> TruthValuesAdded | None:
    """The call that takes the sum for a number, perhaps after further additions (their steps are put into ``parts``)
    and conversions; None if there is none.
    """
    first = event.results[0]
    pending, seen = [(first, event.step, first)], {first}
    while pending:
        label, step, total = pending.pop(0)
        for use in story.uses(label):
            if use.step <= step or use.error is not None:
                continue
            if _takes_for_number(use, label):
                return TruthValuesAdded(event, use, total)
            adds = use.name in SUMS and _is_truth(story, use)
            parts.update((use.step,) if adds else ())
            for result in use.results if adds or use.name in SAME_NUMBERS | NUMBERS else ():
                if result not in seen:
                    seen.add(result)
                    pending.append((result, use.step, result if adds else total))
    return None


def _takes_for_number(use: Event, label: str) -> bool:
    """Whether a call makes sense only if there are numbers above 1: it compares so as to find them, divides by a
    number above 1, or searches for the largest.
    """
    if use.operands[0].label != label:
        return False
    if use.name in LARGEST:
        return True
    number = decimal(use.operands[1].text) if len(use.operands) > 1 and use.operands[1].label is None else None
    return number is not None and (
        number >= AT_LEAST.get(use.name, float("inf")) or (use.name in QUOTIENTS and number > 1)
    )


def _finding(story: Story, found: TruthValuesAdded) -> Finding:
    first, used = found.first, found.used
    here, there = at_line(story, story.span(first.step)), at_line(story, story.span(used.step))
    what = called(story, found.total, None, used.step, first.step)
    return RULE.finding(
        story.span(first.step),
        first.step,
        T(
            en=f"{capital(here.en)} adds truth values: their sum, {what.en}, is again true or false and never 2 or "
            f"more, but {there.en} takes it for a number.",
            zh=f"{here.zh}把布尔值相加：它们的和 {what.zh} 仍只有真或假，不会是 2 或更多，而{there.zh}把它当作个数。",
        ),
        T(
            en="`+` of two tensors of type bool is a bool again: True + True is True. "
            f"`{snippet(story, story.span(used.step))}` then sees whether any of them was true, and not how many "
            "were. Make whole numbers of one of them first, and the sum counts.",
            zh=f"两个 bool 张量相加仍是 bool：True + True 是 True。`{snippet(story, story.span(used.step))}` 看到的是"
            "其中有没有真的，而不是有几个。先把其中一个转换成整数，加起来就是个数。",
        ),
        related=[story.related("used", used.step, T(en="taken for a number of votes here", zh="在这里当作个数使用"))],
        fixes=_fixes(story, first),
        facts=[Fact("total", found.total, story.by(first.step))],
    )


def _fixes(story: Story, first: Event) -> tuple[Fix, ...]:
    """At most one fix: it converts the first operand to integers or, where that is added to in place, makes it with
    integers.
    """
    program, torch = story.program, torch_name(story.program)
    given = written_as(story, first, first.operands[0].label)
    title = T(en="Add whole numbers, which count", zh="改为整数相加，即可计数")
    change: tuple[Span, str] | None = None
    if (
        given is not None
        and not first.name.endswith("_")
        and not isinstance(program.at(story.span(first.step)), ast.AugAssign)
    ):
        change = with_parentheses(program, given), f"{operand(program, given)}.int()"
    elif torch is not None:
        made = program.at(story.span((story.tensor(first.operands[0].label) or {}).get("born")))
        kind = next((k.value for k in made.keywords if k.arg == "dtype"), None) if isinstance(made, ast.Call) else None
        if kind is not None:
            change = program.place(kind), f"{torch}.int64"
        elif isinstance(made, ast.expr):
            change = with_parentheses(program, made), f"{operand(program, made)}.int()"
    return unique(program.text, [Fix(title, program.splice(change), meaning="later")]) if change is not None else ()


RULE = Rule(
    code="PL830",
    name="truth-values-added",
    severity="warning",
    title=T(en="Truth values are added, and are expected to count", zh="把布尔值相加，却期望得到个数"),
    what=T(
        en="A program adds answers of yes and no, to count how many of them are yes. Two answers added are again an "
        "answer, yes if any of them was, so the count never reaches 2. Convert one to whole numbers first: `(a > "
        "0).int() + (b > 0)`.",
        zh="程序把“是”与“否”的答案相加，想数出有几个“是”。两个答案相加仍是一个答案，只要有一个“是”就是“是”，所以个数永"
        "远到不了 2。请先把其中一个转换成整数：`(a > 0).int() + (b > 0)`。",
    ),
    why=T(
        en="A comparison gives a tensor of type bool, and torch computes in the type of its operands: for bool, "
        "`+` is *or* and `*` is *and*. Python's own `True + True` is 2, and so is a NumPy sum over many; "
        "`torch.sum` over an axis counts as well, since it adds in int64. Only `+` between two bool tensors, and "
        "`+=` into one, stay bool.",
        zh="比较得到 bool 类型的张量，而 torch 按操作数的类型计算：对 bool 来说，`+` 是*或*，`*` 是*与*。Python 自己"
        "的 `True + True` 等于 2；沿某个轴的 `torch.sum` 也会计数，因为它用 int64 累加。只有两个 bool 张量之间的 `+`，"
        "以及对 bool 张量的 `+=`，结果仍是 bool。",
    ),
    bad="""import torch

scores = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.2], [-0.7, 0.8, 0.9]])
a, b, c = scores
votes = (a > 0) + (b > 0) + (c > 0)  # PL830
print(votes > 1)  # used
""",
    good="""import torch

scores = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.2], [-0.7, 0.8, 0.9]])
a, b, c = scores
votes = (a > 0).int() + (b > 0) + (c > 0)
print(votes > 1)
""",
    find=find,
    traps=(
        Trap(
            "print(votes > 1)",
            "print(votes.int() > 1)",
            T(en="Converted afterwards, the sum is 0 or 1.", zh="相加之后再转换，和只是 0 或 1。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_attributes.html",),
)
