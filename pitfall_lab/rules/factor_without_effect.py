"""PL922: probabilities are divided by a temperature after the softmax, but the call that draws from them normalizes
them again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FACTORS = spellings("div", "mul", in_place=True)
HOPS = 12


@dataclass(frozen=True, slots=True)
class FactorWithoutEffect:
    """``factor`` is the call (``Event``) that multiplied or divided all results of the call ``softmax`` by one number;
    ``draw`` is the call that drew from the product and uses only the ratios of its numbers.

    ``text`` is that number or, if it is a tensor, the tensor's name (``"one number"`` if it has none).
    """

    softmax: Event
    factor: Event
    draw: Event
    text: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies or divides the results of a softmax by one number before
    ``multinomial`` draws from them.
    """
    told = set()
    for draw in story.calls("multinomial"):
        found = _idle(story, draw) if draw.error is None and draw.operands else None
        if found is not None and story.span(found.factor.step) not in told:
            told.add(story.span(found.factor.step))
            yield _finding(story, found)


def _idle(story: Story, draw: Event) -> FactorWithoutEffect | None:
    """Return the data of the finding if a softmax's result was multiplied or divided by one number before ``draw``;
    None if it was not.

    Views and normalization between the two are followed backwards.
    """
    label, step = draw.operands[0].label, draw.step
    for _ in range(HOPS):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results or not event.operands:
            return None
        many = [o for o in event.operands if o.label is not None and prod(story.shape(o.label, event.step) or ()) > 1]
        if event.name in FACTORS and len(event.operands) == 2:
            one = next((o for o in event.operands if o not in many), None)
            if one is not None and many:
                maker = origin(story, many[0].label, event.step)
                text = one.text or story.name(one.label, event.step) or "one number"
                return (
                    FactorWithoutEffect(maker, event, draw, text)
                    if maker is not None and maker.name == "softmax"
                    else None
                )
            if not _by_its_sum(story, event):
                return None
        elif event.name not in SAME_NUMBERS - (spellings("cat", "clamp") | {"clamp_min", "stack"}):
            return None
        label, step = event.operands[0].label, event.step
    return None


def _by_its_sum(story: Story, event: Event) -> bool:
    made = story.event((story.tensor(event.operands[1].label, event.step) or {}).get("born"))
    return made is not None and made.name == "sum" and made.operands[0].label == event.operands[0].label


def _finding(story: Story, found: FactorWithoutEffect) -> Finding:
    here, there = at_line(story, story.span(found.factor.step)), at_line(story, story.span(found.draw.step))
    made = at_line(story, story.span(found.softmax.step))
    return RULE.finding(
        story.span(found.factor.step),
        found.factor.step,
        T(
            en=f"{capital(here.en)} scales all probabilities by one number ({found.text}), and {there.en} draws by "
            "their ratios: the number has no effect.",
            zh=f"{here.zh}用同一个数（{found.text}）缩放所有概率，而{there.zh}只按它们的比例抽取：这个数没有任何作用。",
        ),
        T(
            en="`multinomial` divides its weights by their sum, so a factor common to all of them cancels. A "
            f"temperature belongs to the scores before the softmax of {made.en}: `softmax(scores / temperature)` "
            "makes the probabilities more or less different.",
            zh=f"`multinomial` 会用权重除以它们的总和，所以公共的因子会被消去。温度应当作用于{made.zh}的 softmax 之前"
            "的分数：`softmax(scores / temperature)` 才会让概率之间的差别变大或变小。",
        ),
        related=[
            story.related("made", found.softmax.step, T(en="the probabilities are made here", zh="概率在这里得到")),
            story.related("used", found.draw.step, T(en="only ratios count here", zh="这里只看比例")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("factor", found.text, story.by(found.factor.step))],
    )


def _fixes(story: Story, found: FactorWithoutEffect) -> tuple[Fix, ...]:
    """At most one fix: it moves the factor into the softmax; empty if the softmax or the
    factor is written in another way.
    """
    program = story.program
    soft, node = program.at(story.span(found.softmax.step)), program.at(story.span(found.factor.step))
    if not isinstance(soft, ast.Call) or call_name(soft) != "softmax" or not isinstance(node, ast.BinOp):
        return ()
    scores = written_as(story, found.softmax, found.softmax.operands[0].label)
    sign = {ast.Div: "/", ast.Mult: "*"}.get(type(node.op))
    if scores is None or sign is None:
        return ()
    new = f"{operand(program, scores)} {sign} {operand(program, node.right)}"
    if any(n is soft for n in ast.walk(node.left)):
        edits = program.replace((node, program.rewritten(node.left, (scores, new))))
    else:
        edits = merge(program.replace((node, program.segment(node.left))), program.replace((scores, new))) or ()
    return unique(
        program.text, [Fix(T(en=f"Divide the scores: `{new}`", zh=f"对分数做除法：`{new}`"), edits, meaning="later")]
    )


RULE = Rule(
    code="PL922",
    name="factor-without-effect",
    severity="warning",
    title=T(en="A temperature after the softmax has no effect on what is drawn", zh="softmax 之后的温度对抽取没有作用"),
    what=T(
        en="A program divides probabilities by a temperature before it draws from them, and every temperature gives "
        "the same draws. The call that draws looks at ratios only. Divide the scores before the softmax: "
        "`softmax(scores / temperature, -1)`.",
        zh="程序在抽取之前把概率除以温度，而任何温度得到的抽取都一样。抽取只看比例。请在 softmax 之前除："
        "`softmax(scores / temperature, -1)`。",
    ),
    why=T(
        en="`torch.multinomial` takes weights of any sum and divides by it, and so do the distributions with "
        "`probs=`. A common factor cancels in that. In front of the softmax the same division changes ratios: `exp(a "
        "/ T) / exp(b / T)` is `exp((a - b) / T)`, so a small temperature makes the best score win more often.",
        zh="`torch.multinomial` 接受总和任意的权重并除以总和，带 `probs=` 的分布也是如此。公共因子就这样被消去。而"
        "在 softmax 之前做同样的除法会改变比例：`exp(a / T) / exp(b / T)` 等于 `exp((a - b) / T)`，所以温度小的时"
        "候，最高的分数更常获胜。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.tensor([[2.0, 1.0, 0.0]] * 4)
temperature = 0.1
p = torch.softmax(scores, dim=-1) / temperature  # PL922 made
print(torch.multinomial(p, 6, replacement=True))  # used
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.tensor([[2.0, 1.0, 0.0]] * 4)
temperature = 0.1
p = torch.softmax(scores / temperature, dim=-1)
print(torch.multinomial(p, 6, replacement=True))
""",
    find=find,
    traps=(
        Trap(
            "temperature = 0.1",
            "temperature = 0.01",
            T(en="No temperature has an effect there.", zh="放在那里，什么温度都没有作用。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",),
)
