"""PL957: the best possible order is computed from the retrieved answers only, not from all."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

DIVIDES = spellings("div")
SORTS = ("sort", "topk", "msort")
"""Calls whose result is their operand, sorted."""
PICKS = ("gather", "__getitem__", "take_along_dim", "index_select")
"""Calls that select elements by position."""
ORDERS = ("topk", "argsort", "sort")
"""Calls that return the sorting order of their operand."""
POINTWISE = (
    spellings("add", "clamp", "matmul", "mul", "sub") | spellings("div", "pow", exchanged=True)
    | {"clamp_min", "cumsum", "dot", "double", "exp2", "float", "log2", "mean", "mv", "squeeze", "sum", "to", "where"}
)  # fmt: skip
"""Calls that may lie between the gains and their ratio."""
UPWARD, PAIR = 30, 2


@dataclass(frozen=True, slots=True)
class Ideal:
    """``ratio`` is the call (``Event``) of a division, as for an NDCG, by a value computed from the result of ``best``,
    a call that sorts the tensor ``part``.

    ``part`` contains only the entries of the tensor ``whole`` that the call ``pick`` selected; both are labels, and
    ``counts`` are their sizes along the last dimension.
    """

    ratio: Event
    best: Event
    pick: Event
    part: str
    whole: str
    counts: tuple[int, int]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that sorts the gains of the retrieved entries only, which are fewer than all, to
    get the ideal order (of an NDCG, for example), where the value of the retrieved order is then divided by the value
    of this ideal order.
    """
    told = set()
    for ratio in story.calls(*DIVIDES) if any(story.calls(*PICKS)) else ():
        found = _ideal(story, ratio) if ratio.error is None and story.span(ratio.step) not in told else None
        if found is not None and story.span(found.best.step) not in told:
            told |= {story.span(found.best.step), story.span(ratio.step)}
            yield _finding(story, found)


def _ideal(story: Story, ratio: Event) -> Ideal | None:
    labels = [o.label for o in ratio.operands[:PAIR]]
    if len(labels) < PAIR or labels[0] is None or labels[1] is None:
        return None
    below, above = (_behind(story, str(label), ratio.step) for label in labels[::-1])
    for best in below.values():
        part = best.operands[0].label if best.name in SORTS and best.operands else None
        pick = above.get(part) if part is not None else None
        if part is None or pick is None or pick.name not in PICKS:
            continue
        whole = pick.operands[0].label
        order = next((o.label for o in pick.operands[1:] if o.label is not None), None)
        counts = [(story.shape(each, best.step) or (0,))[-1] for each in (part, whole)]
        if whole is not None and 1 < counts[0] < counts[1] and _is_order(story, order, whole, pick.step):
            return Ideal(ratio, best, pick, part, whole, (counts[0], counts[1]))
    return None


def _behind(story: Story, label: str, step: int) -> dict[str, Event]:
    """Return the tensors that ``label`` was computed from by elementwise calls, sums and slices, itself included, each
    with the call that computed it.
    """
    pending, found = deque([(label, step)]), dict[str, Event]()
    while pending and len(found) < UPWARD:
        here, at = pending.popleft()
        made = made_by(story, here, at)
        if made is None or here in found:
            continue
        found[here] = made
        if made.name in POINTWISE:
            pending += [(o.label, made.step) for o in made.operands if o.label is not None]
        elif made.name in PICKS and len([o for o in made.operands if o.label is not None]) == 1:
            pending += [(o.label, made.step) for o in made.operands if o.label is not None]  # a part, as in `x[:, :10]`
    return found


def _is_order(story: Story, label: str | None, whole: str, step: int) -> bool:
    """Whether the indices ``label`` were found by sorting another tensor than ``whole``, from which they select."""
    for _ in range(UPWARD):
        made = made_by(story, label, step) if label is not None else None
        if made is None or not made.operands:
            return False
        if made.name in ORDERS:
            return made.operands[0].label != whole
        label, step = made.operands[0].label, made.step
        if made.name not in (*PICKS, "view", "reshape", "flip", "unsqueeze", "squeeze"):
            return False
    return False


def _finding(story: Story, found: Ideal) -> Finding:
    step = found.best.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.pick.step))
    part, whole = shown(story, found.best, found.part), shown(story, found.pick, found.whole)
    few, many = found.counts
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} takes the best order of {part.en}, which holds only the {few} of {many} that "
            f"{there.en} retrieved: a list that misses the best ones is compared with itself, not with them.",
            zh=f"{here.zh}取的是 {part.zh} 的最佳次序，而它只含{there.zh}从 {many} 个中检出的 {few} 个：漏掉最好结果的"
            "列表只是与自己相比，而不是与最好的结果相比。",
        ),
        T(
            en=f"The ratio is 1 as soon as the {few} are in descending order, however poor they are. The ideal order "
            f"is that of the best {few} of all {many} numbers of {whole.en}; only with it does missing one of them "
            "lower the result.",
            zh=f"只要这 {few} 个按降序排列，比值就是 1，不论它们有多差。理想次序应取 {whole.zh} 全部 {many} 个数中最好"
            f"的 {few} 个；这样漏掉其中之一才会降低结果。",
        ),
        related=[
            story.related(
                "made", found.pick.step, T(en="the retrieved ones are picked here", zh="在这里取出检出的结果")
            ),
            story.related("used", found.ratio.step, T(en="the two are compared here", zh="两者在这里相比")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("retrieved", few, story.by(step)), Fact("all", many, story.by(step))],
    )


def _fixes(story: Story, found: Ideal) -> tuple[Fix, ...]:
    """At most one fix: it sorts all entries, and takes as many of the first ones; empty if the program is not written
    so that this is possible.
    """
    program = story.program
    part, whole = written_as(story, found.best, found.part), written_as(story, found.pick, found.whole)
    call = program.at(story.span(found.best.step))
    if part is None or whole is None or not isinstance(call, ast.Call) or found.best.name != "sort":
        return ()
    if program.function(part) is not program.function(whole):
        return ()
    values = program.parents.get(call)
    if isinstance(values, ast.Attribute | ast.Subscript) and values.value is call:
        text = program.rewritten(values, (part, operand(program, whole)))
        new = f"{text}[..., :{operand(program, part)}.size(-1)]"
        title = T(en="Take the best of all", zh="取全部结果中最好的")
        return unique(program.text, [Fix(title, program.replace((values, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL957",
    name="ideal-of-a-part",
    severity="warning",
    title=T(en="The best possible order is taken of the retrieved answers alone", zh="最佳次序只取自检出的结果"),
    what=T(
        en="A program measures a ranking by dividing the value of its first answers by the value that they could "
        "have at most. For the most it sorts those same answers, so a list that misses every good one still gets "
        "full marks if its own order is right. Sort the values of all candidates, and take as many of them.",
        zh="程序用前几个结果的得分除以可能的最高得分来衡量排序。但最高得分是把这几个结果自己排序得到的，于是一个漏掉"
        "所有好结果的列表，只要自己的次序对，也能得满分。请对全部候选的得分排序，再取同样多的几个。",
    ),
    why=T(
        en="`torch.topk` and `gather` return what was picked and nothing of the rest. The normalised discounted gain "
        "divides by the gain of the ideal list, which is made of all candidates: the k largest of all their values. "
        "Where only some answers are to be put in order, as by a second model, these are all candidates there are.",
        zh="`torch.topk` 和 `gather` 返回取出的部分，不含其余的任何信息。归一化折损增益要除以理想列表的增益，理想列表"
        "由全部候选构成：所有得分中最大的 k 个。如果本来就只要给其中一部分排序（如第二个模型重排），那么这一部分就是"
        "全部候选。",
    ),
    bad="""import torch

torch.manual_seed(0)
score, value = torch.randn(4, 50), torch.rand(4, 50)
weight = 1 / torch.log2(torch.arange(5) + 2.0)
top = value.gather(1, score.topk(5, dim=1).indices)  # made
best = top.sort(1, descending=True).values  # PL957
print((top * weight).sum(1) / (best * weight).sum(1))  # used
""",
    good="""import torch

torch.manual_seed(0)
score, value = torch.randn(4, 50), torch.rand(4, 50)
weight = 1 / torch.log2(torch.arange(5) + 2.0)
top = value.gather(1, score.topk(5, dim=1).indices)
best = value.sort(1, descending=True).values[..., :5]
print((top * weight).sum(1) / (best * weight).sum(1))
""",
    find=find,
    traps=(
        Trap(
            "score.topk(5, dim=1)",
            "score.softmax(1).topk(5, dim=1)",
            T(en="Probabilities have the same order as the scores.", zh="概率的次序与分数相同。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.topk.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.sort.html",
    ),
)
