"""PL965: log-probabilities are divided by a penalty above 1, which brings them nearer to 0: what is penalized gains."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import decimal, origin
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

DIVIDES, MULTIPLIES = spellings("div", in_place=True), spellings("mul", in_place=True)
PICKS = {"__getitem__", "gather", "index_select", "take", "take_along_dim", "masked_select"}
"""Calls that take some of the numbers of a table."""
WRITES = spellings("scatter", "index_put", in_place=True) | {"__setitem__", "index_copy_", "masked_scatter_"}
"""Calls that put numbers back into a table."""
CHOOSES = {"argmax", "max", "multinomial", "softmax", "log_softmax", "topk", "sort", "exp"}
"""Calls that show that the table holds the scores of what is chosen."""
FURTHER = 60


@dataclass(frozen=True, slots=True)
class RaisedByPenalty:
    """``event`` is the call (``Event``) that divides picked log-probabilities by ``factor`` (or multiplies them with
    its inverse), ``made`` the call that computed them and ``written`` the call that puts them back.

    ``example`` is one of the log-probabilities before the division; None if none is known.
    """

    event: Event
    made: Event
    written: Event
    factor: float
    example: float | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides some of a table's log-probabilities by a number above 1, or
    multiplies them with one between 0 and 1, and puts them back, if the table's scores are chosen from afterwards.
    """
    reported: set[Span | None] = set()
    for event in story.calls(*DIVIDES, *MULTIPLIES):
        found = _rewarded(story, event) if event.error is None and story.span(event.step) not in reported else None
        if found is not None:
            reported.add(story.span(event.step))
            yield _finding(story, found)


def _rewarded(story: Story, event: Event) -> RaisedByPenalty | None:
    if len(event.operands) < 2 or event.operands[0].label is None or not event.results:
        return None
    given = decimal(event.operands[1].text) if event.operands[1].label is None else None
    factor = None if not given else given if event.name in DIVIDES else 1 / given
    picked = made_by(story, event.operands[0].label, event.step)
    if factor is None or factor <= 1 or picked is None or picked.name not in PICKS:
        return None
    made = origin(story, picked.operands[0].label, picked.step)
    if made is None or made.name != "log_softmax":
        return None
    written = next((use for use in story.uses(event.results[0]) if use.name in WRITES and use.step >= event.step), None)
    if written is None or not _is_chosen_from(story, written):
        return None
    known = [float(value) for _, value in Elements(story, event.operands[0].label, event.step - 1).known()]
    return RaisedByPenalty(event, made, written, factor, known[0] if known else None)


def _is_chosen_from(story: Story, written: Event) -> bool:
    """Whether something is chosen or drawn from the table that the numbers are put back into."""
    target = written.operands[0].label
    pending = [label for label in (target, *written.results) if label is not None]
    seen = set(pending)
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.step <= written.step:
                continue
            if use.name in CHOOSES:
                return True
            pending += [each for each in use.results if each not in seen]
            seen.update(use.results)
    return False


def _finding(story: Story, found: RaisedByPenalty) -> Finding:
    step = found.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.made.step))
    shown = T(en="", zh="")
    if found.example is not None and found.example < 0:
        after = found.example / found.factor
        shown = T(
            en=f" Here {number(found.example)} becomes {number(after)}: before the scores are normalized again, a "
            f"chance of {number(exp(found.example))} becomes {number(exp(after))}.",
            zh=f"这里 {number(found.example)} 变成 {number(after)}：在重新归一化之前，概率 "
            f"{number(exp(found.example))} 变成 {number(exp(after))}。",
        )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} divides log-probabilities by {number(found.factor)}: they are negative, so this "
            "raises them, and what is to become less likely becomes more likely.",
            zh=f"{here.zh}把对数概率除以 {number(found.factor)}：它们是负数，除以大于 1 的数反而变大，本应变得不那么"
            "可能的反而更可能。",
        ),
        T(
            en=f"The logarithm of a probability ({there.en}) is at most 0. Divided by a number above 1 it comes "
            f"nearer to 0.{shown.en} Multiply negative scores and divide positive ones, as the penalty for "
            "repetition is defined.",
            zh=f"概率的对数（{there.zh}）不大于 0，除以大于 1 的数会更接近 0。{shown.zh}重复惩罚的定义是：负的分数乘"
            "以它，正的分数除以它。",
        ),
        related=[
            story.related("made", found.made.step, T(en="logarithms of probabilities", zh="概率的对数")),
            story.related("used", found.written.step, T(en="put back here", zh="在这里放回")),
        ],
        fixes=_fixes(story.program, story.program.at(story.span(step))),
        facts=[Fact("factor", found.factor, story.by(step))],
    )


def _fixes(program: Program, node: ast.AST | None) -> tuple[Fix, ...]:
    """The fix that turns the division into a product, or the product into a division. Empty if the call is not written
    as one of these.
    """
    statement = program.statement(node) if node is not None else None
    title = T(en="Multiply log-probabilities with the penalty", zh="把对数概率乘以惩罚系数")
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
        sign = "*" if isinstance(node.op, ast.Div) else "/"
        new = f"{program.segment(node.left)} {sign} {program.segment(node.right)}"
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Div, ast.Mult)):
        sign = "*=" if isinstance(statement.op, ast.Div) else "/="
        new = f"{program.segment(statement.target)} {sign} {program.segment(statement.value)}"
        return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        other = {"div": "mul", "div_": "mul_", "mul": "div", "mul_": "div_"}.get(called(node))
        if other is not None:
            new = f"{program.segment(node.func.value)}.{other}"
            return unique(program.text, [Fix(title, program.replace((node.func, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL965",
    name="penalty-that-rewards",
    severity="warning",
    title=T(
        en="A penalty divides log-probabilities, which raises them",
        zh="惩罚用除法作用于对数概率，反而使它们变大",
    ),
    what=T(
        en="A program makes words that have been said less likely by dividing their scores by a penalty. The scores "
        "are log-probabilities, negative numbers: divided by 2, -4 becomes -2, and the word more likely. Multiply "
        "them.",
        zh="程序把已经出现过的词的分数除以一个惩罚系数，想使它们更不可能。但分数是对数概率，是负数：-4 除以 2 得 "
        "-2，这个词反而更可能。请改用乘法。",
    ),
    why=T(
        en="The penalty for repetition was defined for scores before the softmax, where a positive score is divided "
        "and a negative one multiplied. After `log_softmax` no score is positive. No shape, no error shows it: "
        "the text repeats itself more, the higher the penalty is.",
        zh="重复惩罚是为 softmax 之前的分数定义的：正的分数除以它，负的分数乘以它。`log_softmax` 之后没有正的分数。"
        "形状与报错都看不出来：惩罚越大，文本重复得越多。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.randn(6)
logs = torch.log_softmax(scores, dim=0)  # made
said = torch.tensor([0, 3])
logs[said] = logs[said] / 1.5  # PL965 used
print(logs.softmax(0)[said], scores.softmax(0)[said])
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.randn(6)
logs = torch.log_softmax(scores, dim=0)
said = torch.tensor([0, 3])
logs[said] = logs[said] * 1.5
print(logs.softmax(0)[said], scores.softmax(0)[said])
""",
    find=find,
    traps=(
        Trap(
            "/ 1.5",
            "/ 3.0",
            T(en="A larger penalty raises them further.", zh="惩罚越大，它们升得越高。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",
    ),
)
